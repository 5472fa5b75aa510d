"""What must hold for any sequence of observations, however odd."""

from __future__ import annotations

import math
import pickle
from collections.abc import Container, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from servingpool.catalogue.limits import LimitName
from servingpool.decision.decide import decide
from servingpool.decision.learn.error_budget import SLOW_LEAST, SLOW_MOST
from servingpool.decision.learn.forecast import FORECASTS_KEPT as KEPT
from servingpool.decision.learn.forecast import Outlook, WorkForecast
from servingpool.decision.learn.memory import Memory
from servingpool.decision.learn.miss_curve import BINS, ESTIMATED, Curve, LoadAttribution, MissCurve
from servingpool.decision.need import costs
from servingpool.decision.observation import Observation, Unknown
from servingpool.decision.observe.latency import Misses
from servingpool.decision.params import DEFAULT
from servingpool.decision.pool import Bounds, Pool

from ..fuzzing import EXAMPLES, fuzzed  # noqa: TID252, tests are no package of an installed name
from .sequences import HUGE_DEMAND, live, lives, sequences, tell_progress
from .test_costs import of_one
from .world import plain, restored

HALF = EXAMPLES // 2
GREATEST_PENALTY = DEFAULT.greatest_penalty / 0.001
"""Of the tightest SLO, which allows one miss in a thousand."""
UNKNOWN_AS_NAN = ("rows", "figures", "running")
WITHOUT_AN_END = ("buckets", "batch", "bounds", "previous", "most_prompts")
"""Fields of a memory that may hold NaN, and those that may hold infinity."""


def bounded(replicas: int, requested: int, pool: Pool, bounds: Bounds) -> int:
    """By min and max first, then by the largest change."""
    replicas = min(max(replicas, bounds.least.replicas), bounds.most.replicas)
    return round(min(max(replicas, requested - pool.max_change), requested + pool.max_change))


def all_finite(value: Any, *, without: Container[str] = ()) -> bool:
    """No NaN and no infinity, however deep, but in fields `without`."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, np.ndarray):
        return bool(np.isfinite(value).all())
    names = [one.name for one in fields(value) if one.init] if is_dataclass(value) else getattr(value, "_fields", ())
    if names:
        return all(all_finite(getattr(value, name), without=without) for name in names if name not in without)
    if isinstance(value, Mapping):
        return all(all_finite(part, without=without) for part in value.values())
    return all(all_finite(part, without=without) for part in value) if isinstance(value, tuple) else True


def check(pool: Pool, sequence: Iterable[tuple[float, Observation]]) -> None:
    """Every promise, at every observation."""
    tell_progress()
    memory = Memory()
    for now, observed in sequence:
        before = restored(memory)
        # The last decision's curve follows from all the rest.
        resumed = decide(observed, pool, replace(before, predicted_by=None), now)
        outcome = decide(observed, pool, memory, now)
        decision, after = outcome.decision, outcome.memory

        bounds, requested = decision.bounds, observed.requested
        assert bounds.least.replicas <= bounds.most.replicas
        assert decision.replicas == bounded(decision.replicas, requested, pool, bounds)
        assert abs(decision.replicas - requested) <= pool.max_change
        assert all_finite(decision)
        if isinstance(decision.need, Unknown):
            grows = any(limit.name is LimitName.QUEUE_GROWS for limit in decision.limits)
            most = max(requested, 2 * len(observed.ready) + 4) if grows else requested
            assert decision.replicas >= bounded(requested, requested, pool, bounds)
            assert decision.replicas <= bounded(most, requested, pool, bounds)
        else:
            assert 0.0 <= decision.need <= 4 * max(1, bounds.most.replicas) + 2
        missing = len(observed.ready) > (0 if isinstance(observed.metrics, Unknown) else len(observed.metrics))
        if missing or observed.rollout or decision.calibrating:
            assert decision.replicas >= bounded(requested, requested, pool, bounds)
        chain = [limit.before for limit in decision.limits] + [decision.replicas]
        assert all(limit.after == after for limit, after in zip(decision.limits, chain[1:], strict=True))

        figures = plain(after)
        assert plain(memory) == plain(before), "a memory is a value"
        assert_bounded(after)
        again = decide(observed, pool, after, now)
        assert again.decision == decision
        assert plain(again.memory) == figures
        assert plain(restored(after)) == figures
        assert resumed.decision == decision
        assert plain(resumed.memory) == figures
        memory = after
    later = now + 15.0
    resumed, kept = (decide(observed, pool, one, later) for one in (restored(memory), memory))
    assert resumed.decision == kept.decision
    assert plain(resumed.memory) == plain(kept.memory)


def assert_bounded(memory: Memory) -> None:
    assert all_finite(memory, without={*UNKNOWN_AS_NAN, *WITHOUT_AN_END})
    assert not np.isinf(memory.window.rows).any()
    assert not any(math.isinf(figure) for one in memory.last.samples.values() for figure in (*one.figures, one.running))
    forecast = memory.profile.forecast
    assert len(pickle.dumps(memory)) < 90_000
    assert len(forecast.pairs) <= KEPT
    assert len(forecast.pending) <= KEPT
    assert (forecast.pairs >= 0.0).all()
    if memory.penalty is not None:
        assert memory.profile.slo is not None
        assert DEFAULT.least_penalty <= memory.penalty <= DEFAULT.greatest_penalty / (1.0 - memory.profile.slo[2])
    budget = memory.profile.budget
    assert SLOW_LEAST <= budget.slow_factor(DEFAULT) <= SLOW_MOST
    assert all(entry[1] >= 0.0 for entry in memory.recommendations)


@fuzzed(0.75)
@given(sequences())
def test_any_sequence_keeps_the_promises(sequence):
    pool, observed = sequence
    check(pool, observed)


@fuzzed(0.25)
@given(lives())
@example(HUGE_DEMAND)
def test_any_life_of_a_fleet_keeps_the_promises(life):
    pool, spells = life
    check(pool, live(pool, spells))


@st.composite
def curves(draw) -> Curve:
    curve = MissCurve()
    for load, late in draw(st.lists(st.tuples(st.floats(0.03, 2.0), st.floats(0, 1)), max_size=40)):
        curve = curve.update(LoadAttribution(load, load), Misses(20.0, 20.0 * late), elapsed=15.0, params=DEFAULT)
    return curve.posterior(expected_knee=0.6, highest_knee=0.8, shape=ESTIMATED, params=DEFAULT)


@settings(max_examples=HALF)
@given(
    curve=curves(),
    demands=st.lists(st.tuples(st.floats(0.0, 30.0), st.floats(1e-3, 1.0)), min_size=1, max_size=40),
    expected=st.floats(0.0, 30.0),
    more=st.floats(0.0, 20.0),
    # Where half of all may miss, an overloaded fleet can be the cheapest, and one replica more saves less there.
    allowance=st.floats(0.001, 0.2),
    penalty=st.floats(DEFAULT.least_penalty, GREATEST_PENALTY),
)
def test_at_the_same_penalty_more_demand_never_needs_fewer_replicas(curve, demands, expected, more, allowance, penalty):
    samples, weights = (np.array(column)[None] for column in zip(*demands, strict=True))
    weights = weights / weights.sum()

    def need(shift: float) -> float:
        outlook = Outlook(np.array([expected + shift]), samples + shift, weights)
        return float(costs.cheapest(outlook, 1.0, curve, allowance, (penalty,), of_one(400))[0][0, 0])

    assert need(more) >= need(0.0)


@settings(max_examples=HALF)
@given(
    pairs=st.lists(st.tuples(*[st.floats(0.0, 1e4)] * 3), max_size=KEPT),
    mean=st.floats(0.0, 1e4),
    initial=st.integers(0, 2000),
    level=st.floats(0.0, 1e4),
    usual=st.floats(0.0, 1e4),
    capacity=st.floats(0.03, 1.0),
)
def test_an_outlook_is_a_distribution_of_finite_demands(pairs, mean, initial, level, usual, capacity):
    forecast = WorkForecast(pairs=np.array(pairs).reshape(-1, 3), mean=mean, seen=3600.0, initial_replicas=initial)
    outlook = forecast.outlook(level=level, usual=usual, capacity=capacity)
    assert np.isfinite(outlook.samples).all()
    assert (outlook.samples >= 0.0).all()
    assert (outlook.weights >= 0.0).all()
    assert math.isclose(outlook.weights.sum(), 1.0)
    assert 0.0 <= outlook.expected[0] <= mean + usual + level


@settings(max_examples=HALF)
@given(
    evidence=st.lists(st.tuples(st.floats(0.03, 2.0), st.floats(0, 1)), max_size=40),
    expected=st.floats(0.06, 1.0),
    share=st.floats(0.0, 1.0),
)
def test_the_learned_curve_only_rises_with_load(evidence, expected, share):
    curve = MissCurve()
    for load, late in evidence:
        curve = curve.update(LoadAttribution(load, load), Misses(20.0, 20.0 * late), elapsed=15.0, params=DEFAULT)
    posterior = curve.posterior(expected_knee=expected, highest_knee=1.0, shape=ESTIMATED, params=DEFAULT)
    assert (np.diff(posterior.miss) >= 0).all()
    assert 0.0 <= posterior.miss[0]
    assert posterior.miss[-1] <= 1.0
    assert BINS[0] <= posterior.load_for(share) <= BINS[-1]
