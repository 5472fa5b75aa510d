"""Prefill and decode in one pool, through the whole loop: each sized by its own metrics, both together at the ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from servingpool.adapters.cluster.errors import Unanswered
from servingpool.decision.learn.memory import Profile
from servingpool.reconcile.keep import learned_profile

from ..gpubudget.test_budgets import GPUS, budget, held  # noqa: TID252, tests are no package of an installed name
from .kept import kept
from .role_cluster import DECODE, GATEWAY, PREFILL, RoleCluster


def settled(minutes: float = 20.0, spec: dict[str, Any] | None = None, **settings: Any) -> RoleCluster:
    def begun() -> RoleCluster:
        world = RoleCluster(**settings)
        world.pool(**(spec or {}))
        world.step(minutes=minutes)
        return world

    return kept(f"roles {minutes} {spec} {settings}", begun)


class TestSizes:
    def test_each_role_is_sized_by_its_own_part_of_the_work(self) -> None:
        long_prompts, long_answers = RoleCluster(rate=16.0), RoleCluster(rate=16.0)
        long_answers.prompt, long_answers.output = 1000.0, 2000.0
        for world in (long_prompts, long_answers):
            world.pool()
            world.step(minutes=12)
        assert long_prompts.ordered[0] > long_answers.ordered[0]
        assert long_prompts.ordered[1] < long_answers.ordered[1]

    def test_the_status_has_what_each_decision_rests_on(self) -> None:
        world = settled()
        for role, service in (("prefill", world.prefill), ("decode", world.decode)):
            side = world.side(role)
            assert side["replicas"] == side["desiredReplicas"] == len(service.engines)
            decision = side["lastDecision"]
            assert decision["need"] > 0.0
            assert {"workPerRequest", "penalty", "forForecast"} <= decision["figures"].keys()
            assert decision["safeLoad"] > 0.0
        whole = world.status()["lastDecision"]
        assert whole["reason"].startswith("prefill: hold ")
        assert "; decode: hold " in whole["reason"]
        assert not {"need", "load"} & whole.keys()
        assert world.status()["replicas"] == sum(world.ordered)
        assert world.status()["throughput"]["generationTokensPerSecond"] == pytest.approx(1600.0, rel=0.05)
        assert world.status()["throughput"]["promptTokensPerSecond"] == pytest.approx(24_000.0, rel=0.05)

    def test_an_answer_that_somebody_has_a_prefill_engine_write_changes_nothing_of_what_a_prompt_costs(self) -> None:
        """A curl to see whether it runs. One of 150 tokens made a prompt 11 times cheaper on a real vLLM."""
        figures = []
        for tokens in (0, 150):
            world = settled(rate=2.5, prefill=1, spec={"targets": [{**PREFILL, "max": 1}, DECODE]})
            engine = world.prefill.engines[0]
            engine.output += tokens
            engine.decode_steps += tokens
            engine.decode_seconds += tokens * 0.016
            world.step(minutes=1)
            figures.append(world.side("prefill")["lastDecision"]["figures"]["stepPerPrefillToken"])
        assert figures[1] == pytest.approx(figures[0], rel=0.01)

    def test_kv_caches_that_come_late_are_no_slo_that_is_met(self) -> None:
        world = settled()
        assert world.condition("SLOMet")[0] == "True"
        world.transfer = 28.0  # as on a real pair whose transport had fallen back to the host's memory
        world.step(minutes=14)
        assert world.condition("SLOMet") == ("False", "ObjectiveUnattainable")
        decode = world.side("decode")["lastDecision"]["figures"]
        assert decode["attainmentNow"] < 0.2
        assert world.side("prefill")["lastDecision"]["figures"]["attainmentNow"] > 0.95

    def test_a_role_may_have_several_targets(self) -> None:
        world = RoleCluster(decode=1)
        world.serve("spot", replicas=0)
        dear, cheap = {**DECODE, "costPerReplicaHour": 4}, {**DECODE, "name": "spot", "costPerReplicaHour": 1}
        world.pool(targets=[{**PREFILL, "costPerReplicaHour": 4}, dear, cheap])
        world.step(minutes=10)
        assert world.condition("TargetsAvailable") == ("True", "TargetsDeliver")
        assert [one["name"] for one in world.status()["targets"]] == ["prefill", "decode", "spot"]
        assert len(world.services["spot"].orders) + len(world.services["spot"].engines) > 0, "it is tried"

    def test_what_one_role_lacks_begins_with_its_name(self) -> None:
        world = RoleCluster(decode=1)
        world.serve("spot", replicas=0).unschedulable = True
        world.pool(targets=[PREFILL, DECODE, {**DECODE, "name": "spot"}])
        world.step(minutes=20)
        assert world.condition("TargetsAvailable") == ("False", "TargetNotDelivering")
        assert world.message("TargetsAvailable").startswith("decode: spot: pods without a node: 1.")
        assert world.condition("MetricsAvailable") == ("True", "ValidMetrics")
        world.hidden.add(world.prefill.engines[0].name)
        world.step(minutes=2)
        assert world.condition("MetricsAvailable") == ("True", "PartialMetrics")
        assert world.message("MetricsAvailable").startswith("prefill: ")
        world.hidden.add(world.decode.engines[0].name)
        world.step(minutes=2)
        assert "(2 pods: decode-7c9f-" in world.message("MetricsAvailable"), "both lack something"
        world.hidden -= {world.prefill.engines[0].name}
        world.step(minutes=2)
        assert world.message("MetricsAvailable").startswith("decode: Not scraped, or ")

    def test_what_a_role_lacks_is_told_before_what_the_other_has_beyond_its_need(self) -> None:
        world = RoleCluster(rate=24.0)
        world.prompt, world.output = 500.0, 3000.0
        world.pool(targets=[PREFILL, {**DECODE, "max": 2}], prefillPerDecode={"min": 6})
        world.step(minutes=12)
        assert world.side("prefill")["lastDecision"]["limits"][-1]["name"] == "PrefillPerDecode"
        assert world.condition("ScalingLimited") == ("True", "TooManyReplicas")
        assert world.message("ScalingLimited").startswith("decode: ")
        assert world.status()["why"] == "TooManyReplicas"


class TestTogether:
    @pytest.mark.parametrize(
        ("ratio", "holds"), [({"max": 1}, lambda p, d: p <= d), ({"min": 3}, lambda p, d: p >= 3 * d)]
    )
    def test_the_ratio_raises_the_smaller_role(self, ratio: dict[str, float], holds: Any) -> None:
        alone, bound = settled(), settled()
        bound.pool(prefillPerDecode=ratio)
        for world in (alone, bound):
            world.step(minutes=10)
        prefill, decode = alone.ordered
        assert not holds(prefill, decode)
        assert holds(*bound.ordered)
        assert all(now >= before for now, before in zip(bound.ordered, alone.ordered, strict=True)), "none is lowered"
        raised = bound.side("decode" if "max" in ratio else "prefill")["lastDecision"]
        other = "prefill" if "max" in ratio else "decode"
        assert any(limit["reason"].endswith(f"for {other}") for limit in raised["limits"])
        assert bound.condition("ScalingLimited") == ("True", "PrefillPerDecode"), "lower min would change nothing"
        assert f" prefillPerDecode raises them to {max(bound.ordered)} beside " in bound.message("ScalingLimited")

    def test_the_largest_change_of_a_step_is_of_each_role(self) -> None:
        world = settled(rate=4.0, spec={"behavior": {"maxChangePerStep": 1}})
        world.rate, changes = 40.0, set()
        for _ in range(40):
            before = world.ordered
            world.step()
            changes.add(tuple(now - then for now, then in zip(world.ordered, before, strict=True)))
        assert max(map(max, changes)) == 1
        assert (1, 1) in changes, "each role takes its own step"

    def test_both_sleep_and_both_wake(self) -> None:
        targets = [{**PREFILL, "min": 0}, {**DECODE, "min": 0}]
        world = settled(spec={"targets": targets, "metrics": {"gateway": GATEWAY}})
        assert min(world.ordered) >= 1
        while min(world.ordered) > 0:
            world.go(0.0, 0.25)
        assert world.ordered == (0, 0), "neither is kept without the other"
        world.step(minutes=1)
        assert world.condition("MetricsAvailable") == ("True", "ScaledToZero")
        world.go(0.2, 0.25)
        assert min(world.ordered) >= 1, "both in one tick"

    def test_a_role_that_is_blind_holds_both_above_zero(self) -> None:
        targets = [{**PREFILL, "min": 0}, {**DECODE, "min": 0}]
        world = settled(spec={"targets": targets, "metrics": {"gateway": GATEWAY}})
        world.hidden |= {engine.name for engine in world.decode.engines}
        world.go(0.0, 20)
        assert min(world.ordered) >= 1
        assert world.condition("MetricsAvailable") == ("True", "PartialMetrics")
        assert "decode-" in world.message("MetricsAvailable")
        assert world.condition("ScalingLimited") == ("True", "OtherRoleRuns")
        assert world.message("ScalingLimited") == (
            "prefill: The traffic needs 0 replicas; raised to 1 because decode has 2: neither role is at 0 alone."
        )

    def test_a_lost_role_does_not_shrink_the_other(self) -> None:
        world = settled()
        before = world.ordered
        world.hidden |= {engine.name for engine in world.prefill.engines}
        world.step(minutes=6)
        assert world.ordered[0] == before[0]
        assert world.ordered[1] >= 1

    def test_a_role_without_nodes_keeps_one_pending_pod_and_the_other_its_size(self) -> None:
        world = RoleCluster(rate=24.0)
        world.pool(prefillPerDecode={"max": 1})
        world.prefill.unschedulable = True
        world.step(minutes=20)
        assert world.ordered == (3, 3), "two of prefill are Ready, and one waits for a node"
        assert world.condition("TargetsAvailable") == ("False", "TargetNotDelivering")
        assert world.message("TargetsAvailable").startswith("prefill: pods without a node: 1."), "not named twice"
        orders = len(world.writes.scales)
        world.step(minutes=10)
        assert len(world.writes.scales) == orders, "it is not ordered and removed by turns"
        world.prefill.unschedulable = False
        world.step(minutes=10)
        assert len(world.prefill.engines) > 3


class TestKept:
    @pytest.mark.parametrize("stops", [False, True])
    @pytest.mark.parametrize("roles", [("prefill", "decode"), ("",)])
    def test_the_profile_of_roles_that_came_or_went_during_an_outage_is_alone_in_the_status(
        self, roles: tuple[str, ...], *, stops: bool
    ) -> None:
        """No write is answered while the targets change, so what the status holds is unknown."""
        both, one = [PREFILL, DECODE], [{"name": "decode", "max": 12}]
        before, after = (one, both) if roles != ("",) else (both, one)
        world = settled(spec=None if before is both else {"targets": before})
        assert world.status()["profile"]
        world.writes.refuse["status"] = Unanswered("504")
        world.pool(targets=after)
        world.step(minutes=18)
        del world.writes.refuse["status"]
        if stops:
            asyncio.run(world.loop.stop())
        else:
            world.step()
        stored = world.status()["profile"]
        expected = {"model", "roles"} if roles != ("",) else learned_profile.dump(Profile()).keys() | {"model"}
        assert stored.keys() <= expected
        world.restart()
        world.step()
        kept = world.state().kept
        assert kept.in_use == roles
        assert min(kept.memories[role].profile.learned for role in roles) > 1000.0

    @pytest.mark.parametrize("damage", [None, {}, {"decode": 7}, {"decode": "x"}])
    def test_a_damaged_profile_is_discarded(self, damage: Any) -> None:
        world = settled()
        kept = world.status()["profile"]
        kept["roles"] = {"prefill": kept["roles"]["prefill"]} | damage if isinstance(damage, dict) else damage
        world.restart()
        world.step()
        assert world.state().kept.memories["prefill"].profile.learned < 100.0


class TestBudget:
    def test_both_roles_stay_within_and_leave_room_for_each_other(self) -> None:
        world = RoleCluster(rate=24.0)
        world.pool()
        budget(world, 6 * GPUS)
        for _ in range(60):
            world.step()
            assert held(world) <= 6 * GPUS
        assert sum(world.ordered) == 6
        assert min(world.ordered) >= 1
        assert world.status()["why"] == "GPUBudget", "as the alert ServingPoolHeldBelowNeed promises"
        assert world.condition("ScalingLimited") == ("True", "GPUBudget")
        assert world.message("ScalingLimited").startswith("prefill: ")

    def test_the_floor_counts_for_both(self) -> None:
        world = RoleCluster(rate=8.0)
        world.pool()
        world.serve("rival", rate=40.0)
        world.pool("rival", targets=[{"name": "rival", "min": 1, "max": 20}], priority=9)
        budget(world, 8 * GPUS, floors=[{"namespace": "chat", "pool": "pool", "gpus": 4 * GPUS}])
        for _ in range(50):
            world.step()
            assert held(world) <= 8 * GPUS
        assert sum(world.ordered) >= 4
        assert min(world.ordered) >= 1

    @pytest.mark.parametrize("apart", [False, True])
    def test_neither_role_wakes_while_there_is_no_room_for_the_other(self, *, apart: bool) -> None:
        world = RoleCluster(rate=0.0, prefill=0, decode=0)
        world.nodes = {"prefill": {"gpu": "a"}, "decode": {"gpu": "b"}, "rival": {"gpu": "b"}}
        world.show("prefill")
        world.show("decode")
        world.pool(targets=[{**PREFILL, "min": 0}, {**DECODE, "min": 0}], metrics={"gateway": GATEWAY})
        world.serve("rival", replicas=3, rate=1.0)
        world.pool("rival", targets=[{"name": "rival", "min": 3, "max": 3}], priority=9)
        rest: dict[str, Any] = {"nodeSelector": {"gpu": "b"}} if apart else {}
        full, enough = (3, 4) if apart else (4, 5)
        budget(world, full * GPUS, **rest)
        world.go(2.0, 10)
        assert world.ordered == (0, 0), "a role alone would hold GPUs and serve nothing"
        assert world.condition("ScalingLimited") == ("True", "GPUBudget")
        assert "GPUBudget h100 allows 0: " in world.status()["lastDecision"]["reason"]
        budget(world, enough * GPUS, generation=2, **rest)
        world.step(minutes=1)
        assert min(world.ordered) >= 1

    def test_the_ratio_follows_what_a_budget_leaves_of_the_other_role(self) -> None:
        world = RoleCluster(rate=24.0)
        world.nodes = {"prefill": {"gpu": "a"}, "decode": {"gpu": "b"}}
        world.pool(prefillPerDecode={"max": 1})
        budget(world, 4 * GPUS, nodeSelector={"gpu": "a"})
        world.step(minutes=10)
        assert world.ordered == (4, 4), "one decode replica for each of prefill that there is"
        assert world.side("decode")["lastDecision"]["limits"][-1]["reason"].endswith("4 beside 4 for prefill")
        assert world.condition("ScalingLimited") == ("True", "GPUBudget")
        orders = len(world.writes.scales)
        world.step(minutes=10)
        assert len(world.writes.scales) == orders, "it is not ordered and removed by turns"
        budget(world, 8 * GPUS, generation=2, nodeSelector={"gpu": "a"})
        world.step(minutes=3)
        assert world.ordered[0] > 4
        assert world.ordered[1] == world.ordered[0], "both grow once there is room for one of them"

    def test_the_ratio_raises_no_role_beyond_its_own_budget_and_lowers_none_below_its_need(self) -> None:
        world = RoleCluster(rate=24.0)
        world.nodes = {"prefill": {"gpu": "a"}, "decode": {"gpu": "b"}}
        world.pool(prefillPerDecode={"max": 0.5})
        budget(world, 4 * GPUS, "of-prefill", nodeSelector={"gpu": "a"})
        budget(world, 3 * GPUS, "of-decode", nodeSelector={"gpu": "b"})
        world.step(minutes=10)
        assert world.ordered == (4, 3), "8 would go with 4 for prefill"
        budget(world, 1 * GPUS, "of-prefill", generation=2, nodeSelector={"gpu": "a"})
        world.output = 2000.0
        world.step(minutes=10)
        assert world.ordered == (1, 3), "2 would go with 1 for prefill, and its traffic needs more"
