from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from servingpool_simulation.families.arrivals import arrivals, wandering
from servingpool_simulation.families.clients import clients_mix
from servingpool_simulation.families.correlated import correlated_lengths
from servingpool_simulation.families.held_out import held_out
from servingpool_simulation.families.large import conv_hours
from servingpool_simulation.families.lengths import LogNormal, independent
from servingpool_simulation.families.long_prompts import Tail, long_prompts, tailed
from servingpool_simulation.families.on_off import on_off
from servingpool_simulation.families.reasoning import reasoning
from servingpool_simulation.families.regimes import correlated_pools, regime_rates, regimes
from servingpool_simulation.families.renewal import renewal
from servingpool_simulation.families.resampled import code_day, resampled
from servingpool_simulation.families.stops import stops
from servingpool_simulation.traces import (
    DAY,
    Trace,
    azure2023_code,
    azure2023_conv,
    azure2024_conv_curve,
    poisson,
)

PROMPT = LogNormal(median=500.0, spread=1.0, least=10, most=8_000)
OUTPUT = LogNormal(median=100.0, spread=0.5, least=1, most=1_000)
PLAIN = independent(PROMPT, OUTPUT)

EVERY: dict[str, Callable[[int], Trace]] = {
    "renewal": lambda seed: renewal(5.0, 4.0, PLAIN, drift=0.3, duration=1_200.0, seed=seed),
    "regimes": lambda seed: regimes((1.0, 5.0, 20.0), 120.0, PLAIN, duration=1_200.0, seed=seed),
    "pool A": lambda seed: correlated_pools((1.0, 5.0), 120.0, PLAIN, duration=1_200.0, seed=seed)[0],
    "clients": lambda seed: clients_mix(20, 5.0, PROMPT, OUTPUT, duration=3_600.0, seed=seed),
    "on-off": lambda seed: on_off(10.0, 30.0, 60.0, PLAIN, duration=1_200.0, seed=seed),
    "long prompts": lambda seed: long_prompts(5.0, PROMPT, OUTPUT, tail=Tail(0.1, 2_000.0), duration=1_200.0, seed=seed),
    "clumps": lambda seed: correlated_lengths(5.0, PROMPT, OUTPUT, duration=1_200.0, seed=seed),
    "reasoning": lambda seed: reasoning(1.0, duration=1_200.0, seed=seed),
    "code-day": lambda seed: code_day(1, scale=0.2, seed=seed),
    "resampled": lambda seed: resampled(azure2023_conv(), minutes=20, block=5, seed=seed),
    "stops": lambda seed: stops(renewal(5.0, 1.0, PLAIN, duration=1_200.0, seed=seed), 600.0, 300.0),
    "conv hours": lambda seed: conv_hours(0.1, seed=seed),
    "held out": lambda seed: held_out(6.0, duration=1_200.0, seed=seed),
}  # fmt: skip


@pytest.mark.parametrize("name", EVERY)
def test_a_seed_gives_one_trace_and_another_seed_another(name: str) -> None:
    first, again, other = EVERY[name](3), EVERY[name](3), EVERY[name](4)
    assert first.arrival.tolist() == again.arrival.tolist()
    assert first.prompt.tolist() == again.prompt.tolist()
    assert first.output.tolist() == again.output.tolist()
    assert first.arrival.tolist() != other.arrival.tolist()


@pytest.mark.parametrize("name", EVERY)
def test_every_trace_is_one_that_can_be_served(name: str) -> None:
    trace = EVERY[name](0)
    assert len(trace) > 100
    assert len(trace.arrival) == len(trace.prompt) == len(trace.output)
    assert (np.diff(trace.arrival) >= 0).all()
    assert trace.arrival[0] >= 0
    assert trace.arrival[-1] <= trace.duration
    assert trace.prompt.dtype == trace.output.dtype == np.int64
    assert min(trace.prompt.min(), trace.output.min()) >= 1
    assert trace.prompt.max() + trace.output.max() <= 131_072


def by_minute(trace: Trace) -> np.ndarray:
    return np.histogram(trace.arrival, bins=int(trace.duration // 60), range=(0, trace.duration // 60 * 60))[0]


@pytest.mark.parametrize("cv", [0.3, 1.0, 3.0, 10.0])
def test_gaps_have_the_mean_and_the_burstiness_asked_for(cv: float) -> None:
    at = arrivals(np.random.default_rng(1), np.full(40_000, 5.0), cv)
    gaps = np.diff(at)
    # 200,000 gaps: the mean's standard error is cv / sqrt(200,000) = 0.2% of a gap for each unit of CV.
    assert gaps.mean() == pytest.approx(0.2, rel=0.03)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05)


def test_arrivals_follow_the_curve_and_never_fall_where_it_is_zero() -> None:
    rates = np.repeat([0.0, 20.0, 0.0, 5.0, 0.0], 1_000)
    at = arrivals(np.random.default_rng(0), rates, 2.0)
    counts = np.histogram(at, bins=5, range=(0, 5_000))[0]
    assert counts[[0, 2, 4]].tolist() == [0, 0, 0]
    # The standard deviation of a count is CV * sqrt(n): 2 * 141 of 20,000 and 2 * 71 of 5,000.
    assert counts[1] == pytest.approx(20_000, abs=3 * 283)
    assert counts[3] == pytest.approx(5_000, abs=3 * 142)
    assert arrivals(np.random.default_rng(0), np.zeros(10)).size == 0


def test_a_wandering_rate_has_a_mean_of_one_and_its_memory() -> None:
    factor = wandering(np.random.default_rng(2), 2_000_000.0, 0.3, 500.0)
    assert factor.mean() == pytest.approx(1.0, abs=0.02)
    deviation = np.log(factor)
    assert deviation.std() == pytest.approx(0.3, rel=0.05)
    assert np.corrcoef(deviation[:-500], deviation[500:])[0, 1] == pytest.approx(np.exp(-1), abs=0.05)


def test_lengths_have_their_median_and_their_bounds() -> None:
    drawn = LogNormal(1_000.0, 1.0, 100, 5_000).draw(np.random.default_rng(0), 100_000)
    assert np.median(drawn) == pytest.approx(1_000, rel=0.02)
    assert (drawn.min(), drawn.max()) == (100, 5_000)
    # 16% of a normal lies above one standard deviation: 1,000 e = 2,718 tokens.
    assert (drawn > 2_718).mean() == pytest.approx(0.159, abs=0.005)
    with pytest.raises(ValueError, match="need 1 <= least <= median"):
        LogNormal(50.0, 1.0, 100, 5_000)


def test_regimes_keep_to_their_levels_and_stay_as_long_as_asked() -> None:
    rates = regime_rates((1.0, 5.0, 20.0), 300.0, 300_000.0, np.random.default_rng(0))
    assert set(rates.tolist()) == {1.0, 5.0, 20.0}
    jumps = (np.diff(rates) != 0).sum()
    assert 300_000 / jumps == pytest.approx(300, rel=0.1)  # about 1,000 exponential dwells: 3% standard error
    assert [(rates == level).mean() for level in (1.0, 5.0, 20.0)] == pytest.approx([1 / 3] * 3, abs=0.05)
    with pytest.raises(ValueError, match="two levels"):
        regime_rates((1.0,), 300.0, 600.0, np.random.default_rng(0))


def test_correlated_pools_share_the_rate_and_nothing_else() -> None:
    first, second = correlated_pools((2.0, 20.0), 300.0, PLAIN, duration=7_200.0, seed=1)
    assert np.corrcoef(by_minute(first), by_minute(second))[0, 1] > 0.9
    assert set(first.arrival.tolist()).isdisjoint(second.arrival.tolist())


def test_clients_make_a_wave_by_day_and_their_rate_is_the_days_mean() -> None:
    days = [clients_mix(100, 4.0, PROMPT, OUTPUT, seed=seed) for seed in range(4)]
    assert np.mean([len(day) / DAY for day in days]) == pytest.approx(4.0, rel=0.1)
    for day in days:
        hours = np.histogram(day.arrival, bins=24, range=(0, DAY))[0]
        assert hours[12:16].mean() > 2 * hours[0:4].mean()
    # A trace that begins at noon begins at the wave's height.
    noon = clients_mix(100, 4.0, PROMPT, OUTPUT, duration=7_200.0, begin=43_200.0, seed=0)
    assert len(noon) / 7_200 > 4.0


def test_on_off_traffic_has_bursts_and_silence() -> None:
    trace = on_off(10.0, 30.0, 270.0, PLAIN, duration=36_000.0, seed=0)
    counts = np.histogram(trace.arrival, bins=3_600, range=(0, 36_000))[0]
    assert (counts == 0).mean() == pytest.approx(0.87, abs=0.04)  # 270 of 300 s, less what touches a burst
    # 10/s in 30 of 300 s; about 120 bursts of exponential length: 10% standard error and a little from the heights.
    assert len(trace) / 36_000 == pytest.approx(1.0, rel=0.25)
    assert counts.max() <= 10 * 1.5 * 10 + 4 * 13  # a burst is at most 1.5 times as high; plus 4 sigma of Poisson


def test_the_tail_is_pareto_up_to_its_end_and_nothing_piles_up_there() -> None:
    drawn = tailed(np.random.default_rng(0), LogNormal(500.0, 0.2, 1, 120_000), Tail(1.0, 10_000.0, 1.0), 200_000)
    assert drawn.min() == 10_000
    assert 119_000 < drawn.max() <= 120_000
    # Above 20k: (10/20 - 10/120) / (1 - 10/120) = 0.4545; above 60k: (10/60 - 10/120) / (1 - 10/120) = 0.0909.
    assert (drawn > 20_000).mean() == pytest.approx(0.4545, abs=0.005)
    assert (drawn > 60_000).mean() == pytest.approx(0.0909, abs=0.003)
    assert (drawn > 119_900).mean() < 0.001


def test_lengths_come_in_clumps_while_requests_stay_even() -> None:
    wide = LogNormal(1_000.0, 1.0, 1, 100_000)
    trace = correlated_lengths(10.0, wide, wide, common=0.6, memory=60.0, duration=36_000.0, seed=0)
    requests = by_minute(trace)
    assert requests.std() == pytest.approx(np.sqrt(600), rel=0.1)  # Poisson, 600 a minute
    logs = np.log(trace.prompt)
    assert logs.std() == pytest.approx(1.0, abs=0.1)
    # 600 requests, that is 60 s, apart: 0.6 / e = 0.22.
    assert np.corrcoef(logs[:-600], logs[600:])[0, 1] == pytest.approx(0.22, abs=0.08)
    assert abs(np.corrcoef(logs, np.log(trace.output))[0, 1]) < 0.2


def test_a_code_day_has_the_recorded_bursts_on_the_2024_tide() -> None:
    day = code_day(2, seed=0)
    assert day.duration == DAY
    shape = azure2024_conv_curve(2)[:, 0] / azure2024_conv_curve(0, 7)[:, 0].mean()
    # The recorded mean times the day's mean; blocks of ten minutes of very bursty traffic leave some 8%.
    recorded = len(azure2023_code()) / azure2023_code().duration
    assert len(day) / DAY == pytest.approx(recorded * shape.mean(), rel=0.15)
    minutes = by_minute(day)
    assert (minutes == 0).mean() > 0.05
    assert minutes.max() > 4 * minutes.mean()
    quiet, busy = shape < 0.9 * shape.mean(), shape > 1.1 * shape.mean()
    assert minutes[busy].mean() > 1.2 * minutes[quiet].mean()
    assert code_day(2, scale=0.5, seed=0).arrival.size == pytest.approx(day.arrival.size / 2, rel=0.1)


def test_resampled_minutes_are_whole_blocks_of_the_recorded_ones() -> None:
    trace = poisson("p", [1.0, 10.0], 300.0, prompt=5, output=5, seed=0)
    again = resampled(trace, minutes=30, block=5, seed=1)
    recorded, drawn = by_minute(trace), by_minute(again)
    blocks = [recorded[begin : begin + 5].tolist() for begin in range(6)]
    assert all(drawn[begin : begin + 5].tolist() in blocks for begin in range(0, 30, 5))
    assert again.duration == 1_800.0
    with pytest.raises(ValueError, match="block must be 1 to the 10 whole minutes"):
        resampled(trace, minutes=30, block=11)


def test_what_stops_goes_on_where_it_was() -> None:
    conv = azure2023_conv()
    trace = stops(conv, 600.0, 7_200.0)
    assert trace.duration == conv.duration + 7_200.0
    silent = (trace.arrival >= 600.0) & (trace.arrival < 7_800.0)
    assert not silent.any()
    before, after = trace.arrival < 600.0, trace.arrival >= 7_800.0
    assert np.r_[trace.arrival[before], trace.arrival[after] - 7_200.0].tolist() == pytest.approx(
        conv.arrival[conv.arrival < conv.duration].tolist()
    )
    with pytest.raises(ValueError, match="need 0 < at"):
        stops(conv, 0.0, 60.0)


def test_hours_of_the_2024_curve_scale() -> None:
    trace = conv_hours(0.5, day=2, begin=7, seed=0)
    expected = azure2024_conv_curve(2)[420:480, 0].mean() * 0.5
    assert len(trace) / 3_600 == pytest.approx(expected, rel=0.03)
    assert trace.prompt.mean() == pytest.approx(1_611, rel=0.03)
