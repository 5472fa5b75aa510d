"""Pools of two targets that share budgets of GPUs, through the whole loop. Each replica has four GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from servingpool.adapters.cluster.objects import TargetKey
from servingpool.api.serving_pool import ServingPool
from servingpool.decision.decision import Decision, Part
from servingpool.gpubudget.members import _called
from servingpool.gpubudget.plans import Allowance, within
from servingpool.reconcile.collect.targets import keys_of
from servingpool.reconcile.plan.pool_plan import PoolPlan, with_decisions

from ..reconcile.fake_cluster import FakeCluster  # noqa: TID252, tests are no package of an installed name
from ..reconcile.mixed_cluster import MixedCluster, changes, ordered  # noqa: TID252
from .test_budgets import GPUS, budget, held, status

FIXED_KEY, SPOT_KEY = TargetKey("chat", "fixed"), TargetKey("chat", "spot")


def mixed(gpus: int, *, apart: bool = False, **settings: Any) -> MixedCluster:
    """One budget; `apart`: it counts the GPUs of spot only, and those of fixed are in none."""
    world = MixedCluster(**settings)
    if apart:
        world.nodes |= {"spot": {"gpu": "l40s"}, "fixed": {"gpu": "h100"}}
        world.show("spot")
        world.show("fixed")
    world.pool()
    budget(world, gpus, nodeSelector={"gpu": "l40s"} if apart else {})
    return world


def run(world: FakeCluster, minutes: float, most: int) -> None:
    for _ in range(round(minutes * 4)):
        world.step()
        assert held(world) <= most


class TestOneBudget:
    def test_lost_spot_replicas_are_replaced_though_their_pending_pods_held_the_budget(self) -> None:
        world = mixed(16, fixed=1, spot=3)
        run(world, 25, 16)
        world.lose_nodes("spot")
        world.until(lambda: len(world.fixed.engines) == 4, minutes=15)
        assert held(world) <= 16
        scales = len(changes(world))
        run(world, 20, 16)
        assert len(changes(world)) == scales, "spot is not tried over and over while no GPU is free"
        sufficient = next(one for one in status(world)["conditions"] if one["type"] == "Sufficient")
        assert sufficient["status"] == "True", "a cheaper mix is no need"

    def test_a_part_whose_gpus_are_unknown_closes_the_budget_and_names_it(self) -> None:
        world = mixed(40, fixed=1)
        world.claims["spot"] = [{"name": "gpu", "resourceClaimName": "shared"}]
        world.show("spot")
        world.rate = 40.0
        run(world, 25, 40)
        assert changes(world) == []
        counted = next(one for one in status(world)["conditions"] if one["type"] == "Counted")
        assert counted["message"].startswith("The GPUs of chat/pool (spot) are unknown")


def test_a_budget_calls_targets_what_their_pool_calls_them() -> None:
    twice = [{"name": "vllm", "max": 3}, {"name": "vllm", "kind": "StatefulSet", "max": 3}, {"name": "spot", "max": 3}]
    for targets in (twice, twice[1:], twice[:1]):
        world = FakeCluster()
        world.pool(targets=targets)
        raw = world.cache.pools["chat", "pool"]
        pool = world.loop.states.parse(("chat", "pool"), raw)
        assert isinstance(pool, ServingPool)
        names = pool.spec.target_names
        assert _called(pool.key, raw) == dict(zip(keys_of(pool), names, strict=True))
    other = {"name": "vllm", "apiVersion": "other.io/v1", "max": 3}
    world.pool(targets=[twice[0], other])
    named = _called(("chat", "pool"), world.cache.pools["chat", "pool"])
    assert sorted(named.values()) == ["Deployment.apps/vllm", "Deployment.other.io/vllm"]


class TestTwoPlaces:
    def test_only_the_target_that_lies_in_the_budget_counts(self) -> None:
        world = mixed(8, apart=True, fixed=3, spot=1)
        run(world, 1, 99)
        assert status(world)["held"] == GPUS
        assert [one.claimed_as for one in world.budgets.latest["h100"].members] == ["chat/pool (spot)"]

    def test_the_other_target_is_ordered_at_once_where_the_budget_has_no_gpu(self) -> None:
        world = mixed(8, apart=True, fixed=2, spot=2)
        run(world, 25, 99)
        assert ordered(world.spot) == 2
        world.rate = 40.0
        since = len(changes(world))
        world.until(lambda: len(changes(world)) > since, minutes=1)
        assert changes(world)[since][0] == "fixed"
        world.step(minutes=10)
        settled = len(changes(world))
        world.step(minutes=20)
        assert len(changes(world)) <= settled + 1, "it does not oscillate"
        assert ordered(world.spot) <= 2

    def test_freed_gpus_bring_the_cheaper_target_home_once(self) -> None:
        world = mixed(4, apart=True, fixed=4, spot=1)
        run(world, 40, 99)
        assert ordered(world.spot) == 1
        budget(world, 40, generation=2, nodeSelector={"gpu": "l40s"})
        since = len(changes(world))
        world.until(lambda: ordered(world.fixed) == 1, minutes=30)
        assert ordered(world.spot) >= 3
        assert [after > before for _, before, after in changes(world)[since:]] == [True, False]


class TwoPools(MixedCluster):
    """Pools a and b, each with a cheap target in one budget, `home`, and a dear one in none, `away`."""

    def __init__(self, gpus: int) -> None:
        super().__init__(fixed=0, spot=0)
        self.services.clear()
        for name, replicas in (("a-home", 1), ("a-away", 3), ("b-home", 1), ("b-away", 3)):
            self.nodes[name] = {"gpu": name[2:]}
            self.serve(name, replicas=replicas)
        home, away = {"min": 0, "max": 8, "costPerReplicaHour": 1}, {"min": 1, "max": 8, "costPerReplicaHour": 4}
        for name in ("a", "b"):
            self.pool(name, targets=[{"name": f"{name}-home", **home}, {"name": f"{name}-away", **away}])
        budget(self, gpus, nodeSelector={"gpu": "home"})

    def _share(self) -> None:
        for name in ("a", "b"):
            own = [each for each in self.services.values() if each.name.startswith(name)]
            pods = sum(len(each.engines) for each in own)
            for each in own:
                each.rate = self.rate * len(each.engines) / max(1, pods)


class TestTwoPools:
    def test_pools_that_both_would_come_home_to_a_budget_without_room_come_to_rest(self) -> None:
        world = TwoPools(16)
        for rate, takes in ((20.0, 30.0), (18.0, 30.0), (20.0, 15.0)):
            world.rate = rate
            world.step(minutes=takes)
            moved = len(changes(world))
            world.step(minutes=10)
            assert len(changes(world)) == moved
        assert 2 <= moved <= 8, "the other pool takes what one gives up, and nobody takes it back"
        home, other = (ordered(world.services[name]) for name in ("a-home", "b-home"))
        assert home + other == 4, "every GPU of the budget is used"
        assert [world.condition("SLOMet", name)[0] for name in ("a", "b")] == ["True", "True"]


# What is left of a plan.


def planned(*parts: Part, capacity: float = 4.0, **spec: Any) -> PoolPlan:
    """A plan for fixed and spot, each as fast as the other."""
    world = MixedCluster(fixed=parts[0].requested, spot=parts[1].requested)
    world.pool(**spec)
    world.step()
    [plan] = world.plans
    decision = replace(
        plan.decision,
        parts=parts,
        replicas=sum(part.replicas for part in parts),
        need=capacity,
        capacity=capacity,
        limits=(),
    )
    return with_decisions(plan, [decision])


def part(target: str, requested: int, replicas: int, *, ready: int | None = None, stuck: str | None = None) -> Part:
    return Part(target, requested, replicas, requested if ready is None else ready, 1.0, 100.0, stuck)


def allowed(**most: int | None) -> dict[TargetKey, Allowance]:
    return {TargetKey("chat", name): Allowance(count, "h100", "4 of 4 GPUs are held") for name, count in most.items()}


def left(plan: PoolPlan, **most: int | None) -> tuple[dict[str, int], Decision]:
    """Replicas that the actions set, and the decision."""
    cut = within(plan, allowed(**most))
    assert [action.grows for action in cut.actions] == sorted((one.grows for one in cut.actions), reverse=True)
    return {action.target.key.name: action.replicas for action in cut.actions}, cut.decision


class TestCuts:
    def test_each_target_is_cut_by_its_own_budget_and_the_sentence_says_so(self) -> None:
        actions, decision = left(planned(part("fixed", 1, 3), part("spot", 0, 3), capacity=6.0), fixed=3, spot=1)
        assert actions == {"fixed": 3, "spot": 1}
        assert decision.replicas == 4
        assert [one.replicas for one in decision.parts] == [3, 1]
        assert decision.reason.startswith("scale up fixed 1 -> 3, spot 0 -> 1 (counted in replicas of fixed): ")
        assert decision.reason.endswith("GPUBudget h100 allows 1 spot: 4 of 4 GPUs are held")
        assert [(one.name, one.before, one.after) for one in decision.limits] == [("GPUBudget", 6.0, 4.0)]

    def test_what_is_needed_stays_where_its_replacement_is_cut(self) -> None:
        actions, decision = left(planned(part("fixed", 1, 4), part("spot", 4, 1), capacity=5.0), fixed=2)
        assert actions == {"fixed": 2, "spot": 3}
        assert [one.replicas for one in decision.parts] == [2, 3]
        assert left(planned(part("fixed", 1, 4), part("spot", 4, 1), capacity=5.0), fixed=None)[0] == {}

    def test_what_is_not_needed_goes_though_a_cheaper_mix_is_prevented(self) -> None:
        actions, decision = left(planned(part("fixed", 5, 3), part("spot", 0, 2), capacity=3.0), spot=0)
        assert actions == {"fixed": 3}
        assert decision.limits == ()
        assert "GPUBudget h100 allows 0 spot" in decision.reason

    def test_what_never_came_goes_whatever_is_cut(self) -> None:
        lost = planned(part("fixed", 1, 5), part("spot", 4, 1, ready=0, stuck="4 pods find no node"), capacity=5.0)
        assert left(lost, fixed=1, spot=0)[0] == {"spot": 0}

    def test_what_a_budget_asks_for_goes_in_steps_with_what_the_decision_gives_up(self) -> None:
        whole = planned(part("fixed", 6, 5), part("spot", 4, 4), capacity=9.0, behavior={"maxChangePerStep": 2})
        assert left(whole, fixed=2, spot=2)[0] == {"spot": 3}, (
            "one of two, for what the decision gives up is needed now"
        )
        whole = planned(part("fixed", 6, 6), part("spot", 4, 4), capacity=9.0, behavior={"maxChangePerStep": 3})
        assert left(whole, fixed=4, spot=2)[0] == {"fixed": 5, "spot": 2}
