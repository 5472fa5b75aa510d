"""Where the need is unknown, a queue that grows orders all the same, in proportion, and says that it is a guess."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pytest

from servingpool.catalogue.limits import LimitName
from servingpool.decision.decide import Outcome
from servingpool.decision.observation import NOT_EXPOSED, GatewayMetrics, Observation, Unknown

from .world import POOL, World, applied

NAN = Unknown("it is nan")
WITHOUT_STEPS = {"inter_token_latency": NOT_EXPOSED}
NO_FIGURE_BUT_THE_QUEUE = {
    "time_to_first_token": NOT_EXPOSED,
    "inter_token_latency": NOT_EXPOSED,
    "time_per_output_token": NOT_EXPOSED,
    "generation_tokens": NOT_EXPOSED,
    "prompt_tokens": NOT_EXPOSED,
}


@dataclass
class Unlearned(World):
    """Samples that lack what `patch` says, and a gateway's queue."""

    patch: dict[str, Any] = field(default_factory=dict)
    gateway: GatewayMetrics = field(default_factory=GatewayMetrics)
    unread: bool = False
    """Only the gateway is read."""

    def observation(self) -> Observation:
        seen = super().observation()
        assert not isinstance(seen.metrics, Unknown)
        metrics = NAN if self.unread else tuple(replace(one, **self.patch) for one in seen.metrics)
        return replace(seen, metrics=metrics, gateway=self.gateway)


def guessed(outcome: Outcome) -> bool:
    return LimitName.QUEUE_GROWS in applied(outcome)


@pytest.mark.parametrize(
    "patch", [WITHOUT_STEPS, NO_FIGURE_BUT_THE_QUEUE], ids=["no series of steps", "no figure but the queue"]
)
def test_a_queue_that_grows_orders_replicas_whatever_series_are_missing(patch: dict[str, Any]) -> None:
    world = Unlearned(replicas=1, patch=patch)
    outcomes = world.run(30.0, 30)
    assert all(isinstance(one.decision.need, Unknown) for one in outcomes)
    first = next(one.decision for one in outcomes if guessed(one))
    assert "a guess: " in first.reason
    assert " requests wait, some for over " in first.reason
    assert first.replicas > 1
    # A replica serves 11 of the 30: three do, and no more than the bounds of one cold start were ever ordered.
    assert 3 <= world.requested <= POOL.max_replicas
    assert world.engines[0].waiting < 30_000.0
    assert not guessed(outcomes[-1]), "the queue grows no more"


def test_without_a_wait_beyond_the_bound_nothing_is_ordered_however_the_gauge_rises() -> None:
    world = Unlearned(replicas=2, patch=WITHOUT_STEPS)
    for number in range(40):
        world.patch = WITHOUT_STEPS | {"waiting": 0.1 * number}
        assert not guessed(world.tick(15.0))
    assert world.requested == 2


def test_a_gauge_that_stands_or_jumps_once_orders_nothing() -> None:
    world = Unlearned(replicas=2, patch=WITHOUT_STEPS)
    world.run(4.0, 5)
    for waiting in (0.0, 5000.0, 0.0, 0.0, 700.0, 700.0, 700.0, 700.0):
        world.patch = WITHOUT_STEPS | {"waiting": waiting}
        assert not guessed(world.tick(4.0))
    assert world.requested == 2


def test_the_queue_at_the_gateway_is_enough_where_the_engines_cannot_be_read() -> None:
    world = Unlearned(replicas=2, unread=True)
    outcomes = []
    for number in range(8):
        gateway = GatewayMetrics(scraped_at=world.now + 15.0, queue=100.0 * number, arrivals=200.0 * number)
        world.gateway = gateway
        outcomes.append(world.tick(10.0))
    assert any(map(guessed, outcomes))
    # As many more come as are served, and what waits.
    assert 4 <= world.requested <= 8


def test_it_stays_within_max_and_the_largest_change() -> None:
    world = Unlearned(replicas=1, patch=WITHOUT_STEPS, pool=replace(POOL, max_replicas=4, max_change=1))
    steps = [(one.decision.replicas, world.requested) for one in world.run(60.0, 20)]
    assert max(replicas for replicas, _ in steps) == 4
    assert all(after - before <= 1 for (_, before), (after, _) in pairwise(steps))


def test_without_a_node_nothing_more_is_ordered() -> None:
    world = Unlearned(replicas=2, patch=WITHOUT_STEPS, unschedulable=True, pool=replace(POOL, max_replicas=40))
    world.run(60.0, 30)
    standing = world.requested
    world.run(60.0, 30)
    assert world.requested == standing <= 8
