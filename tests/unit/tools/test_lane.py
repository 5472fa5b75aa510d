"""The page that says when each lane last passed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import lane

ROOT = Path(__file__).parents[3]
PASSED = "import sys; print('===== 3 passed, 1 skipped in 0.10s =====')"
FAILED = "import sys; print('===== 1 failed, 3 passed in 0.10s ====='); sys.exit(1)"
SKIPPED = "print('===== 18 skipped in 0.10s =====')"
BEFORE = "| lane | commit |\n|---|---|\n| soak | | | | |\n| bench | | | | |\n"


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    found = tmp_path / "lanes.md"
    found.write_text(BEFORE)
    monkeypatch.setattr(lane, "ROOT", tmp_path)
    monkeypatch.setattr(lane, "PAGE", found)
    monkeypatch.setattr(lane, "tested_commit", lambda: "0123abcde")
    monkeypatch.setenv("PUBLISH", "1")
    return found


def test_a_lane_that_passes_replaces_its_line(page: Path) -> None:
    assert lane.main("soak", [sys.executable, "-c", PASSED]) == 0
    header, rule, soak, bench = page.read_text().splitlines()
    assert (f"{header}\n{rule}", bench) == ("| lane | commit |\n|---|---|", "| bench | | | | |")
    assert re.fullmatch(r"\| soak \| 0123abcde \| \d{4}-\d\d-\d\d \| 0\.\d \| 3 passed, 1 skipped \|", soak)


def test_a_lane_says_how_much_of_it_was_run(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANE_NOTE", "2000 examples")
    assert lane.main("soak", [sys.executable, "-c", PASSED]) == 0
    assert "| 3 passed, 1 skipped, 2000 examples |\n" in page.read_text()


@pytest.mark.parametrize(("script", "code"), [(FAILED, 1), (SKIPPED, 0)])
def test_a_lane_that_fails_or_skips_all_is_not_noted(page: Path, script: str, code: int) -> None:
    assert lane.main("soak", [sys.executable, "-c", script]) == code
    assert page.read_text() == BEFORE


def test_a_lane_without_pytest_is_noted_without_a_result(page: Path) -> None:
    assert lane.main("bench", [sys.executable, "-c", "print('1,000 pools')"]) == 0
    assert re.search(r"\| bench \| 0123abcde \| \S+ \| 0\.\d \| \|\n", page.read_text())


def test_pytest_and_coverage_are_told_in_one_line() -> None:
    lines = ["collected 3 items", "=== 3 passed in 61.20s (0:01:01) ===", "TOTAL    9873   1071   2816    309  87.5%"]
    assert lane.closing(lines) == "3 passed, coverage 87.5%"


def test_every_lane_of_the_makefile_has_a_line_in_the_page() -> None:
    makefile, lines = (ROOT / "Makefile").read_text(), (ROOT / "docs" / "records" / "lanes.md").read_text()
    targets = re.findall(r"^([a-z-]+):.*\n(?:\t.*\n)*?\t.*\$\(LANE\) \$@", makefile, re.MULTILINE)
    assert targets
    assert sorted(["lane", *targets]) == sorted(re.findall(r"^\| ([a-z][a-z-]+) \|", lines, re.MULTILINE))
