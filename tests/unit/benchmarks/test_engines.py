"""The benchmark of the engines' pages: what is run, what is compared, and what is marked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import engines
import engines_work
import pytest
from cases import CASES
from engines import GOALS, Found
from engines_work import PAGES, page_run
from odd_cases import FOUND_AT, ODD
from results import Run

from servingpool_simulation.conduct import CONDUCTS, SGLANG
from servingpool_simulation.traces import Trace, poisson


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(CASES, "tiny", replace(CASES["conv"], slug="tiny", trace=tiny, max_replicas=4))
    engines_work.trace_of.cache_clear()


def tiny(seed: int) -> Trace:
    return poisson("tiny", [1.0, 4.0], 300.0, prompt=500, output=100, seed=seed)


def run(attainment: float, settled: float, cost: float) -> Run:
    return Run(0.95, {"attainment": attainment, "settled_attainment": settled, "gpu_hours": cost})


def found(slug: str, engine: str, runs: list[Run], usual: float = 10.0) -> Found:
    return Found(slug, engine, runs, [run(0.99, 0.99, usual)] * len(runs))


def test_every_goal_is_of_an_engine_with_a_page_and_every_case_is_there() -> None:
    assert GOALS.keys() < CONDUCTS.keys()
    assert [slug for slug in PAGES if slug in ODD] == ["capped-8"]
    assert {work.slug for work in engines_work.statics()} == {slug for slug in PAGES if slug in CASES}


def test_a_run_has_the_engines_page_and_begins_with_the_best_static_fleet() -> None:
    piece = page_run("tiny", "sglang", 2, seed=0)
    assert piece.profile == replace(CASES["tiny"].profile, conduct=SGLANG)
    assert piece.initial == 2
    assert page_run("capped-8", "sglang", None, seed=0).initial == FOUND_AT
    score = piece.done()["score"]
    assert score["requests"] == len(tiny(0))
    assert score["attainment"] > 0.9
    assert piece.kept() != page_run("tiny", "vllm", 2, seed=0).kept()
    assert piece.kept().exists()


def test_gpu_hours_are_compared_seed_by_seed() -> None:
    case = Found("conv", "tgi", [run(0.99, 0.99, 12.0), run(0.94, 0.99, 30.0)], [run(1, 1, 10.0), run(1, 1, 20.0)])
    assert case.multiple == pytest.approx((1.2 + 1.5) / 2)
    assert (case.attained, case.held) == ([0.99, 0.94], 1)
    assert found("capped-8", "tgi", [run(0.94, 0.99, 12.0)]).attained == [0.99]


def test_a_multiple_over_the_goal_and_a_missed_slo_are_marked() -> None:
    cases = [
        found("conv", "sglang", [run(0.99, 0.99, 10.0)]),
        found("code", "sglang", [run(0.93, 0.99, 10.2)]),
        found("conv", "tensorrt-llm", [run(0.99, 0.99, 11.0)]),
        found("code", "tensorrt-llm", [run(0.96, 0.99, 12.4)]),
    ]
    _, (sglang, tensorrt) = engines.summary(cases)
    assert list(sglang) == ["sglang", "1.02", "1.01", "1.02 (code)", "1 of 2!", "93.0%"]
    assert list(tensorrt) == ["tensorrt-llm", "1.15", "1.17!", "1.24 (code)", "2 of 2", "96.0%"]
    written = engines.page(cases)
    assert "| sglang | 1.02 | 1.01 | 1.02 (code) | 1 of 2! | 93.0% |" in written
    assert "| sglang | code | 93.0% | 0 of 1! | 10.2 | 1.02 |" in written
