"""The site as `make docs` builds it: what its copy button takes, and where its search leads. Skipped without Zensical."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from playwright.sync_api import Page, sync_playwright

from site_search import keep_navigated

from ...doc_pages import DOCS, blocks, commands  # noqa: TID252, tests are no package of an installed name

CONSOLES = {
    str(path.relative_to(DOCS).with_suffix("")): found
    for path in sorted(DOCS.rglob("*.md"))
    if (found := [block.text for block in blocks(path.read_text()) if block.kind == "console"])
    and path.relative_to(DOCS).parts[0] not in {"benchmarks", "records"}
}
"""Terminals on each page; those that programs have recorded are for reading."""
SEARCH = """async words => {
  const index = await (await fetch('/search.json')).json();
  const script = JSON.parse(document.getElementById('__config').textContent).search;
  const worker = new Worker(script);
  const asked = message => new Promise(answered => {
    worker.onmessage = ({data}) => answered(data);
    worker.postMessage(message);
  });
  await asked({type: 0, data: index});
  const found = await asked({type: 2, data: {input: words, filters: {input: [], value: []}}});
  return found.data.items.map(({id}) => index.items[id].location);
}"""
"""As the search field does: the theme's own worker over the site's index."""
ASKED = re.findall(r"\| ([^|]+) \| \[.+?\]\(\.\./(.+?)\.md(#.+)?\) \|", (DOCS / "records/asked.md").read_text())
WORDS = {each: f"{page}/{anchor}" for words, page, anchor in ASKED for each in words.split("; ")}
"""Words that people ask with, and where their first answer is."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    program = shutil.which("zensical", path=Path(sys.executable).parent)
    if program is None:
        pytest.skip("Zensical is not installed: make docs")
    folder = tmp_path_factory.mktemp("site")
    for part in ("docs", "tools/site_theme"):
        shutil.copytree(DOCS.parent / part, folder / part)
    shutil.copy(DOCS.parent / "mkdocs.yml", folder)
    subprocess.run([program, "build", "--strict"], cwd=folder, check=True, capture_output=True)
    keep_navigated(folder / "mkdocs.yml")
    return folder / "build" / "site"


@pytest.fixture(scope="module")
def page(site: Path) -> Iterator[Page]:
    """A tab of Chromium, at the site's first page."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Nothing: pytest's output is read by people."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), lambda *request: Quiet(*request, directory=str(site)))
    Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path)
        tab = browser.new_page(base_url=f"http://127.0.0.1:{server.server_port}")
        tab.goto("/")
        yield tab
        browser.close()
    server.shutdown()


@pytest.mark.parametrize("name", CONSOLES)
def test_the_copy_button_takes_commands_without_prompts_and_output(page: Page, name: str) -> None:
    page.goto(f"/{name}/")
    copied = page.eval_on_selector_all(
        ".highlight code:has(.gp)",
        "codes => codes.map(code => {code.dataset.mdCopying = ''; return code.innerText.trimEnd()})",
    )
    assert copied == ["\n".join(commands(text)) for text in CONSOLES[name]]


@pytest.mark.parametrize(("words", "answer"), WORDS.items(), ids=list(WORDS))
def test_words_that_people_use_lead_to_their_answer(page: Page, words: str, answer: str) -> None:
    [first, *_] = page.evaluate(SEARCH, words)
    assert first.startswith(answer)


@pytest.mark.parametrize("words", ["refused", "ablations", "seed"])
def test_records_and_benchmarks_answer_no_search(page: Page, words: str) -> None:
    folders = {location.partition("/")[0] for location in page.evaluate(SEARCH, words)}
    assert folders.isdisjoint({"benchmarks", "decisions", "records", "design"})


@pytest.mark.parametrize("name", ["explanation/compare", "operate/symptoms", "reference/conditions"])
def test_a_phone_stacks_the_cells_of_a_row(page: Page, name: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"/{name}/")
    widest, label = page.evaluate("""() => {
      const cells = [...document.querySelectorAll(".md-typeset td:nth-child(2):not(:empty)")];
      const right = Math.max(...cells.map(cell => cell.getBoundingClientRect().right));
      return [right, getComputedStyle(cells[0], "::before").content];
    }""")
    page.set_viewport_size({"width": 1280, "height": 800})
    assert widest < 390
    assert label.startswith('"')
