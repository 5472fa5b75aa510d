"""What is written when a fleet shrinks, in which order, and what becomes of it when something comes between."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest

from servingpool.adapters.cluster.errors import ClusterError, Conflict, Forbidden
from servingpool.decision.observation import ReplicaMetrics
from servingpool.loop import reconciler
from servingpool.reconcile import act

from .fake_cluster import FakeCluster
from .stories import upon

DENIED = Forbidden("Cannot set the deletion cost of Pod chat/vllm-7c9f-bbbbc: 403 Forbidden")


def oversized(replicas: int = 6, *, deletion_costs: bool = True) -> FakeCluster:
    """Calibrated, and larger than its traffic asks for. The oldest replica is idle, the youngest the busiest."""
    world = FakeCluster(deletion_costs=deletion_costs)
    world.serve(rate=6.0)
    world.pool(targets=[{"name": "vllm", "min": replicas, "max": 10}])
    world.step(minutes=25)
    world.pool()
    assert len(world.services["vllm"].engines) == replicas, "not shrunk yet"
    world.writes.scales.clear()
    world.writes.events.clear()
    world.writes.order.clear()
    weigh(world)
    return world


def weigh(world: FakeCluster) -> None:
    """Work in flight by the order of birth: 0, 10, 20 and so on."""

    def weighed(sample: ReplicaMetrics) -> ReplicaMetrics:
        names = standing(world)
        return (
            replace(sample, running=10.0 * names.index(sample.replica), waiting=0.0)
            if sample.replica in names
            else sample
        )

    world.exports = weighed


def shrink(world: FakeCluster, minutes: float = 15) -> None:
    for _ in range(round(minutes * 4)):
        world.step()
        if world.writes.order:
            return
    raise AssertionError("nothing was removed")


def standing(world: FakeCluster) -> list[str]:
    return [engine.name for engine in world.services["vllm"].engines]


def test_the_idlest_pods_are_marked_before_the_scale_and_exactly_they_are_removed() -> None:
    world = oversized()
    before = standing(world)
    shrink(world)
    (_, current, left) = world.writes.scales[0]
    gone = before[: current - left]
    assert world.writes.order == [*(f"cost {name}" for name in gone), f"scale {current} -> {left}"]
    assert standing(world) == before[current - left :]
    world.step(minutes=0.5)
    assert not [entry for entry in world.writes.order if entry.startswith("clear")], "who has gone needs nothing"


def test_a_scale_up_writes_no_pod() -> None:
    world = oversized(2)
    world.services["vllm"].rate = 30.0
    shrink(world)
    assert all(entry.startswith("scale") for entry in world.writes.order)
    assert world.writes.scales[0][2] > world.writes.scales[0][1]


@pytest.mark.parametrize("error", [Conflict("changed meanwhile"), ClusterError("500"), Forbidden("403 on scale")])
def test_a_failed_scale_down_keeps_its_marks_while_it_is_wanted(error: Exception) -> None:
    """It may have been made without an answer. And in a freeze of a weekend nothing is written at every tick."""
    world = oversized()
    world.writes.refuse["scale"] = error
    shrink(world)
    marked = [entry.removeprefix("cost ") for entry in world.writes.order]
    assert list(world.services["vllm"].costs) == marked
    world.step(minutes=2)
    assert len(world.writes.order) == len(marked), "chosen and tried again, but not written again"
    world.pool(mode="Paused")
    world.step()
    assert world.writes.order[len(marked) :] == [f"clear {pod}" for pod in marked]
    assert world.services["vllm"].costs == {}


def test_a_victim_keeps_its_mark_in_the_tick_that_chose_it() -> None:
    """Right after the scale the watch may still show the size before, at which nobody would have to go."""
    world = oversized()
    world.cache.as_ordered = None
    world.set_replicas = lambda *_: None  # type: ignore[method-assign]
    shrink(world)
    assert world.writes.scales
    assert not [entry for entry in world.writes.order if entry.startswith("clear")]


def test_scale_ups_do_not_wait_for_the_marks_of_other_pools(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reconciler, "WRITES_AT_ONCE", 1)
    world = oversized()
    world.pool(targets=[{"name": "vllm", "min": 6, "max": 10}])
    world.serve("busy", replicas=1, model="other")
    world.pool("short", target="busy", model="other")
    world.step()
    world.writes.order.clear()
    world.pool(targets=[{"name": "vllm", "min": 5, "max": 5}])
    world.pool("short", targets=[{"name": "busy", "min": 2, "max": 3}], model="other")
    world.step()
    assert world.writes.order == ["scale 1 -> 2", "cost vllm-7c9f-bbbbb", "scale 6 -> 5"]


@pytest.mark.parametrize("change", ["crash", "paused", "deleted", "target changed", "other leader"])
def test_marks_left_by_a_crash_are_removed_whatever_became_of_the_pool(change: str) -> None:
    """Between the two writes; the next one to lead sees the costs in the pods."""
    world = oversized()
    world.services["vllm"].costs = {"vllm-7c9f-bbbbb": ("-1", True), "vllm-7c9f-bbbbc": ("-1", True)}
    world.show("vllm")
    if change == "paused":
        world.pool(mode="Paused")
    if change == "deleted":
        world.delete()
    if change == "target changed":
        world.pool(targets=[{"name": "other", "min": 1, "max": 2}])
    if change == "other leader":
        world.leading = False
        world.step()
        assert len(world.services["vllm"].costs) == 2, "who does not lead writes nothing"
        world.leading = True
    if change in {"crash", "other leader"}:
        world.restart()
    world.step()
    assert world.services["vllm"].costs == {}
    assert world.writes.order == ["clear vllm-7c9f-bbbbb", "clear vllm-7c9f-bbbbc"]


def test_a_mark_stays_while_its_pod_is_still_to_be_removed() -> None:
    """The ReplicaSet controller is slow, or down: the choice still holds."""
    world = oversized()
    world.pool(mode="Paused")
    world.services["vllm"].costs = {"vllm-7c9f-bbbbb": ("-1", True)}
    world.show("vllm")
    world.cache.as_ordered = lambda shown: replace(shown, replicas=5)
    asyncio.run(world.loop.tick(world.now))
    assert world.services["vllm"].costs == {"vllm-7c9f-bbbbb": ("-1", True)}
    world.cache.as_ordered = lambda shown: replace(shown, replicas=6)
    asyncio.run(world.loop.tick(world.now))
    assert world.services["vllm"].costs == {}, "it was undone: nobody goes"


def test_a_foreign_deletion_cost_is_neither_removed_nor_overwritten() -> None:
    world = oversized()
    world.services["vllm"].costs = {"vllm-7c9f-bbbbb": ("100", False)}
    before = standing(world)
    shrink(world)
    gone = world.writes.scales[0][1] - world.writes.scales[0][2]
    assert [pod for pod, _ in world.writes.costs] == before[1 : 1 + gone]
    assert world.services["vllm"].costs == {"vllm-7c9f-bbbbb": ("100", False)}
    assert "vllm-7c9f-bbbbb" in standing(world)


def test_a_deletion_cost_that_somebody_writes_at_the_same_moment_wins() -> None:
    world = oversized()
    write = world.set_deletion_cost

    async def beaten(pod: Any, uid: str, cost: int | None) -> None:
        if pod[1] == "vllm-7c9f-bbbbb":
            world.services["vllm"].costs["vllm-7c9f-bbbbb"] = ("100", False)
        await write(pod, uid, cost)

    world.set_deletion_cost = beaten  # type: ignore[method-assign]
    shrink(world)
    assert world.writes.scales
    assert world.services["vllm"].costs == {"vllm-7c9f-bbbbb": ("100", False)}


def test_without_the_right_to_patch_pods_it_still_scales_and_warns_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = oversized()
    world.writes.refuse["cost"] = DENIED
    caplog.set_level(logging.WARNING, "servingpool")
    shrink(world)
    assert world.writes.scales[0][2] < world.writes.scales[0][1]
    assert world.failures["cost"] == 1, "what is forbidden for one pod is forbidden for all"
    told = [reason for reason in world.writes.reasons("pool") if reason in {"SuccessfulRescale", "VictimsNotChosen"}]
    assert told == ["SuccessfulRescale", "VictimsNotChosen"], "an event that is slow does not hold the scale-down up"
    world.set_replicas("vllm", 6)
    world.writes.order.clear()
    shrink(world)
    assert len(world.writes.scales) >= 2
    assert world.writes.reasons("pool").count("VictimsNotChosen") == 1
    assert caplog.text.count("No permission to patch pods, so Kubernetes may delete busy pods.") == 1
    assert world.condition("Ready")[0] == "True"


def test_with_deletion_costs_off_no_pod_is_patched_and_one_event_says_so(caplog: pytest.LogCaptureFixture) -> None:
    world = oversized(deletion_costs=False)
    world.services["vllm"].costs = {"vllm-7c9f-bbbbb": ("-1", True)}  # from before it was switched off
    caplog.set_level(logging.WARNING, "servingpool")
    shrink(world)
    assert world.writes.scales[0][2] < world.writes.scales[0][1]
    world.set_replicas("vllm", 6)
    world.writes.order.clear()
    shrink(world)
    assert world.writes.costs == []
    [told] = [(type_, said) for _, type_, reason, said in world.writes.events if reason == "VictimsNotChosen"]
    assert told == (
        "Normal",
        "podDeletionCost.enabled is false, so Kubernetes may delete busy pods. Set it to true to delete idle pods first.",
    )
    assert caplog.text == ""
    assert world.failures["cost"] == 0


def test_a_slow_api_server_does_not_delay_the_scale_down(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(act, "LONGEST_MARKING", 0.02)
    world = oversized()

    async def hangs(*_: Any) -> None:
        await asyncio.sleep(60.0)

    world.set_deletion_cost = hangs  # type: ignore[assignment, method-assign]
    shrink(world)
    assert world.writes.scales[0][2] < world.writes.scales[0][1]
    assert "not all pods to remove in namespace chat are marked" in caplog.text


def test_a_leader_deposed_while_marking_does_not_scale_and_the_next_one_removes_the_marks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = oversized()
    upon(world, "set_deletion_cost", lambda: setattr(world, "leading", False), monkeypatch)
    shrink(world)
    assert world.writes.scales == []
    assert all(entry.startswith("cost") for entry in world.writes.order)
    monkeypatch.undo()
    world.leading = True
    world.restart()
    world.services["vllm"].rate = 12.0  # nothing to be removed any more
    world.step()
    assert world.services["vllm"].costs == {}


def test_in_a_rollout_only_a_lowered_max_removes_replicas_and_no_mark_stays() -> None:
    """Kubernetes shares the removal out between the revisions; in each, the marked ones go first."""
    world = oversized()
    world.rollout()
    world.step(minutes=10)
    assert world.writes.order == []
    world.pool(targets=[{"name": "vllm", "min": 1, "max": 4}])
    world.step()
    assert world.writes.order == ["cost vllm-7c9f-bbbbb", "cost vllm-7c9f-bbbbc", "scale 6 -> 4"], (
        "new-1 is not ready: it needs no cost"
    )
    world.services["vllm"].costs = {"vllm-7c9f-bbbbd": ("-1", True)}
    world.step()
    assert world.services["vllm"].costs == {}


def test_a_template_that_loses_requests_is_scaled_with_one_warning() -> None:
    world = FakeCluster()
    service = world.serve(rate=6.0)
    world.pool()
    world.step(minutes=2)
    assert world.condition("DrainReady") == ("True", "FinishesRequests")
    service.args = ()
    world.step(minutes=2)
    assert world.condition("DrainReady") == ("False", "NoShutdownTimeout")
    assert "per replica now. Set vLLM's --shutdown-timeout." in world.message("DrainReady")
    assert world.writes.reasons("pool").count("NoShutdownTimeout") == 1
    assert world.condition("Ready")[0] == "True"
    world.restart()
    world.step(minutes=2)
    assert world.writes.reasons("pool").count("NoShutdownTimeout") == 1, "nor after a restart"
    world.set_replicas("vllm", 6)
    world.step(minutes=25)
    assert world.writes.scales[-1][2] < 6
