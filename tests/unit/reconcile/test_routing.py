"""Whether the gateway's routing fits replicas of unequal speed."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from servingpool.api.conditions import ConditionType as Type
from servingpool.api.conditions import Reason
from servingpool.decision.observation import Observation, Ordered, Reading, Replica, ReplicaMetrics, Unknown
from servingpool.decision.parts import Part
from servingpool.reconcile.act import NOT_SCALED
from servingpool.reconcile.pool_plan import PoolPlan
from servingpool.reconcile.routing import LEAST_SEEN, NOT_SEEN, Spread, TargetLoad, judge_routing, slope
from servingpool.reconcile.state import PoolState
from servingpool.reconcile.status_builder import build

from .role_cluster import RoleCluster

FLEET = {"h100": 2, "l40s": 4}
SPEEDS: dict[str, Reading] = {"h100": 1.0, "l40s": 0.4}


def parts(speeds: dict[str, Reading]) -> list[Part]:
    return [Part(name, FLEET[name], FLEET[name], FLEET[name], speed, 100.0) for name, speed in speeds.items()]


def observed(running: dict[str, float], *, ready_for: float = 600.0, waiting: float = 0.0) -> Observation:
    """Each replica of a target has so many requests."""
    names = {f"{target}-{number}": target for target in running for number in range(FLEET[target])}
    return Observation(
        requested=len(names),
        ready=tuple(Replica(name, 900.0, ready_for, target=target) for name, target in names.items()),
        metrics=tuple(
            ReplicaMetrics(name, 0.0, running=running[target], waiting=waiting) for name, target in names.items()
        ),
        targets=tuple(Ordered(target, FLEET[target]) for target in FLEET),
    )


def seen(running: dict[str, float], minutes: float = 20.0, before: Spread = NOT_SEEN) -> Spread:
    spread, start = before, 0.0 if before.at is None else before.at
    for tick in range(1, round(minutes * 4) + 1):
        spread = spread.seen(observed(running), start + 15.0 * tick)
    return spread


def judged(running: dict[str, float], speeds: dict[str, Reading] | None = None) -> tuple[Reason, str]:
    found = judge_routing(parts(speeds or SPEEDS), "h100", seen(running))
    assert found is not None
    return found


def test_as_many_requests_in_slow_replicas_as_in_fast_ones_are_least_loaded_routing() -> None:
    reason, said = judged({"h100": 20.0, "l40s": 19.0})
    assert reason is Reason.LEAST_LOADED
    assert said == (
        "Requests are spread by load (20.0 in a replica of h100, 19.0 in a replica of l40s). "
        "Slow ones reach the SLO's bounds first, so fast ones are not used in full."
    )


def test_more_requests_in_slow_replicas_are_round_robin_and_its_cost_is_told() -> None:
    """Six replicas, each with the share that the slowest can serve: 2.4 in place of 3.6."""
    reason, said = judged({"h100": 10.0, "l40s": 25.0})
    assert reason is Reason.ROUND_ROBIN
    assert said.endswith("6 Ready replicas then serve like 2.4 of h100, instead of 3.6.")


def test_requests_in_proportion_to_speed_cost_nothing() -> None:
    reason, said = judged({"h100": 20.0, "l40s": 8.0})
    assert reason is Reason.LEAST_LOADED
    assert said.endswith("Fast ones hold more, about as their speed allows.")


@pytest.mark.parametrize(
    ("running", "speeds", "reason", "said"),
    [
        ({"h100": 9.0, "l40s": 9.0}, {"h100": 1.0, "l40s": 0.9}, Reason.SIMILAR_SPEEDS, "less than 20%"),
        ({"h100": 9.0, "l40s": 9.0}, {"h100": 1.0, "l40s": Unknown("new")}, Reason.ROUTING_UNKNOWN, "fewer than two"),
        ({"h100": 9.0, "l40s": 9.0}, {"h100": 1.0, "l40s": 0.0}, Reason.ROUTING_UNKNOWN, "fewer than two targets"),
        ({"h100": 1.0, "l40s": 1.5}, SPEEDS, Reason.ROUTING_UNKNOWN, "fewer than 2 requests a replica"),
    ],
)
def test_what_cannot_be_told_is_unknown(
    running: dict[str, float], speeds: dict[str, Reading], reason: Reason, said: str
) -> None:
    found = judged(running, speeds)
    assert found[0] is reason
    assert said in found[1]


def test_it_takes_ten_minutes_side_by_side() -> None:
    few = seen({"h100": 10.0, "l40s": 25.0}, minutes=9.0)
    found = judge_routing(parts(SPEEDS), "h100", few)
    assert found is not None
    assert found[0] is Reason.ROUTING_UNKNOWN
    assert "served side by side for 7m" in found[1]
    assert "of the last half hour, and 10m are needed" in found[1]


def test_replicas_of_one_target_alone_are_no_comparison() -> None:
    """Else the night, when the slow ones are gone, would count against the day."""
    alone = seen({"h100": 40.0}, minutes=30.0)
    assert alone.seconds == 0.0
    before = seen({"h100": 10.0, "l40s": 25.0})
    after = seen({"h100": 90.0}, minutes=5.0, before=before)
    assert [load.each for load in after.loads] == pytest.approx([10.0, 25.0])


def test_new_replicas_and_those_without_samples_do_not_count() -> None:
    new = NOT_SEEN.seen(observed({"h100": 10.0, "l40s": 25.0}, ready_for=30.0), 0.0)
    assert new.seen(observed({"h100": 10.0, "l40s": 25.0}, ready_for=45.0), 15.0).seconds == 0.0
    unread = Observation(2, metrics=Unknown("silent"), targets=(Ordered("h100", 1), Ordered("l40s", 1)))
    assert new.seen(unread, 15.0).seconds == 0.0


def test_requests_that_wait_in_the_engine_count() -> None:
    spread = NOT_SEEN.seen(observed({"h100": 10.0, "l40s": 25.0}), 0.0)
    spread = spread.seen(observed({"h100": 10.0, "l40s": 25.0}, waiting=5.0), 15.0)
    assert [load.each for load in spread.loads] == pytest.approx([15.0, 30.0])


def test_a_verdict_stays_while_the_slope_is_about_the_boundary() -> None:
    speed = 0.4
    spread = seen({"h100": 10.0, "l40s": 10.0 * speed**-0.55})
    of = parts(SPEEDS)
    stands = {before: judge_routing(of, "h100", spread, before) for before in ("LeastLoaded", "RoundRobin", None)}
    assert {before: found[0].value for before, found in stands.items() if found} == {
        "LeastLoaded": "LeastLoaded",
        "RoundRobin": "RoundRobin",
        None: "LeastLoaded",
    }


def test_a_pool_of_one_target_has_no_such_condition() -> None:
    one = Observation(2, ready=(Replica("a", 900.0, 600.0),), metrics=(ReplicaMetrics("a", 0.0, running=3.0),))
    assert NOT_SEEN.seen(one, 0.0) is NOT_SEEN
    assert judge_routing((), "", NOT_SEEN) is None


def test_the_slope_is_that_of_the_targets_weighted_by_their_replicas() -> None:
    speeds = {"a": 1.0, "b": 0.5, "c": 0.25}
    loads = [TargetLoad(name, 100.0 * 10.0 * speed**-1.0, 100.0) for name, speed in speeds.items()]
    assert slope(loads, speeds) == pytest.approx(-1.0)
    assert slope([TargetLoad("a", 0.0, 100.0), TargetLoad("b", 100.0, 100.0)], speeds) == pytest.approx(
        math.log(20) / math.log(0.5)
    )


def test_the_past_fades() -> None:
    before = seen({"h100": 10.0, "l40s": 10.0}, minutes=60.0)
    after = seen({"h100": 10.0, "l40s": 25.0}, minutes=120.0, before=before)
    found = judge_routing(parts(SPEEDS), "h100", after)
    assert found is not None
    assert found[0] is Reason.ROUND_ROBIN
    assert after.seconds > LEAST_SEEN


def test_round_robin_of_prefill_is_no_verdict_on_decode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode, whose slope is at the boundary, was called round robin until it was far from it, though it never was."""
    plans: list[PoolPlan] = []
    monkeypatch.setattr(PoolState, "decided", lambda _, plan: plans.append(plan))
    world = RoleCluster()
    world.pool()
    world.step()
    monkeypatch.undo()
    state, at = world.state(), world.now

    def judged_after(hours: float, prefill: dict[str, float], decode: dict[str, float]) -> tuple[str, str]:
        nonlocal at
        for _ in range(round(hours * 240)):
            at += 15.0
            sides = [
                replace(
                    side,
                    seen=replace(side.seen, observation=observed(running)),
                    decision=replace(side.decision, parts=tuple(parts(SPEEDS))),
                    learned=replace(side.learned, reference="h100"),
                )
                for side, running in zip(plans[0].sides, (prefill, decode), strict=True)
            ]
            plan = replace(plans[0], seen=replace(plans[0].seen, at=at), sides=tuple(sides))
            state.decided(plan)
        told = build(plan, NOT_SCALED, state.status, None, (), state.routing).condition(Type.ROUTING_FOLLOWS_SPEED)
        assert told is not None
        return told.reason, told.message

    even, uneven = {"h100": 10.0, "l40s": 10.0}, {"h100": 10.0, "l40s": 25.0}
    boundary = {"h100": 10.0, "l40s": 10.0 * 0.4**-0.5}
    reason, said = judged_after(1.0, uneven, boundary)
    assert reason == "RoundRobin"
    assert said.startswith("prefill: Slow replicas hold more requests")
    reason, said = judged_after(3.0, even, boundary)
    assert reason == "LeastLoaded"
    assert said.startswith("prefill: Requests are spread by load")
    assert judged_after(3.0, even, uneven)[1].startswith("decode: Slow replicas hold more")
    assert judged_after(0.5, {"h100": 0.0, "l40s": 0.0}, uneven)[0] == "RoundRobin"
