"""Figures in texts are those of the JSON that `make evidence` writes, and the front page's are not old."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import evidence
import pytest
import stated
import store
from claims import CLAIMS
from stated import FIGURES, PAGES, Claim, Kept

PAGE = """\
# Cases

| case | attained |
| --- | ---: |
| ramp | 98.9%, 99.3% |
| code | 94.7%!, 95.1% |

## Goals

- Dollars: 1.07, goal 1.10: reached.
- no figure
"""
KEPT = Kept("abc123def", "2026-11-27", 8.2, "hash", figures=stated.tables(PAGE))
RAMP = Claim(
    "text.md",
    "the ramp attains {}% to {}%.",
    "cases",
    lambda kept: kept.row("Cases", "ramp")[0].replace("%", "").split(", "),
)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(stated, "ROOT", tmp_path)
    monkeypatch.setattr(stated, "PAGES", tmp_path)
    monkeypatch.setattr(stated, "FIGURES", tmp_path / "figures")
    KEPT.save("cases")
    (tmp_path / "cases.md").write_text(stated.stamped(PAGE, KEPT))
    return tmp_path


def test_every_text_states_the_figures_of_its_json() -> None:
    assert stated.compared(CLAIMS) == []


def test_every_page_is_as_its_run_left_it() -> None:
    names = {name for part in evidence.PARTS for name in part.kept}
    assert {file.stem for file in FIGURES.glob("*.json")} == names
    # A page of rivals that really ran has its record beside it; tests/rivals compares them.
    assert {file.stem for file in PAGES.glob("*.md") if not file.with_suffix(".json").exists()} < names
    assert stated.edited(names) == []


def test_the_front_page_is_at_most_30_commits_of_the_core_old() -> None:
    if evidence.commits_since(Kept.load("guard").core) is None:
        pytest.skip("this clone's history does not reach the core commit of the front page's figures")
    assert evidence.too_old() == []


def test_a_figure_is_found_across_lines_and_set_right(elsewhere: Path) -> None:
    text = elsewhere / "text.md"
    text.write_text("Here the ramp\nattains 98.9% to\n99.9%. More.\n")
    told = ["text.md: the ramp attains {}% to {}%.: 99.9 should be 99.3"]
    assert stated.compared([RAMP]) == told
    assert stated.compared([RAMP], write=True) == told
    assert text.read_text() == "Here the ramp\nattains 98.9% to\n99.3%. More.\n"
    assert stated.compared([RAMP]) == []


def test_a_sentence_that_was_rewritten_is_not_taken_for_one_that_agrees(elsewhere: Path) -> None:
    (elsewhere / "text.md").write_text("Of the ramp 98.9% attain.\n")
    assert stated.compared([RAMP]) == [
        "text.md: no such place: the ramp attains {}% to {}%.: change benchmarks/claims.py with the text"
    ]


@pytest.mark.parametrize("edit", [("99.3%", "99.4%"), ("abc123def", "fedcba987"), ("1.07", "1.06")])
def test_a_page_that_was_edited_by_hand_is_told(elsewhere: Path, edit: tuple[str, str]) -> None:
    assert stated.edited({"cases"}) == []
    page = elsewhere / "cases.md"
    page.write_text(page.read_text().replace(*edit))
    assert len(stated.edited({"cases"})) == 1


def test_a_page_has_one_stamp_and_says_what_became_worse() -> None:
    now = stated.tables(PAGE.replace("99.3%", "93.3%!").replace("reached", "**not reached**"))
    assert stated.worse(now, KEPT.figures) == ["ramp", "Dollars"]
    assert stated.worse(KEPT.figures, now) == []
    page = stated.stamped(stated.stamped(PAGE, KEPT), replace(KEPT, worse=["ramp"], before="123456789"))
    assert page.count("These figures were computed") == 1
    assert "\nMore misses than with core 123456789: ramp.\n" in page
    assert stated.stamped(page, KEPT) == stated.stamped(PAGE, KEPT)


@pytest.fixture
def part(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> evidence.Part:
    """One whose script writes PAGE, or what stands in its place in `out`."""
    script = elsewhere / "benchmarks" / "fake.py"
    script.parent.mkdir()
    script.write_text("import pathlib, sys\npathlib.Path(sys.argv[1]).write_text(pathlib.Path('new.md').read_text())\n")
    (elsewhere / "new.md").write_text(PAGE)
    for name, value in {"ROOT": elsewhere, "PAGES": elsewhere, "FIGURES": elsewhere / "figures"}.items():
        monkeypatch.setattr(evidence, name, value)
    monkeypatch.setattr(evidence, "QUICK", elsewhere / "quick")
    monkeypatch.setattr(store, "ROOT", elsewhere)
    monkeypatch.setattr(store, "core_commit", lambda: "222222222")
    return evidence.Part("cases", ("fake.py cases.md",), ("cases",), 1, "fake.py {out}")


def test_a_part_runs_again_when_its_sources_change(part: evidence.Part, elsewhere: Path) -> None:
    (elsewhere / "new.md").write_text(PAGE.replace("99.3%", "93.3%!"))
    assert not part.known()
    evidence.remake(part, 1)
    kept = Kept.load("cases")
    assert (kept.core, kept.worse, kept.before) == ("222222222", ["ramp"], "abc123def")
    assert part.known()
    assert stated.edited({"cases"}) == []
    (elsewhere / "new.md").unlink()
    evidence.remake(part, 1)
    assert Kept.load("cases") == kept, "it was not run"
    script = elsewhere / "benchmarks" / "fake.py"
    script.write_text(f'"""Says."""\n# words\n{script.read_text()}')
    assert part.known()
    script.write_text(f"{script.read_text()}\nassert True\n")
    assert not part.known()


def test_a_tenth_fails_on_a_row_that_misses_more_or_moved_for_no_reason(part: evidence.Part, elsewhere: Path) -> None:
    def told(before: str, after: str) -> int:
        (elsewhere / "new.md").write_text(PAGE.replace(before, after))
        return len(list(evidence.tenth(part, 1)))

    assert told("99.3%", "99.2%") == 0
    assert told("99.3%", "93.3%!") == 1
    (elsewhere / "new.md").write_text(PAGE)
    evidence.remake(part, 1)
    assert told("", "") == 0
    assert told("99.3%", "99.2%") == 1


def test_the_age_of_figures_is_counted_in_commits_of_the_core(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    (origin / evidence.CORE).mkdir(parents=True)

    def git(*words: str) -> str:
        names = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        return subprocess.run(("git", *names, *words), cwd=origin, capture_output=True, text=True, check=True).stdout

    git("init", "--quiet")
    commits = []
    for number, name in enumerate(("first", "words", "second", "third")):
        file = origin / ("README.md" if name == "words" else f"{evidence.CORE}/core.py")
        file.write_text(f"{number}\n")
        git("add", "--all")
        git("-c", "commit.gpgsign=false", "commit", "--quiet", "--message", name)
        commits.append(git("rev-parse", "--short=9", "HEAD").strip())
    shallow = tmp_path / "shallow"
    git("clone", "--quiet", "--depth", "2", f"file://{origin}", str(shallow))
    monkeypatch.setattr(evidence, "ROOT", origin)
    assert [evidence.commits_since(commit) for commit in commits] == [2, 2, 1, 0]
    monkeypatch.setattr(evidence, "ROOT", shallow)
    assert [evidence.commits_since(commit) for commit in commits] == [None, None, 1, 0]
    monkeypatch.setattr(evidence, "OLDEST", 0)
    assert evidence.commits_since(commits[0]) == 1, "at least; that is enough to refuse"
