"""What must hold for any sequence of observations, however odd."""

from __future__ import annotations

import itertools
import json
import math
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from servingpool.decision import capacity
from servingpool.decision.budget import FAST_LEAST, MOST_PLANNED, PLANNED, SLOW_LEAST
from servingpool.decision.decide import decide
from servingpool.decision.forecast import KEPT, PENDING, Forecast, Outlook
from servingpool.decision.memory import Memory, Profile
from servingpool.decision.miss_curve import BINS, Curve, MissCurve
from servingpool.decision.observation import Histogram, Observation, Replica, ReplicaMetrics
from servingpool.decision.pool import Behavior, Pool, Slo
from servingpool.decision.price import DEAREST, LEAST
from servingpool.decision.unknown import Unknown

from .world import Engine

SEQUENCES = int(os.environ.get("SOAK_EXAMPLES", "240"))
EXAMPLES = SEQUENCES // 2
PROGRESS = 500
"""Sequences between two signs of life, in a soak."""

figures = st.floats(min_value=0.0, max_value=1e9, allow_nan=False)
readings = st.one_of(figures, st.just(Unknown("absent")))
MOST_DEAR = DEAREST / 0.001
"""Of the tightest SLO, which allows one miss in a thousand."""


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


@dataclass(frozen=True)
class Spell:
    """A while in the life of a fleet: its traffic, and what goes wrong at its start or throughout."""

    rate: float
    """Requests/s."""
    ticks: int
    seconds: float
    trouble: str


TROUBLES = ("none", "none", "none", "lost scrape", "blind", "reset", "one more", "one less", "rollout", "clock back")


@st.composite
def lives(draw) -> tuple[Pool, list[Spell]]:
    spells = st.builds(
        Spell,
        rate=st.sampled_from([0.0, 1e-3, 0.5, 8.0, 30.0, 400.0, 1e6]),
        ticks=st.integers(1, 6),
        seconds=st.sampled_from([5.0, 15.0, 15.0, 60.0, 900.0]),
        trouble=st.sampled_from(TROUBLES),
    )
    return draw(pools()), draw(st.lists(spells, min_size=1, max_size=5))


def live(pool: Pool, spells: list[Spell]) -> Iterator[tuple[float, Observation]]:
    """Engines that behave, in a fleet that does not."""
    now, serial, engines = 1.7e9, 3, [Engine(f"vllm-{number}", 1.69e9) for number in range(3)]
    for spell in spells:
        if spell.trouble == "reset" and engines:
            engines[0] = Engine(engines[0].name, now)
        elif spell.trouble == "one more" and len(engines) < 8:
            serial += 1
            engines.append(Engine(f"vllm-{serial}", now))
        elif spell.trouble == "one less" and engines:
            engines.pop(0)
        elif spell.trouble == "clock back":
            now -= 1800.0
        for _ in range(spell.ticks):
            now += spell.seconds
            for engine in engines:
                engine.serve(spell.rate / len(engines), spell.seconds, 1000.0, 200.0)
            read = engines[1:] if spell.trouble == "lost scrape" else engines
            pages = tuple(engine.page(now) for engine in read)
            yield (
                now,
                Observation(
                    requested=len(engines),
                    ready=tuple(
                        Replica(e.name, age=now - e.ready_at + 100.0, ready_for=now - e.ready_at) for e in engines
                    ),
                    metrics=Unknown("no answer") if spell.trouble == "blind" else pages,
                    rollout=spell.trouble == "rollout",
                ),
            )


checked = itertools.count(1)


def tell_progress() -> None:
    number = next(checked)
    if number % PROGRESS == 0:
        sys.stderr.write(f"{number} of {SEQUENCES} sequences\n")


def bounded(replicas: int, pool: Pool) -> int:
    return min(max(replicas, pool.min_replicas), pool.max_replicas)


def all_finite(value: Any) -> bool:
    """No NaN and no infinity, however deep."""
    if isinstance(value, float):
        return math.isfinite(value)
    if is_dataclass(value):
        return all(all_finite(getattr(value, field.name)) for field in fields(value))
    return all(all_finite(part) for part in value) if isinstance(value, tuple) else True


def check(pool: Pool, looks: Iterable[tuple[float, Observation]]) -> None:
    """Every promise, at every look."""
    tell_progress()
    memory = Memory.new()
    before = memory.to_json()
    for now, look in looks:
        resumed = decide(look, pool, Memory.from_json(before), now)
        outcome = decide(look, pool, memory, now)
        decision, after = outcome.decision, outcome.memory

        assert pool.min_replicas <= decision.replicas <= pool.max_replicas
        assert all_finite(decision)
        if isinstance(decision.need, Unknown):
            assert decision.replicas == bounded(look.requested, pool)
        else:
            assert 0.0 <= decision.need <= 4 * pool.max_replicas + 2
        missing = len(look.ready) > (0 if isinstance(look.metrics, Unknown) else len(look.metrics))
        if missing or look.rollout or decision.calibrating:
            assert decision.replicas >= bounded(look.requested, pool)
        chain = [limit.before for limit in decision.limits] + [decision.replicas]
        assert all(limit.after == after for limit, after in zip(decision.limits, chain[1:], strict=True))

        text = after.to_json()
        assert memory.to_json() == before, "a memory is a value"
        assert_bounded(after, text)
        again = decide(look, pool, after, now)
        assert again.decision == decision
        assert again.memory.to_json() == text
        assert Memory.from_json(text).to_json() == text
        assert Memory.from_json(text) == after
        assert resumed.decision == decision
        assert resumed.memory.to_json() == text
        profile = after.profile.to_dict()
        assert Profile.from_dict(json.loads(json.dumps(profile, allow_nan=False))).to_dict() == profile
        memory, before = after, text
    later = now + 15.0
    resumed, kept = (decide(look, pool, one, later) for one in (Memory.from_json(before), memory))
    assert resumed.decision == kept.decision
    assert resumed.memory.to_json() == kept.memory.to_json()


def assert_bounded(memory: Memory, text: str) -> None:
    forecast = memory.profile.forecast
    assert len(text) < 150_000
    assert len(forecast.pairs) <= KEPT
    assert len(forecast.pending) <= 2 * PENDING
    assert (forecast.pairs >= 0.0).all()
    if memory.price is not None:
        assert memory.profile.slo is not None
        assert LEAST <= memory.price <= DEAREST / (1.0 - memory.profile.slo[2])
    budget = memory.profile.budget
    assert abs(budget.fast) <= 1.0
    assert FAST_LEAST * SLOW_LEAST <= budget.factor <= MOST_PLANNED / PLANNED
    assert all(entry[1] >= 0.0 for entry in memory.kept)


def of_all_sequences(share: float) -> settings:
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
    return settings(max_examples=max(1, round(share * SEQUENCES)), deadline=None, suppress_health_check=slow)


@of_all_sequences(0.75)
@given(sequences())
def test_any_sequence_keeps_the_promises(sequence):
    pool, looks = sequence
    check(pool, looks)


@of_all_sequences(0.25)
@given(lives())
# A soak's 22,000th: more demand was learned than a profile may hold, so what was written could not be read.
@example(
    (
        Pool(slo=Slo(None, 1.0, 0.5), min_replicas=0, max_replicas=0, in_charge=False, behavior=Behavior()),
        [Spell(1e6, 3, 900.0, "none"), Spell(0.0, 1, 5.0, "reset"), Spell(0.0, 2, 15.0, "lost scrape")],
    )
)
def test_any_life_of_a_fleet_keeps_the_promises(life):
    pool, spells = life
    check(pool, live(pool, spells))


@st.composite
def curves(draw) -> Curve:
    curve = MissCurve()
    for load, late in draw(st.lists(st.tuples(st.floats(0.03, 2.0), st.floats(0, 1)), max_size=40)):
        curve = curve.learn(load=load, requests=20.0, late=20.0 * late, elapsed=15.0)
    return curve.posterior(expected_knee=0.6, highest_knee=0.8)


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    curve=curves(),
    demands=st.lists(st.tuples(st.floats(0.0, 30.0), st.floats(1e-3, 1.0)), min_size=1, max_size=40),
    expected=st.floats(0.0, 30.0),
    more=st.floats(0.0, 20.0),
    allowance=st.floats(0.001, 0.5),
    price=st.floats(LEAST, MOST_DEAR),
)
def test_at_the_same_price_more_demand_never_needs_fewer_replicas(curve, demands, expected, more, allowance, price):
    samples, weights = (np.array(column)[None] for column in zip(*demands, strict=True))
    weights = weights / weights.sum()

    def need(shift: float) -> float:
        outlook = Outlook(np.array([expected + shift]), samples + shift, weights)
        return capacity.need(outlook, curve, allowance, price, most=400)

    # Beyond 64 sizes, those between are looked at around the best only: a replica or two in a hundred.
    assert need(more) >= need(0.0) - (0.0 if need(more) <= capacity.SIZES else math.ceil(0.02 * need(more)))


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    pairs=st.lists(st.tuples(*[st.floats(0.0, 1e4)] * 3), max_size=KEPT),
    mean=st.floats(0.0, 1e4),
    found=st.integers(0, 2000),
    level=st.floats(0.0, 1e4),
    usual=st.floats(0.0, 1e4),
    carried=st.floats(0.03, 1.0),
)
def test_an_outlook_is_a_distribution_of_finite_demands(pairs, mean, found, level, usual, carried):
    forecast = Forecast(pairs=np.array(pairs).reshape(-1, 3), mean=mean, seen=3600.0, found=found)
    outlook = forecast.outlook(level=level, usual=usual, carried=carried)
    assert np.isfinite(outlook.samples).all()
    assert (outlook.samples >= 0.0).all()
    assert (outlook.weights >= 0.0).all()
    assert math.isclose(outlook.weights.sum(), 1.0)
    assert 0.0 <= outlook.expected[0] <= mean + usual + level


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
