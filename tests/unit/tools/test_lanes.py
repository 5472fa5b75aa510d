"""All lanes, one after another."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import lane
import lanes

ROOT = Path(__file__).parents[3]
PAGE = "| lane | commit |\n|---|---|\n| soak | 0123abcde | | | |\n| e2e | | | | |\n| test | old | | | |\n| coverage | old | | | |\n"


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A page, and a `make` that notes `test`, fails `coverage` and skips every other lane's tests."""
    found = tmp_path / "lanes.md"
    found.write_text(PAGE)
    make = tmp_path / "make"
    make.write_text(
        f"#!{sys.executable}\n"
        "import pathlib, sys\n"
        f"page = pathlib.Path({str(found)!r})\n"
        "if sys.argv[1] == 'test': page.write_text(page.read_text().replace('test | old', 'test | 0123abcde'))\n"
        "sys.exit(sys.argv[1] == 'coverage')\n"
    )
    make.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(lane, "ROOT", tmp_path)
    monkeypatch.setattr(lane, "PAGE", found)
    monkeypatch.setattr(lane, "tested_commit", lambda: "0123abcde")
    return found


def test_every_lane_of_the_page_has_its_turn() -> None:
    rows = re.findall(r"^\| ([a-z][a-z0-9-]+) \|", (ROOT / "docs" / "records" / "lanes.md").read_text(), re.MULTILINE)
    assert sorted(["lane", *lanes.ORDER]) == sorted(rows)


def test_a_night_says_what_passed_failed_and_cannot_run_here(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "ORDER", ("soak", "coverage", "test", "e2e", "test-ollama"))
    assert lanes.main() == 1
    table, night = page.read_text().split("\n\n")
    assert table == PAGE.replace("test | old", "test | 0123abcde").rstrip()
    assert re.fullmatch(
        r"`make lanes` of \d{4}-\d\d-\d\d on 0123abcde, 0\.0 h\. Passed: soak, test; failed: coverage; "
        r"not on this machine: e2e \(no kind\), test-ollama \(all its tests were skipped\)\.\n",
        night,
    )
    monkeypatch.setattr(lanes, "ORDER", ("soak", "test"))
    assert lanes.main() == 0
    assert page.read_text().count("`make lanes`") == 1


def test_no_lane_begins_when_the_night_is_over(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "HOURS", -1.0)
    assert lanes.main() == 0
    assert f"No time left: {', '.join(lanes.ORDER)}.\n" in page.read_text()


def test_a_tree_with_changes_is_refused(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "tested_commit", lambda: "0123abcde-dirty")
    with pytest.raises(SystemExit, match="Commit first"):
        lanes.main()
    assert page.read_text() == PAGE
