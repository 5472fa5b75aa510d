"""A history of a simulated fleet, backtested, against what the core does on the same traffic."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from servingpool.decision.observation import Histogram, ReplicaMetrics, Unknown
from servingpool.recording.format import Chunk, Header, RecordingError
from servingpool_backtest.arrivals import Traffic
from servingpool_backtest.engine_fit import fit
from servingpool_backtest.intervals import gather
from servingpool_backtest.result import Backtest, Question
from servingpool_backtest.run import backtest
from servingpool_simulation.hardware import engine_profile
from servingpool_simulation.policies import Ours
from servingpool_simulation.run import Result, SimulationOptions, simulate
from servingpool_simulation.scrape import EPOCH, ScrapeOptions
from servingpool_simulation.traces import poisson

from .histories import POOL, SLO, recorded

UNREAD = Unknown("NaN")
PROFILE = engine_profile("a100-70b-tp4")
TRACE = poisson("steps", (2.0, 5.0, 7.0, 3.0, 1.0, 4.0), 1200.0, prompt=1100, output=200)
WARM_UP = 1500.0
"""Seconds: a quarter of the history, in whole bins."""


@cache
def history() -> tuple[Header, list[Chunk], Result]:
    return recorded(TRACE, PROFILE, 4)


@cache
def whole() -> Backtest:
    """All of it, replayed."""
    header, chunks, _ = history()
    return replayed(header, chunks)


def replayed(header: Header, chunks: list[Chunk]) -> Backtest:
    return backtest(header, chunks, Question(POOL, cold_start=100.0), processes=1)


def test_the_engine_is_found_in_the_counters() -> None:
    header, chunks, _ = history()
    found = fit(gather(chunks, SLO, header.begin))
    for decoding, prefill in ((1, 0), (10, 600), (30, 1200)):
        step = found.base + found.per_request * decoding + found.per_prefill_token * prefill
        table, kv = PROFILE.dense_table(), decoding * 1200
        true = table[decoding + prefill] + PROFILE.decode_base + PROFILE.decode_per_request * decoding
        true += PROFILE.decode_per_kv_token * kv + PROFILE.host_overhead
        true += (PROFILE.prefill_base + PROFILE.prefill_per_token * prefill) * (prefill > 0)
        assert step == pytest.approx(true, rel=0.1)
    assert found.error < 0.1


def test_requests_come_back_in_number_time_and_length() -> None:
    header, chunks, _ = history()
    intervals = gather(chunks, SLO, header.begin)
    found = Traffic.of(intervals, header.begin, header.end).drawn()
    assert len(found.at) == pytest.approx(len(TRACE), rel=0.01)
    edges = header.begin + 60.0 * np.arange(int(TRACE.duration // 60) + 1)
    true, _ = np.histogram(header.begin + TRACE.arrival, edges)
    seen, _ = np.histogram(found.at, edges)
    # What came before the first scrape and after the last one is not known.
    assert np.abs(np.cumsum(seen) - np.cumsum(true))[:-1].max() < 50
    assert found.prompt.mean() == pytest.approx(1100, rel=0.01)
    assert found.output.mean() == pytest.approx(200, rel=0.05)


def counting(at: float, count: float | None) -> ReplicaMetrics:
    """A replica's page; None where its counters were not read."""
    known = None if count is None else Histogram((2.0,), (count,), count, count)
    tokens = UNREAD if count is None else 100.0 * count
    return ReplicaMetrics(
        "vllm-0", at, running=1.0, waiting=0.0, generation_tokens=tokens, time_to_first_token=known or UNREAD
    )


@pytest.mark.parametrize("lacking", [(), (4,), (0, 1), (3, 4, 5)])
def test_a_figure_that_a_scrape_lacks_is_not_zero(lacking: tuple[int, ...]) -> None:
    """A counter at 0 would be a restart, after which all that the engine ever counted came at once."""
    counts = [None if each in lacking else 5000.0 + 10.0 * each for each in range(8)]
    samples = [counting(15.0 * each, count) for each, count in enumerate(counts)]
    found = gather([Chunk.of(0.0, 120.0, samples)], SLO, 0.0)
    before = sum(each in lacking for each in (0, 1))
    assert found.increase["ttft_count"].sum() == 70.0 - 10.0 * before
    assert found.increase["generated"].sum() == 7000.0 - 1000.0 * before


def test_a_backtest_comes_close_to_what_auto_does_on_the_same_traffic() -> None:
    header, _, was = history()
    found = whole()
    options = SimulationOptions(scrape=ScrapeOptions(interval=15.0), initial_replicas=4, history=WARM_UP)
    truth = simulate(TRACE, PROFILE, POOL, Ours(), options)
    assert found.scored_from == EPOCH + WARM_UP
    assert found.hours[1] == pytest.approx(truth.score.gpu_hours, rel=0.1)
    assert found.auto.attainment == pytest.approx(truth.score.attainment, abs=0.03)
    assert found.observed.attainment(header.begin) == pytest.approx(was.score.attainment, abs=0.01)
    assert found.hours[0] == pytest.approx(4 * 4 * (TRACE.duration - WARM_UP) / 3600.0, rel=0.02)


def test_a_gap_is_filled_and_said() -> None:
    header, chunks, _ = history()
    hole = (header.begin + 3000.0, header.begin + 3600.0)
    holed = [
        replace(
            chunk,
            # Other names behind the hole: the pods were replaced, and counters do not bridge it.
            scrapes=tuple(
                replace(
                    each,
                    pod=f"{each.pod}{suffix}",
                    at=each.at[part],
                    figures={name: column[part] for name, column in each.figures.items()},
                    histograms={
                        name: replace(one, counts=one.counts[part], total=one.total[part], count=one.count[part])
                        for name, one in each.histograms.items()
                    },
                )
                for each in chunk.scrapes
                for suffix, part in (("", each.at < hole[0]), ("-new", each.at >= hole[1]))
                if part.any()
            ),
        )
        for chunk in chunks
    ]
    found = replayed(header, holed)
    assert any(said.startswith("No pod was scraped for") for said in found.unknowns())
    assert not any(said.startswith("No pod was scraped") for said in whole().unknowns())
    ((begin, end),) = found.arrivals.holes
    assert (begin, end) == pytest.approx(hole, abs=30.0)
    inside = (found.arrivals.at >= begin) & (found.arrivals.at < end)
    before = (found.arrivals.at >= 2 * begin - end) & (found.arrivals.at < begin)
    assert inside.sum() == before.sum() > 0


def test_an_engine_that_hardly_worked_is_no_history() -> None:
    header, chunks, _ = recorded(poisson("idle", (0.001,), 1200.0, prompt=10, output=2), PROFILE, 1)
    with pytest.raises(RecordingError, match="intervals with step times"):
        replayed(header, chunks)


def test_what_the_history_does_not_tell_is_said() -> None:
    header, chunks, _ = history()
    found = list(backtest(header, chunks, Question(POOL), processes=1).unknowns())
    assert any("No replica was seen full" in said for said in found)
    assert any("spec.replicas" in said for said in found)
    assert not any("No start of a pod" in said for said in found)
