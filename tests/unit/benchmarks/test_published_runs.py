"""Published runs, replayed: the page has what the simulator gives, and says plainly where ours does worse."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import published_runs as published
import pytest
from published_runs import FIXED, OURS, PAGE, RULE, TAUGHT, Figures, Row

from servingpool_simulation.hardware import EngineProfile
from servingpool_simulation.score import Outcomes

RUNS: dict[str, Any] = {run["name"]: run for run in published.data()["runs"]}
GOOD = Figures(attained=0.97, p50=0.5, p99=2.0, least=1, mean=2.0, most=3, hours=1.0)


@pytest.mark.parametrize(("run", "fleet"), [("8192/256", RULE), ("8192/256", OURS), ("256/4096", OURS)])
def test_the_page_has_what_the_simulator_gives(run: str, fleet: str) -> None:
    line = f"| {' | '.join(published.row(RUNS[run], fleet).cells())} |"
    assert line in PAGE.read_text().splitlines()


def test_a_slower_engine_shows_in_the_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = published.play(RUNS["2048/2048"], FIXED, 0)

    def slow(setup: published.Setup) -> EngineProfile:
        return replace(published.qwen3_32b_tp2(), kv_tokens=setup["kv_tokens"]).scaled(2.0)

    monkeypatch.setattr(published, "engine", slow)
    assert published.play(RUNS["2048/2048"], FIXED, 0).p50 > 2.0 * usual.p50


def test_the_loads_are_those_published() -> None:
    poisson = {name: published.load(run, run, 0) for name, run in RUNS.items() if name != "ramp"}
    assert {name: len(trace) for name, trace in poisson.items()} == {
        "8192/256": 2316,
        "2048/2048": 1248,
        "256/4096": 624,
    }
    for name, trace in poisson.items():
        assert {f"{i}/{o}" for i, o in zip(trace.prompt, trace.output, strict=True)} == {name}
        assert 0.0 <= trace.arrival[0] < trace.arrival[-1] < 1200.0


def test_the_burn_in_is_before_the_run_and_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Any, ...]] = []
    monkeypatch.setattr(published, "simulate", lambda *words: words)
    monkeypatch.setattr(published, "figures", lambda *words: seen.append(words))
    published.play(RUNS["ramp"], TAUGHT, 0)
    ((trace, *_), begin, load_ends) = seen[0]
    run = published.load(RUNS["ramp"], RUNS["ramp"], 0)
    assert begin == 1140.0 + published.DRAIN
    assert load_ends == begin + 2430.0
    assert trace.arrival[trace.arrival >= begin] == pytest.approx(begin + run.arrival)


def test_replicas_count_during_the_load_and_their_hours_for_as_long_after_it_for_every_fleet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(published, "DRAIN", 30.0)

    class Series:
        time = (0.0, 15.0, 30.0, 45.0, 60.0, 75.0)
        requested = (5, 1, 3, 2, 1, 4)

    class Result:
        series = Series()
        outcomes = Outcomes(
            arrival=np.array([1.0, 16.0, 20.0]),
            ttft=np.array([9.0, 1.0, np.nan]),
            tpot=np.zeros(3),
            ended=np.zeros(3),
            tokens=np.zeros(3, np.int64),
            rejected=np.zeros(3, bool),
            late=np.zeros(3, bool),
            slow=np.zeros(3, bool),
            met=np.array([False, True, False]),
        )

    found = published.figures(Result(), 15.0, 45.0)  # type: ignore[arg-type]
    assert found == Figures(attained=0.5, p50=1.0, p99=1.0, least=1, mean=2.0, most=3, hours=1.75 * 60.0 / 3600)


@pytest.mark.parametrize(
    ("ours", "rule", "told"),
    [
        (GOOD, GOOD, []),
        (replace(GOOD, hours=0.8), replace(GOOD, attained=0.9), []),
        (replace(GOOD, attained=0.96), GOOD, ["1.0 points less attained"]),
        (replace(GOOD, hours=1.5), GOOD, ["50% more replica-hours"]),
        (replace(GOOD, attained=0.9), replace(GOOD, attained=0.8), ["Both miss the SLO"]),
        (replace(GOOD, attained=0.9), GOOD, ["7.0 points less attained", "the rule holds it"]),
    ],
)
def test_where_ours_does_worse_is_said(ours: Figures, rule: Figures, told: list[str]) -> None:
    rows = [Row(RUNS["256/4096"], fleet, [figures]) for fleet, figures in ((OURS, ours), (RULE, rule), (FIXED, GOOD))]
    (line,) = published.short(rows)
    assert line.count("**") == 2 * len(told)
    assert all(each in line for each in told)


def test_a_miss_is_marked_and_a_published_figure_stands_beside() -> None:
    cells = Row(RUNS["ramp"], RULE, [replace(GOOD, attained=0.93), replace(GOOD, attained=0.94)]).cells()
    assert cells[:3] == [
        "ramp: llm-d slo-aware",
        "95.8%; 85.6% with an untrained predictor",
        "93.5%! (93.0% to 94.0%)",
    ]
    assert len(cells) == len(published.HEADER)
    assert not any("!" in cell for cell in Row(RUNS["ramp"], OURS, [GOOD]).cells())


def test_every_run_names_where_it_was_published() -> None:
    given, page = published.data(), PAGE.read_text()
    assert {source for run in given["runs"] for source in run["sources"]} == given["sources"].keys()
    for source in given["sources"].values():
        assert source["url"].startswith("https://")
        assert source["licence"]
        assert source["url"] in page
    for one in given["differences"]:
        assert f"- **{one['what']}.**" in page
