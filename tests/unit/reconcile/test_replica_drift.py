"""Somebody else keeps setting the target's replicas."""

from __future__ import annotations

from dataclasses import replace

import pytest

from servingpool.adapters.cluster.drain import read_drain
from servingpool.adapters.cluster.errors import Forbidden
from servingpool.adapters.cluster.objects import FIELD_MANAGER, Setter, TargetKey, Workload
from servingpool.api.status import Status
from servingpool.decision.words import clock
from servingpool.reconcile.keep.orders import Contest, Ledger, Order

from .fake_cluster import FakeCluster, stamp
from .stories import hungry


def contested(by: str = "argocd-controller", times: int = 3, every: int = 1, to: tuple[int, ...] = (2,)) -> FakeCluster:
    """A pool that needs more, and somebody who sets it back behind so many ticks each time."""
    world = hungry()
    world.step(minutes=3)
    for number in range(times):
        assert world.services["vllm"].set_by == FIELD_MANAGER
        world.step(every * 0.25)
        world.set_replicas("vllm", to[number % len(to)], by=by)
        world.step()
    return world


def test_a_tool_that_sets_replicas_back_is_named() -> None:
    world = contested()
    assert world.condition("Ready") == ("False", "ReplicasContested")
    ordered = world.writes.scales[-2][2]
    assert world.message("Ready") == (
        f"argocd-controller keeps resetting spec.replicas (last {ordered} -> 2 at {clock(world.now)}). "
        "Make it ignore that field."
    )
    assert world.writes.reasons("pool").count("ReplicasContested") == 1
    world.prometheus.silent = "Prometheus cannot be reached"
    world.step(minutes=5)
    assert world.writes.reasons("pool").count("FailedGetMetrics") == 1
    assert world.condition("Ready") == ("False", "ReplicasContested")
    cause = Status.found(world.status()).cause
    assert cause is not None
    assert (world.status()["why"], cause.reason) == ("FailedGetMetrics",) * 2, "an outage comes before an old contest"
    world.prometheus.silent = None
    world.step(minutes=1)
    assert world.condition("MetricsAvailable") == ("True", "ValidMetrics")


def test_a_tool_that_looks_every_ten_minutes_is_named_and_stays_named() -> None:
    """Counted within ten minutes it was never named, and one that looks every four turned Ready back and forth."""
    for minutes in (4, 10):
        world = contested(every=minutes * 4 - 1)
        for _ in range(minutes * 8):
            assert world.condition("Ready") == ("False", "ReplicasContested")
            world.step()


def test_contested_replicas_are_still_scaled_without_an_event_each() -> None:
    world = contested()
    world.step()
    orders, told = len(world.writes.scales), (len(world.writes.events), len(world.writes.statuses))
    for _ in range(8):
        world.set_replicas("vllm", 2, by="argocd-controller")
        world.step()
    assert len(world.writes.scales) == orders + 8
    assert len(world.writes.events) == told[0]
    assert len(world.writes.statuses) <= told[1] + 4


def test_ready_turns_true_ten_minutes_after_the_last_reset() -> None:
    world = contested()
    world.step(minutes=9)
    assert world.condition("Ready") == ("False", "ReplicasContested")
    world.step(minutes=2)
    assert world.condition("Ready")[0] == "True"


@pytest.mark.parametrize(("times", "to"), [(2, (2,)), (5, (2, 3))], ids=["twice", "different numbers"])
def test_a_person_who_sets_a_number_contests_nothing(times: int, to: tuple[int, ...]) -> None:
    world = contested(by="kubectl-scale", times=times, to=to)
    assert world.condition("Ready")[0] == "True"


def test_a_program_that_sets_changing_numbers_is_named_too() -> None:
    """Another autoscaler, of which no object tells."""
    world = contested(by="scaler", times=6, to=(2, 3))
    assert world.condition("Ready") == ("False", "ReplicasContested")


def test_a_person_does_not_end_the_contest_of_a_tool() -> None:
    world = contested()
    world.step()
    world.set_replicas("vllm", 3, by="kubectl-scale")
    world.step(2)
    assert world.condition("Ready") == ("False", "ReplicasContested")
    assert "argocd-controller" in world.message("Ready")


def test_scales_that_answer_no_reset_post_events_while_replicas_are_contested() -> None:
    """Behind a tool that looked every 50 minutes nine orders left no event and no time for two hours and a half."""
    world = contested(every=10 * 4)
    world.pool(targets=[{"name": "vllm", "min": 1, "max": 20}])
    world.services["vllm"].rate = 70.0
    world.step()
    orders, events = len(world.writes.scales), world.writes.reasons("pool").count("SuccessfulRescale")
    world.step(minutes=20)
    assert world.condition("Ready") == ("False", "ReplicasContested")
    more = len(world.writes.scales) - orders
    assert more > 0
    assert world.writes.reasons("pool").count("SuccessfulRescale") == events + more
    assert world.status()["lastScaleTime"] == stamp(world.writes.at[-1])


def test_two_programs_that_set_replicas_once_and_twice_are_not_contested() -> None:
    world = contested(by="helm", times=2)
    world.set_replicas("vllm", 2, by="kubectl-scale")
    world.step()
    assert world.condition("Ready")[0] == "True"


def test_a_number_set_by_hand_counts_once_while_it_stays() -> None:
    world = hungry()
    world.writes.refuse["scale"] = Forbidden("403")
    world.step(minutes=3)
    world.writes.refuse.clear()
    world.step()
    world.writes.refuse["scale"] = Forbidden("403")
    world.set_replicas("vllm", 2, by="kubectl-scale")
    world.step(minutes=3)
    assert world.target().contest.times == (world.now - 165.0,)


def test_changes_by_people_are_no_contest_while_the_operator_does_not_scale() -> None:
    world = hungry()
    for _ in range(4):
        world.pool(mode="Auto")
        world.step(minutes=3)
        world.pool(mode="Recommend")
        world.step()
        world.set_replicas("vllm", 2, by="kubectl-scale")
        world.step(minutes=3)
    assert world.target().contest.times == ()


def test_a_new_target_starts_without_a_contest() -> None:
    world = contested()
    world.serve("other", rate=30.0).number.owners = {("argocd-controller", "Update", None): world.now}
    world.pool(target="other")
    world.step(minutes=2)
    assert world.condition("Ready")[0] == "True"
    assert world.writes.reasons("pool")[-1] == "SuccessfulRescale"


class TestContest:
    """What no world shows."""

    def test_ours_is_taken_over_whoever_wrote_it(self) -> None:
        """A write that was taken for lost was applied: the next one who changes it changes that number."""
        ledger = known(4, "kubectl")
        order(ledger, deployment(4, "kubectl", 0), 7)
        ledger.see(deployment(10, FIELD_MANAGER, 1), 15.0)
        ledger.see(deployment(2, "argocd", 2), 30.0)
        assert (ledger.contest.instead, ledger.contest.program, ledger.contest.number) == (10, "argocd", 2)

    def test_what_the_watch_shows_late_is_none(self) -> None:
        """Neither the number that an order of ours was given on, nor what we had ordered before."""
        ledger, found = known(2, "kubectl", at=1), deployment(2, "kubectl", 1)
        for tick in range(1, 6):
            ledger.done(order(ledger, found, 4 + tick))
            ledger.see(found, 15.0 * tick)
        ledger.see(deployment(5, FIELD_MANAGER, 2), 90.0)
        ledger.see(deployment(9, FIELD_MANAGER, 5), 90.0)
        assert ledger.contest.times == ()
        ledger.see(deployment(2, "kubectl", 6), 105.0)
        assert ledger.contest.times == (105.0,), "and this is somebody"

    def test_an_order_without_an_answer_is_contested_by_nobody(self) -> None:
        ledger = known(4, None)
        for tick in range(10):
            order(ledger, deployment(4, None, 0), 7)
            ledger.see(deployment(4, None, 0), 15.0 * tick)
        assert ledger.contest.problem is None

    def test_resets_every_two_hours_are_none(self) -> None:
        for apart, counts in ((7190.0, True), (7210.0, False)):
            contest = Contest()
            for at in (0.0, apart, 2.0 * apart):
                contest = contest.calmed(at).reset("argocd", 2, 7, at)
            assert (contest.problem is not None) is counts

    def test_set_back_twice_within_a_second_is_set_back_twice(self) -> None:
        """The API server writes to the second who has set a field."""
        ledger = known(1, "kubectl")
        for tick in range(3):
            reset = replace(deployment(1, "argocd", 10), generation=2 * tick + 3)
            ledger.done(order(ledger, replace(reset, generation=2 * tick + 1), 2))
            ledger.see(reset, 10.0 + 0.3 * tick)
        assert ledger.contest.problem is not None

    def test_a_clock_that_goes_back_ends_it(self) -> None:
        ledger, now = known(4, "kubectl"), 10_000.0
        for tick in range(3):
            ledger.done(order(ledger, deployment(4, "argocd", tick), 7))
            ledger.see(deployment(4, "argocd", tick + 1), now + tick)
        assert ledger.contest.problem is not None
        ledger.see(deployment(7, FIELD_MANAGER, 9), now - 3600.0)
        assert ledger.contest.problem is None


def known(replicas: int, by: str | None, at: int = 0) -> Ledger:
    """The ledger of a target that was seen once."""
    ledger = Ledger("d-vllm", replicas, by or "")
    ledger.see(deployment(replicas, by, at), 0.0)
    return ledger


def order(ledger: Ledger, target: Workload, replicas: int) -> Order:
    """An order that is sent."""
    return ledger.sent(target, replicas, "pool", "", 0.0)


def deployment(replicas: int, by: str | None, at: int) -> Workload:
    set_by = None if by is None else Setter(by, f"{at:09}")
    return Workload(TargetKey("chat", "vllm"), "d-vllm", 2 * at, replicas, set_by, gpus=1, drain=read_drain({}))
