"""A pool of two Deployments: which is scaled, in which order, and what is kept of each."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from servingpool.adapters.cluster.errors import Conflict, Forbidden, Unanswered
from servingpool.adapters.cluster.objects import TargetKey
from servingpool.reconcile.act import ScaleOutcome
from servingpool.reconcile.plan.pool_plan import ScaleAction

from .mixed_cluster import FIXED, SPOT, MixedCluster, changes, ordered

FIXED_KEY, SPOT_KEY = TargetKey("chat", "fixed"), TargetKey("chat", "spot")


def decided(**settings: Any) -> MixedCluster:
    """Both serve, and one decision was made."""
    world = MixedCluster(fixed=3, spot=2, **settings)
    world.pool()
    world.step()
    assert world.writes.scales == []
    return world


def act(world: MixedCluster, **replicas: int) -> ScaleOutcome | None:
    """Carry this out in the order given, as if the last decision had said so."""
    actions = tuple(ScaleAction(world.workload(name), count) for name, count in replicas.items())
    plan = replace(world.plans[-1], actions=actions)
    return asyncio.run(world.actor.act(plan, world.state(), lambda: True, lambda _: True))


class TestOrders:
    def test_the_cheaper_target_takes_over_and_the_dearer_one_goes_once_that_is_ready(self) -> None:
        world = MixedCluster(fixed=4)
        world.pool()
        world.until(lambda: ordered(world.fixed) == 1)
        taken = [name for name, _, _ in changes(world)]
        before = [
            when for when, (name, _, after) in zip(world.writes.at, changes(world), strict=True) if name == "spot"
        ]
        assert taken[-1] == "fixed", "what goes, goes last"
        ready = len(world.spot.engines)
        assert ready in {3, 4}, "and what replaces it is Ready by then; at a speed below 1 four do"
        assert world.writes.at[-1] - before[-1] >= 100.0, "a cold start lies between"
        assert world.condition("SLOMet") == ("True", "ObjectiveMet")
        events = [message for _, _, reason, message in world.writes.events if reason == "SuccessfulRescale"]
        sentence = "scale down fixed 4 -> 1 (counted in replicas of fixed)"
        assert events[-1].startswith(f"New size: {1 + ready}; reason: {sentence}")

    def test_each_decision_is_one_change_of_the_sum(self) -> None:
        world = MixedCluster(fixed=3)
        world.pool()
        world.until(lambda: any(len(plan.actions) > 1 for plan in world.plans))
        added = sum(action.added for action in world.plans[-1].actions)
        assert added >= 2
        newest = world.status()["history"][0]
        assert (newest["from"], newest["to"]) == (3, 3 + added)
        assert world.status()["replicas"] == 3 + added
        assert world.state().scaled_at == world.now

    def test_nodes_lost_while_prometheus_is_silent_are_made_up_for(self) -> None:
        world = MixedCluster()
        world.pool()
        world.until(lambda: ordered(world.fixed) == 1)
        world.prometheus.silent = "no answer"
        world.spot.unschedulable = True
        for engine in world.spot.engines[1:]:
            gone = {"metadata": {"namespace": "chat", "name": engine.name, "uid": engine.name}}
            world.cache.see_pod(gone, gone=True)
            world.spot.orders.append(world.now)
        del world.spot.engines[1:]
        before = ordered(world.fixed) + ordered(world.spot)
        world.step(minutes=5)
        assert len(world.fixed.engines) + len(world.spot.engines) >= before
        assert ordered(world.spot) == 2, "one pending pod stays, to see when nodes are back"

    @pytest.mark.parametrize("error", [Conflict("409"), Forbidden("403"), Unanswered("no answer")])
    def test_nothing_is_removed_if_what_was_to_be_added_was_not_ordered(self, error: Exception) -> None:
        world = decided()
        world.refused["spot"] = error
        outcome = act(world, spot=4, fixed=1)
        assert changes(world) == []
        assert outcome is not None
        assert not outcome.scaled
        assert (outcome.failure is None) == isinstance(error, Conflict), "somebody else was faster: that is no fault"

    @pytest.mark.parametrize("error", [Conflict("409"), Forbidden("403"), Unanswered("no answer")])
    def test_other_targets_are_added_to_though_one_could_not_be(self, error: Exception) -> None:
        world = decided()
        world.refused["spot"] = error
        outcome = act(world, spot=4, fixed=5)
        assert changes(world) == [("fixed", 3, 5)]
        assert outcome is not None
        assert (outcome.scaled, outcome.ordered) == (True, 7), "5 there, and 2 of spot as before"
        assert not outcome.complete, "so the status shows each target as it was seen"

    def test_the_outcome_is_the_sum_over_all_targets(self) -> None:
        world = decided()
        outcome = act(world, spot=4, fixed=1)
        assert changes(world) == [("spot", 2, 4), ("fixed", 3, 1)]
        assert outcome == ScaleOutcome(scaled=True, ordered=5, complete=True)
        newest = world.state().history.changes[0]
        assert (newest.from_, newest.to) == (5, 5), "one decision is one change"

    def test_nothing_more_is_sent_once_the_pool_has_changed(self) -> None:
        world = decided()
        actions = tuple(ScaleAction(world.workload(name), count) for name, count in (("spot", 4), ("fixed", 1)))
        plan = replace(world.plans[-1], actions=actions)
        outcome = asyncio.run(world.actor.act(plan, world.state(), lambda: not world.writes.scales, lambda _: True))
        assert changes(world) == [("spot", 2, 4)]
        assert outcome is not None
        assert outcome.ordered == 7
        assert asyncio.run(world.actor.act(plan, world.state(), lambda: False, lambda _: True)) is None


def stuck(world: MixedCluster, name: str) -> str | None:
    return next(part.stuck for part in world.plans[-1].decision.parts if part.target == name)


class TestMarks:
    def test_each_target_is_marked_for_its_own_scale_down(self) -> None:
        world = MixedCluster(fixed=3, spot=3)
        world.pool()
        world.step()
        act(world, fixed=2, spot=1)
        kinds = [(each.split()[0], each.split()[1].split("-")[0]) for each in world.writes.order]
        assert [kind for kind, _ in kinds] == ["cost", "scale", "cost", "cost", "scale"]
        assert [service for kind, service in kinds if kind == "cost"] == ["fixed", "spot", "spot"]

    def test_what_is_not_removed_is_not_marked(self) -> None:
        world = decided()
        world.refused["spot"] = Forbidden("403")
        act(world, spot=4, fixed=1)
        assert world.writes.costs == []


class TestStateOfEachTarget:
    def test_an_order_without_an_answer_is_told_once_its_own_target_shows_it(self) -> None:
        world = decided()
        world.refused["spot"] = Unanswered("no answer")
        act(world, spot=4)
        sent = world.now
        assert [order.at for order in world.target("spot").open] == [sent]
        assert world.target("fixed").open == ()
        assert world.state().scaled_at is None
        world.set_replicas("spot", 4, by="servingpool-operator")
        world.step()
        assert not any(one.open for one in world.state().targets.values())
        assert world.state().scaled_at == sent
        newest = world.status()["history"][0]
        assert (newest["from"], newest["to"], newest["by"]) == (5, 7, "servingpool-operator")

    def test_who_resets_one_target_is_named_with_it(self) -> None:
        world = MixedCluster(rate=60.0, fixed=1, spot=2)
        world.pool()
        for _ in range(80):
            world.step(minutes=1)
            if ordered(world.spot) != 2:
                world.set_replicas("spot", 2, by="argocd")
            if world.state().drift is not None:
                break
        world.step()
        assert world.condition("Ready") == ("False", "ReplicasContested")
        assert world.message("Ready").startswith("Deployment spot: argocd keeps resetting spec.replicas (last ")
        assert world.target("fixed").contest.problem is None

    def test_a_target_that_left_the_spec_is_forgotten(self) -> None:
        world = decided()
        assert world.state().targets.keys() == {FIXED_KEY, SPOT_KEY}
        world.pool(targets=[FIXED])
        world.step()
        assert world.state().targets.keys() == {FIXED_KEY}


class TestTargetsThatMayNotBeScaled:
    def test_a_pool_is_refused_with_the_fault_of_its_first_target_that_cannot_be_read(self) -> None:
        world = MixedCluster(rate=60.0, fixed=1, spot=1)
        world.pool(targets=[FIXED, {"name": "gone", "max": 3}, {"name": "lost", "max": 3}])
        world.pool("other", targets=[{"name": "spot", "min": 2, "max": 3}])
        world.step(minutes=10)
        assert world.condition("Ready") == ("False", "TargetNotFound")
        assert "Deployment gone" in world.message("Ready")
        assert ordered(world.fixed) == 1, "all others stay as they are"
        assert ordered(world.spot) >= 2, "other pools go on"

    def test_of_two_pools_that_share_a_target_the_younger_scales_none_of_its_targets(self) -> None:
        world = MixedCluster(rate=60.0, fixed=1, spot=2)
        world.serve("third", replicas=1, rate=30.0)
        third = {"name": "third", "min": 2, "max": 5}
        world.pool("older", targets=[FIXED, SPOT], created=world.now - 60.0)
        world.pool("younger", targets=[third, SPOT])
        world.step(minutes=10)
        assert world.condition("Ready", "younger") == ("False", "AmbiguousOwner")
        assert "older" in world.message("Ready", "younger")
        assert "Deployment spot" in world.message("Ready", "younger")
        assert world.condition("Ready", "older")[0] == "True"
        assert "third" not in {name for name, _, _ in changes(world)}
        assert {name for name, _, _ in changes(world)} <= {"fixed", "spot"}
        world.delete("older")
        world.step()
        assert world.condition("Ready", "younger")[0] == "True"
        assert ordered(world.services["third"]) >= 2

    def test_an_autoscaler_on_one_target_blocks_the_pool(self) -> None:
        world = MixedCluster(rate=60.0, fixed=1, spot=2)
        world.autoscaler("HorizontalPodAutoscaler", target="spot")
        world.pool()
        world.step(minutes=10)
        assert world.condition("Ready") == ("False", "OwnedByHPA")
        assert changes(world) == []

    def test_replicas_that_somebody_set_to_0_are_left_there_until_one_target_is_back(self) -> None:
        world = decided()
        for name in ("fixed", "spot"):
            world.set_replicas(name, 0)
        world.step(minutes=10)
        assert world.condition("Ready") == ("False", "ScalingDisabled")
        assert world.message("Ready") == "Deployment fixed has 0 replicas, so scaling is off. Scale it to 1 to resume."
        assert changes(world) == []
        world.set_replicas("fixed", 1)
        world.step(minutes=10)
        assert world.condition("Ready")[0] == "True"
        assert changes(world) != []


def test_recommended_is_each_mix_once_though_the_sum_stays_the_same() -> None:
    world = MixedCluster(fixed=4)
    world.pool(mode="Recommend")
    world.step(minutes=25)
    told = [message for _, _, reason, message in world.writes.events if reason == "Recommended"]
    assert told
    assert len(told) == len(set(told))
    assert changes(world) == []


class TestMemory:
    def test_the_past_is_not_read_as_it_does_not_tell_the_targets_apart(self) -> None:
        world = MixedCluster(history=3600.0)
        world.remember(60)
        world.pool()
        world.step()
        assert "history" not in world.prometheus.asked
        assert world.state().plan is not None, "nor does a decision wait for it"

    def test_at_the_start_other_pools_have_their_history_before_the_first_decision_as_ever(self) -> None:
        world = MixedCluster(history=3600.0)
        world.serve("third", replicas=2, rate=6.0)
        world.remember(60)
        world.pool()
        world.pool("other", targets=[{"name": "third", "min": 1, "max": 5}])
        world.step()
        assert world.prometheus.asked.count("history") == 1
        assert world.condition("Calibrating", "other")[0] == "False"

    def test_from_one_target_to_two_and_back_what_was_learned_stays(self) -> None:
        world = MixedCluster(fixed=4)
        world.pool(targets=[FIXED])
        world.step(minutes=20)
        learned = world.state().memory.profile
        assert ([kind.target for kind in learned.kinds], learned.reference) == (["fixed"], "fixed")
        world.pool()
        world.step()
        assert world.condition("Calibrating")[0] == "False"
        assert world.state().memory.profile.reference == "fixed"
        assert world.state().memory.profile.learned > learned.learned
        world.until(lambda: ordered(world.fixed) == 1)
        world.pool(targets=[{**SPOT, "min": 1}])
        world.step()
        profile = world.state().memory.profile
        assert ([kind.target for kind in profile.kinds], profile.reference) == (["spot"], "spot")
        assert world.condition("Calibrating")[0] == "False"
        world.set_replicas("fixed", 0)
        world.step(minutes=20)
        assert world.condition("SLOMet")[0] == "True"
