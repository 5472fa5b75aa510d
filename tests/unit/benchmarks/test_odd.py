"""The odd family: its cases, what it says of status against clients, and its page."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import odd
import odd_status
import odd_work
import orjson
import pytest
import store
from cases import CASES
from odd_cases import FAMILY, ODD, STEP_AT, OddCase
from odd_work import OddRun, OddStatic

from servingpool.decision.pool import Slo
from servingpool_simulation.policies import Ours
from servingpool_simulation.run import SimulationOptions, simulate
from servingpool_simulation.score import Outcomes
from servingpool_simulation.traces import Trace, poisson

SLO = Slo(2.0, 0.1)
BASE = ODD["step-admission"]


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    short = replace(BASE.case, slug="tiny", trace=tiny, max_replicas=12)
    monkeypatch.setitem(ODD, "tiny", replace(BASE, case=short, step_at=300.0))
    odd_work.trace_of.cache_clear()


def tiny(seed: int) -> Trace:
    return poisson("tiny", [1.0, 8.0], 300.0, prompt=500, output=100, seed=seed)


def outcomes(rows: list[tuple[float, float, float, bool]]) -> Outcomes:
    """(arrival, ttft, ended, met) each."""
    arrival, ttft, ended, met = (np.array(column) for column in zip(*rows, strict=True))
    nothing = np.zeros(len(rows), dtype=bool)
    return Outcomes(arrival, ttft, ttft, ended, nothing.astype(np.int64), nothing, nothing, nothing, met)


def test_a_request_is_settled_at_its_end_or_as_soon_as_its_ttft_bound_has_passed() -> None:
    clients = odd_status.Clients.of(
        outcomes(
            [
                (0.0, 1.0, 50.0, True),
                (0.0, 1.0, 60.0, False),  # its tokens came too slowly
                (10.0, 30.0, 90.0, False),  # late: known 2 s after its arrival
                (20.0, math.nan, math.nan, False),  # never got a token
                (30.0, 1.5, math.nan, False),  # still at it: open
            ]
        ),
        SLO,
    )
    assert clients.at.tolist() == [12.0, 22.0, 50.0, 60.0]
    shares = clients.share([11.0, 13.0, 55.0, 65.0], window=40.0)
    assert math.isnan(shares[0])
    assert shares[1:].tolist() == [0.0, 0.5, 0.5]


def test_the_longest_stretch_counts_neighbours_only() -> None:
    assert odd_status.longest([True, False, True, True, False]) == 2
    assert odd_status.longest([]) == 0


def test_what_the_pool_states_is_compared_with_what_clients_saw() -> None:
    case, trace = ODD["tiny"].case, tiny(0)
    watched = odd_status.Watched(Ours())
    result = simulate(trace, case.profile, case.pool(), watched, SimulationOptions(initial_replicas=3))
    assert len(watched.stated) == len(watched.met) == len(result.series.time) == 40
    rosy = odd_status.compare(result, [1.0] * 40, [True] * 40)
    assert rosy["gap_most"] >= rosy["gap_end"] == pytest.approx(1.0 - rosy["clients_hour"][-1])
    assert rosy["falsely_met"] >= 120  # requests queue for minutes before more replicas are there
    assert odd_status.compare(result, [0.9] * 40, [False] * 40)["falsely_met"] == 0
    assert odd_status.compare(result, [None] * 40, [False] * 40)["gap_mean"] is None
    worst = rosy["worst"]
    assert worst["at"] > 300
    assert worst["reason"] == result.series.reason[result.series.time.index(worst["at"])]


def test_the_first_order_is_timed_from_the_first_request_that_waits() -> None:
    case, trace = ODD["tiny"].case, tiny(0)
    watched = odd_status.Watched(Ours())
    result = simulate(trace, case.profile, case.pool(), watched, SimulationOptions(initial_replicas=3))
    series = result.series
    for index, at in enumerate(series.time):
        series.requested[index] = 3 if at < 400 else 5
    seconds = odd_status.first_order(result, 300.0)
    assert seconds is not None
    assert 405 - 300 - 30 < seconds < 405 - 300
    assert odd_status.first_order(result, 10_000.0) is None


def test_the_cases_are_beside_the_catalogue_and_leave_room_above_the_best_static_fleet() -> None:
    assert not ODD.keys() & CASES.keys()
    assert len({case.case.slug for case in FAMILY}) == len(FAMILY)
    for odd_case in FAMILY:
        trace = odd_case.case.trace(0)
        assert trace.duration >= 2 * STEP_AT
        assert odd_case.case.max_replicas >= 3
    recorded = ODD["admitted-8"].case.trace
    assert (recorded(0).arrival == recorded(1).arrival).all()
    assert 11_500 < ODD["admitted-long"].case.trace(0).prompt.mean() < 12_500


def test_a_static_fleet_does_not_depend_on_the_core_and_a_run_does(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [OddStatic("tiny", 0).kept(), OddRun("tiny", 0).kept()]
    meaning = store.meaning
    monkeypatch.setattr(store, "meaning", lambda pattern: "changed" if "decision" in pattern else meaning(pattern))
    after = [OddStatic("tiny", 0).kept(), OddRun("tiny", 0).kept()]
    assert before[0] == after[0]
    assert before[1] != after[1]
    assert OddRun("tiny", 1).kept() != OddRun("tiny", 0).kept()


def test_the_family_is_computed_once_and_written_as_a_page(tmp_path: Path) -> None:
    def found(case: OddCase) -> list[odd.Found]:
        return odd.computed([case], (0, 1), jobs=1)

    # In this process: a worker would not know the tiny case.
    for piece in (OddStatic("tiny", 0), OddStatic("tiny", 1), OddRun("tiny", 0), OddRun("tiny", 1)):
        piece.done()
    (tiny_case,) = found(ODD["tiny"])
    assert tiny_case.best[0] in (6, 7, 8)
    assert len(tiny_case.ratios) == 2
    written = odd.page([tiny_case])
    assert "| tiny | step up, cap 8, every step 60 ms, TTFT from admission; step up |" in written
    assert f"`tiny`: at {tiny_case.worst['at']:.0f} s" in written
    (tmp_path / "figures.json").write_bytes(orjson.dumps(tiny_case.figures()))


def test_what_misses_its_bar_is_marked() -> None:
    assert odd._marked(0.93, odd._percent, least=0.94) == "93.0%!"
    assert odd._marked(0.94, odd._percent, least=0.94) == "94.0%"
    assert odd._marked(-0.05, "{:+.2f}".format, most=0.03) == "-0.05!"
    assert odd._marked(math.nan, "{:.2f}".format, most=1.4) == "nan!"
