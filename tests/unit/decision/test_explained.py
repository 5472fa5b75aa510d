"""A decision shows enough to recompute it: the need from its candidates, the answer from its limits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from servingpool.catalogue.limits import LimitName
from servingpool.decision.decide import Outcome
from servingpool.decision.decision import Decision, Verdict
from servingpool.decision.observation import Observation, Unknown

from .world import POOL, World

SENTENCES = {
    " spare: traffic may reach": "burst",
    "would cover every burst": "fewer",
    "% load, so": "plain",
    "the cheapest fleet by what is known so far": "trade-off",
    "; the present load needs": "present load",
    "are kept because the initial fleet": "initial fleet",
    "no request in the last 20 minutes": "idle",
}
"""What a sentence says of the need, and the kind of need that it is."""


class Quiet(World):
    """Engines that run nothing at the moment of a scrape."""

    def observation(self) -> Observation:
        seen = super().observation()
        assert isinstance(seen.metrics, tuple)
        return replace(seen, metrics=tuple(replace(one, running=0.0) for one in seen.metrics))


def stories() -> Iterator[tuple[World, tuple[tuple[float, float], ...]]]:
    """Worlds, and their spells of (requests/s, minutes)."""
    steps = World(replicas=2, pool=replace(POOL, max_replicas=30))
    yield steps, ((5.0, 20.0), (40.0, 20.0), (5.0, 20.0), (60.0, 15.0), (10.0, 20.0))
    yield World(replicas=2, pool=replace(POOL, max_replicas=3)), ((8.0, 15.0), (80.0, 15.0), (2.0, 10.0))
    yield World(replicas=3, failing=True), ((20.0, 30.0), (2.0, 20.0))
    yield Quiet(replicas=2), ((20.0, 10.0), (0.0, 30.0))
    # Beyond 64 sizes the fleets around the cheapest are weighed a second time.
    yield World(replicas=80, pool=replace(POOL, max_replicas=300)), ((500.0, 10.0), (900.0, 5.0), (100.0, 5.0))


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    """Of all ticks of which the need is known."""
    every = [one for world, spells in stories() for spell in spells for one in world.run(*spell)]
    return [one for one in every if not isinstance(one.decision.need, Unknown)]


def cheapest(decision: Decision) -> float:
    """The candidate with the least sum of replicas and misses at their penalty."""
    penalty = decision.figures.penalty
    assert not isinstance(penalty, Unknown)
    return min(decision.candidates, key=lambda one: one.replicas + penalty * one.misses).replicas


def kind(decision: Decision) -> str:
    """What the sentence says of the need."""
    return next(kind for sentence, kind in SENTENCES.items() if sentence in decision.reason)


def test_the_need_is_the_largest_of_three_and_the_first_is_the_candidate_with_the_least_sum(
    outcomes: list[Outcome],
) -> None:
    kinds: Counter[str] = Counter()
    for decision, _ in outcomes:
        said, figures = kind(decision), decision.figures
        parts = (figures.for_forecast, figures.for_initial_fleet, figures.for_present_load)
        forecast, initial, present = (float(part) for part in parts if not isinstance(part, Unknown))
        assert decision.need == max(forecast, initial, present)
        assert forecast == (0.0 if said == "idle" else cheapest(decision))
        assert (said == "present load") == (present > max(forecast, initial))
        assert (said == "initial fleet") == (initial > forecast and initial >= present)
        kinds[said] += 1
    least = {
        "burst": 300,
        "fewer": 30,
        "plain": 60,
        "trade-off": 50,
        "present load": 2,
        "idle": 20,
        "initial fleet": 20,
    }
    assert {said: kinds[said] for said in least if kinds[said] < least[said]} == {}
    assert kinds.keys() == least.keys()


def test_the_limits_lead_from_the_need_to_the_answer_one_by_one(outcomes: list[Outcome]) -> None:
    names: Counter[str] = Counter()
    lengths: Counter[int] = Counter()
    verdicts: Counter[Verdict] = Counter()
    for decision, _ in outcomes:
        assert not isinstance(decision.need, Unknown)
        answer: float = math.ceil(decision.need)
        for limit in decision.limits:
            assert limit.before == answer != limit.after
            assert limit.reason in decision.reason
            answer = limit.after
            names[limit.name] += 1
        assert answer == decision.replicas
        lengths[len(decision.limits)] += 1
        verdicts[decision.verdict] += 1
    assert names[LimitName.SCALE_DOWN_WINDOW] >= 100, "raises the answer"
    assert names[LimitName.MAXIMUM] >= 100, "cuts it"
    assert len(names) >= 6
    assert lengths[0] >= 200
    assert lengths[2] >= 50
    assert verdicts[Verdict.SCALE_UP] >= 10
    assert verdicts[Verdict.SCALE_DOWN] >= 10
