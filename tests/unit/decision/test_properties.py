"""What must hold for any sequence of observations, however odd."""

from __future__ import annotations

import json
import math
import os

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from servingpool.decision import capacity
from servingpool.decision.decide import decide
from servingpool.decision.forecast import Forecast
from servingpool.decision.memory import Memory
from servingpool.decision.miss_curve import BINS, MissCurve
from servingpool.decision.observation import Histogram, Observation, Replica, ReplicaMetrics
from servingpool.decision.pool import Behavior, Pool, Slo
from servingpool.decision.unknown import Unknown

EXAMPLES = int(os.environ.get("SOAK_EXAMPLES", "150"))

figures = st.floats(min_value=0.0, max_value=1e9, allow_nan=False)
readings = st.one_of(figures, st.just(Unknown("absent")))


@st.composite
def histograms(draw) -> Histogram | Unknown:
    if draw(st.booleans()):
        return Unknown("absent")
    steps = draw(st.lists(st.floats(0, 1e6), min_size=4, max_size=4))
    counts = [sum(steps[: i + 1]) for i in range(4)]
    return Histogram((0.05, 1.0, 2.5), tuple(counts[:3]), draw(st.floats(0, 1e7)), counts[3])


@st.composite
def observations(draw, now: float) -> Observation:
    names = [f"pod-{i}" for i in range(draw(st.integers(0, 5)))]
    ready = tuple(Replica(name, age=draw(st.floats(1, 1e5)), ready_for=draw(st.floats(0, 1e5))) for name in names)
    starting = tuple(
        Replica(f"new-{i}", age=draw(st.floats(0, 1e4)), unschedulable=draw(st.booleans()))
        for i in range(draw(st.integers(0, 3)))
    )
    pages = tuple(
        ReplicaMetrics(
            replica=name,
            scraped_at=now - draw(st.floats(0, 40)),
            running=draw(readings),
            waiting=draw(readings),
            kv_cache_usage=draw(st.floats(0, 1)),
            generation_tokens=draw(readings),
            prompt_tokens=draw(readings),
            cached_prompt_tokens=draw(readings),
            admission_rejections=draw(readings),
            time_to_first_token=draw(histograms()),
            inter_token_latency=draw(histograms()),
            time_per_output_token=draw(histograms()),
        )
        for name in names
        if draw(st.integers(0, 4)) > 0
    )
    blind = draw(st.integers(0, 5)) == 0
    return Observation(
        requested=draw(st.integers(0, 12)),
        ready=ready,
        starting=starting,
        metrics=Unknown("no answer") if blind else pages,
        rollout=draw(st.booleans()),
    )


@st.composite
def pools(draw) -> Pool:
    low = draw(st.integers(0, 4))
    ttft = draw(st.one_of(st.none(), st.floats(0.01, 60)))
    tpot = draw(st.floats(0.001, 1)) if ttft is None else draw(st.one_of(st.none(), st.floats(0.001, 1)))
    return Pool(
        slo=Slo(ttft, tpot, draw(st.floats(0.5, 0.999))),
        min_replicas=low,
        max_replicas=low + draw(st.integers(0, 20)),
        in_charge=draw(st.booleans()),
        behavior=Behavior(calibration=draw(st.sampled_from([0.0, 300.0]))),
    )


@st.composite
def sequences(draw):
    now, looks = 1.7e9, []
    for _ in range(draw(st.integers(1, 10))):
        now += draw(st.sampled_from([0.0, 5.0, 15.0, 15.0, 60.0, 5000.0]))
        looks.append((now, draw(observations(now))))
    return draw(pools()), looks


def bounded(replicas: int, pool: Pool) -> int:
    return min(max(replicas, pool.min_replicas), pool.max_replicas)


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
@given(sequences())
def test_any_sequence_keeps_the_promises(sequence):
    pool, looks = sequence
    memory = Memory.new()
    for now, look in looks:
        before = memory.to_json()
        outcome = decide(look, pool, memory, now)
        decision = outcome.decision

        assert pool.min_replicas <= decision.replicas <= pool.max_replicas
        if isinstance(decision.need, Unknown):
            assert decision.replicas == bounded(look.requested, pool)
        else:
            assert math.isfinite(decision.need)
            assert decision.need >= 0.0
        missing = len(look.ready) > (0 if isinstance(look.metrics, Unknown) else len(look.metrics))
        if missing or look.rollout or isinstance(look.metrics, Unknown):
            assert decision.replicas >= bounded(look.requested, pool)
        chain = [limit.before for limit in decision.limits] + [decision.replicas]
        assert all(limit.after == after for limit, after in zip(decision.limits, chain[1:], strict=True))

        assert memory.to_json() == before
        again = decide(look, pool, outcome.memory, now)
        assert again.decision.replicas == decision.replicas
        text = outcome.memory.to_json()
        assert Memory.from_json(text).to_json() == text
        assert len(text) < 150_000
        json.dumps(outcome.memory.profile.to_dict(), allow_nan=False)
        memory = outcome.memory


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    level=st.floats(0.01, 50),
    more=st.floats(1.0, 5.0),
    errors=st.lists(st.floats(-2, 2), max_size=60),
    evidence=st.lists(st.tuples(st.floats(0.03, 2.0), st.floats(0, 1)), max_size=40),
    budget=st.floats(0.001, 0.5),
)
def test_more_demand_never_needs_fewer_replicas(level, more, errors, evidence, budget):
    curve = MissCurve()
    for load, late in evidence:
        curve = curve.learn(load=load, requests=20.0, late=20.0 * late, elapsed=15.0)
    posterior = curve.posterior(expected_knee=0.6, highest_knee=0.8)
    forecast = Forecast(errors=tuple(errors), mean=5.0, seen=3600.0)

    def need(demand: float) -> float:
        outlook = forecast.outlook(level=demand, trend=0.0, horizon=100.0, recent_maximum=demand)
        return capacity.need(outlook, posterior, budget, most=400)

    assert need(level * more) >= need(level) - capacity.FINEST


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    evidence=st.lists(st.tuples(st.floats(0.03, 2.0), st.floats(0, 1)), max_size=40),
    expected=st.floats(0.06, 1.0),
    share=st.floats(0.0, 1.0),
)
def test_the_learned_curve_only_rises_with_load(evidence, expected, share):
    curve = MissCurve()
    for load, late in evidence:
        curve = curve.learn(load=load, requests=20.0, late=20.0 * late, elapsed=15.0)
    posterior = curve.posterior(expected_knee=expected, highest_knee=1.0)
    assert (np.diff(posterior.miss) >= 0).all()
    assert 0.0 <= posterior.miss[0]
    assert posterior.miss[-1] <= 1.0
    assert BINS[0] <= posterior.load_for(share) <= BINS[-1]
