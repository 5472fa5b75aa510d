"""Published runs, replayed: the page has what the simulator gives, and says plainly where ours does worse."""

from __future__ import annotations

from typing import Any

import published_runs as published
import pytest
from published_runs import OURS, PAGE, RULE

RUNS: dict[str, Any] = {run["name"]: run for run in published.data()["runs"]}


@pytest.mark.parametrize(("run", "fleet"), [("8192/256", RULE), ("8192/256", OURS), ("256/4096", OURS)])
def test_the_page_has_what_the_simulator_gives(run: str, fleet: str) -> None:
    line = f"| {' | '.join(published.row(RUNS[run], fleet).cells())} |"
    assert line in PAGE.read_text().splitlines()


def test_every_run_names_where_it_was_published() -> None:
    given, page = published.data(), PAGE.read_text()
    assert {source for run in given["runs"] for source in run["sources"]} == given["sources"].keys()
    for source in given["sources"].values():
        assert source["url"].startswith("https://")
        assert source["licence"]
        assert source["url"] in page
    for one in given["differences"]:
        assert f"- **{one['what']}.**" in page
