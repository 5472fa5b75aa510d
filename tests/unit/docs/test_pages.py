"""The documentation's pages as they are committed, and how blocks are taken from them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from servingpool.catalogue.condition_types import ConditionType
from servingpool.catalogue.conditions import Reason

from ...doc_pages import (  # noqa: TID252, tests are no package of an installed name
    DOCS,
    Command,
    File,
    blocks,
    commands,
    steps,
    substituted,
)

ROOT = DOCS.parent
SITE: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
LINK = re.compile(r"\]\(([^)\s]+)\)")
LINKED_ONLY = {"benchmarks", "decisions", "design.md", "records"}
"""What others link to, for those who work on it: what was measured, and why things are as they are."""
STAMP = ".venv/.installed"
"""What makes `.venv/bin/servingpool`, and what most targets of the Makefile need."""
WALKED = ("start/first-pool.md", "how-to/install.md", "how-to/upgrade.md")

PAGE = """\
Save this:

```yaml
# pool.yaml
kind: ServingPool
```

<!-- e2e: skip, there is a cluster -->

```console
$ kind create cluster
```

1. In a list:

    ```console
    $ kubectl apply -f pool.yaml
    servingpool.servingpool.dev/chat created
    $ helm install x \\
        --wait
    ```

```text
$ not a command
```
"""


def test_steps_are_files_and_commands_in_order() -> None:
    assert steps(PAGE) == [
        File("pool.yaml", "# pool.yaml\nkind: ServingPool\n"),
        Command("kubectl apply -f pool.yaml"),
        Command("helm install x \\\n    --wait"),
    ]


def test_a_mark_skips_the_block_behind_it_alone() -> None:
    assert [(block.kind, block.skipped) for block in blocks(PAGE)] == [
        ("yaml", False),
        ("console", True),
        ("console", False),
        ("text", False),
    ]


def test_the_longest_name_is_substituted_first() -> None:
    names = {"servingpool": "x", "servingpool-lab:0.1.0": "lab:e2e"}
    assert substituted("load servingpool-lab:0.1.0", names) == "load lab:e2e"


@pytest.mark.parametrize("page", WALKED)
def test_a_page_that_is_walked_has_commands(page: str) -> None:
    assert [step for step in steps((DOCS / page).read_text()) if isinstance(step, Command)]


PAGES = sorted(DOCS.rglob("*.md"))
SAID = {page: page.read_text() for page in PAGES}


@pytest.mark.parametrize("page", ["start/demo.md", *WALKED])
def test_a_page_calls_a_program_of_ours_only_after_a_step_that_makes_it(page: str) -> None:
    makes = {STAMP, *re.findall(r"^([\w-]+): \$\(STAMP\)", (ROOT / "Makefile").read_text(), re.MULTILINE)}
    made = False
    for block in blocks(SAID[DOCS / page]):
        for command in commands(block.text) if block.kind == "console" else ():
            program, *words = command.split()
            made |= program == "make" and not makes.isdisjoint(words)
            assert made or "servingpool" not in program


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_a_terminal_has_no_text_that_is_neither_command_nor_output(page: Path) -> None:
    """The copy button leaves out what follows `<<EOF`: such a block is `sh`, without prompts."""
    consoles = [block.text for block in blocks(SAID[page]) if block.kind == "console"]
    assert [command for text in consoles for command in commands(text) if "<<" in command] == []


def test_the_health_check_for_argo_cd_names_conditions_and_reasons_that_exist() -> None:
    [check] = [
        block.text for block in blocks(SAID[DOCS / "how-to/gitops.md"]) if "health.servingpool.dev" in block.text
    ]
    assert set(re.findall(r'type == "(\w+)"', check)) <= {each.value for each in ConditionType}
    assert set(re.findall(r'reason == "(\w+)"', check)) <= {each.value for each in Reason}


def navigated(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        [value] = entry.values()
        if isinstance(value, str):
            yield value
        else:
            yield from navigated(value)


def test_the_navigation_has_at_most_28_pages_and_all_exist() -> None:
    """The generator does not notice an entry without a file."""
    pages = list(navigated(SITE["nav"]))
    assert len(pages) <= 28
    assert [page for page in pages if not (DOCS / page).is_file()] == []
    written = {path.relative_to(DOCS) for path in DOCS.rglob("*.md")}
    assert {str(path) for path in written if path.parts[0] not in LINKED_ONLY} == set(pages)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 90


READMES = [ROOT / "README.md", ROOT / "charts" / "servingpool-operator" / "README.md"]


def anchors(page: Path) -> set[str]:
    """What the generator and the usual code hosts make of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", READMES, ids=lambda path: str(path.relative_to(ROOT)))
def test_anchors_that_a_readme_names_exist(page: Path) -> None:
    """The generator reads the pages of docs/ alone."""
    links = [link.split("#") for link in LINK.findall(page.read_text()) if "#" in link and "://" not in link]
    assert [link for link in links if link[1] not in anchors((page.parent / link[0]).resolve())] == []


@pytest.mark.parametrize("page", [*PAGES, *READMES], ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_and_none_leaves_the_site(page: Path) -> None:
    """The generator checks pages and anchors, but no picture, and no link that leaves docs/."""
    links = [link.partition("#")[0] for link in LINK.findall(page.read_text()) if "://" not in link]
    found = [(link, (page.parent / link).resolve()) for link in links if link]
    assert [link for link, path in found if not path.exists()] == []
    if DOCS in page.parents:
        assert [link for link, path in found if DOCS not in path.parents] == []


@pytest.mark.parametrize(
    ("page", "least"),
    [
        ("docs/records/fleets.md", 30),
        ("docs/records/cases.md", 30),
        ("docs/records/gates.md", 50),
        ("tests/README.md", 50),
    ],
)
def test_every_test_that_stands_behind_a_row_exists(page: str, least: int) -> None:
    rows = re.findall(r"`((?:unit|integration|e2e|chart)/[\w/]+\.py)(?:::(\w+))?`", (ROOT / page).read_text())
    assert len(rows) > least
    tests = Path(__file__).parents[2]
    missing = [f"{path}::{name}" for path, name in rows if name and f"def {name}(" not in (tests / path).read_text()]
    assert missing == []
    assert [path for path, _ in rows if not (tests / path).is_file()] == []


ROOMS = ["decision", "decision/observe", "decision/learn", "decision/need", "gpubudget", "status", "loop", "reconcile"]
ROOMS += [f"reconcile/{room}" for room in ("collect", "plan", "keep")]


@pytest.mark.parametrize("package", ROOMS)
def test_the_map_of_a_package_names_each_of_its_modules(package: str) -> None:
    folder = ROOT / "operator/servingpool" / package
    named = set(re.findall(r"`(\w+)`", (folder / "__init__.py").read_text()))
    rooms = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert rooms - {"__init__"} - named == set()
