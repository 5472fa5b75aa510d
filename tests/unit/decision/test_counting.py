"""Memory and targets in replicas of the reference: what is taken over, and what stands in for what."""

from __future__ import annotations

import math

from servingpool.catalogue.limits import LimitName
from servingpool.decision.allocate import counted, fleet_of
from servingpool.decision.bound import _scale_down_blocked, _while_no_node
from servingpool.decision.decision import Limited
from servingpool.decision.learn.kinds import Kind
from servingpool.decision.learn.memory import Memory, Profile
from servingpool.decision.learn.step_time import Saturation
from servingpool.decision.observation import Observation, Ordered, Replica
from servingpool.decision.observe.counters import NOTHING_COUNTED
from servingpool.decision.pool import Pool, Slo, Target

A, B = Target("a", 1.0, most=10), Target("b", 1.0, most=10)
BOTH = Pool(Slo(2.0), 1, 20, targets=(A, B))
LEARNED = Saturation(seconds=600.0, batch=48.0)
NOW = 10_000.0


def ready(target: str, count: int) -> tuple[Replica, ...]:
    return tuple(Replica(f"{target}-{at}", 5000.0, 4000.0, target=target) for at in range(count))


def seen(observation: Observation, pool: Pool, profile: Profile) -> Memory:
    """After two looks, so far apart that what is missing is no longer late."""
    memory = counted(Memory(profile, last=NOTHING_COUNTED._replace(coverage=1.0)), observation, pool, NOW - 600.0)
    return counted(memory, observation, pool, NOW)


def test_a_target_under_another_name_keeps_what_was_learned() -> None:
    before = seen(
        Observation(1, ready("a", 1), targets=(Ordered("a", 1),)),
        Pool(Slo(2.0), 1, 4, targets=(A,)),
        Profile(kinds=(Kind("a", saturation=LEARNED),), reference="a"),
    )
    after = counted(
        before, Observation(1, ready("b", 1), targets=(Ordered("b", 1),)), Pool(Slo(2.0), 1, 4, targets=(B,)), NOW
    ).profile
    assert (after.engine.saturation, after.reference, [kind.target for kind in after.kinds]) == (LEARNED, "b", ["b"])


def test_a_surge_pod_without_a_node_stops_no_other_target() -> None:
    surge = Replica("a-surge", 900.0, unschedulable=True, target="a")
    observation = Observation(4, ready("a", 4), (surge,), targets=(Ordered("a", 4), Ordered("b", 0)), rollout=True)
    memory = seen(observation, BOTH, Profile())
    fleet = fleet_of(observation, BOTH, memory, NOW)
    assert fleet.lines[0].absent
    assert _while_no_node(Limited(8.0), fleet.observed(observation), BOTH, memory, fleet) == Limited(8.0)


def test_what_a_quota_refuses_one_target_excuses_no_missing_pod_of_another() -> None:
    observation = Observation(8, (*ready("a", 1), *ready("b", 3)), targets=(Ordered("a", 4), Ordered("b", 4)))
    memory = seen(observation, BOTH, Profile())
    lately = counted(memory, observation, BOTH, NOW)
    shortages = tuple(one if one.target == "a" else one.__class__("b", 3, None) for one in lately.shortages)
    memory = Memory(lately.profile, last=NOTHING_COUNTED._replace(coverage=1.0), shortages=shortages)
    fleet = fleet_of(observation, BOTH, memory, NOW)
    assert [line.absent for line in fleet.lines] == [True, False]
    answer = _scale_down_blocked(Limited(2.0), fleet.observed(observation), BOTH, memory, 0.0, NOW, fleet)
    assert [one.name for one in answer.applied] == [LimitName.REPLICAS_MISSING]
    assert math.isclose(answer.replicas, fleet.standing)
