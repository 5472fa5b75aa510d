"""Prefill and decode under budgets of GPUs: both roles or none, through the whole loop. Each replica has four GPUs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servingpool.adapters.cluster.objects import TargetKey
from servingpool.api.gpu_budget import BudgetSpec
from servingpool.gpubudget.claims import PoolNeed, TargetNeed
from servingpool.gpubudget.ledger import Held
from servingpool.gpubudget.members import Member
from servingpool.gpubudget.plans import Wanted, _floors, claims_in
from servingpool.gpubudget.sharing import Claim

from ..reconcile.role_cluster import DECODE, GATEWAY, PREFILL, RoleCluster  # noqa: TID252
from .test_budgets import GPUS, budget, run

ASLEEP = [{**PREFILL, "min": 0}, {**DECODE, "min": 0}]


def rival(world: RoleCluster, least: int, *, rate: float = 40.0, most: int = 20, **settings: Any) -> None:
    """A pool that outranks the other one."""
    world.serve("rival", rate=rate, **settings)
    world.pool("rival", targets=[{"name": "rival", "min": least, "max": most}], priority=9)


class TestSqueezed:
    def test_a_role_whose_other_one_was_refused_right_before_its_order_does_not_stay_alone(self) -> None:
        world = RoleCluster(rate=0.0, prefill=0, decode=0)
        world.pool(targets=ASLEEP, metrics={"gateway": GATEWAY})
        budget(world, 2 * GPUS)
        admits = world.budgets.admits

        def lowered(plan: Any, action: Any) -> bool:
            if action.target.key.name == "prefill":
                budget(world, GPUS, generation=2)
                return False
            return admits(plan, action)

        world.budgets.admits = lowered  # type: ignore[method-assign]
        world.go(2.0, 0.25)
        while world.ordered == (0, 0):
            world.step()
        assert world.ordered == (0, 1)
        world.budgets.admits = admits  # type: ignore[method-assign]
        world.step(minutes=10)
        assert world.ordered == (0, 0)

    def test_a_role_that_waits_for_gpus_of_its_own_keeps_what_the_other_has(self) -> None:
        world = RoleCluster(rate=8.0)
        world.pool()
        rival(world, 1, replicas=1, rate=0.1)
        budget(world, 4 * GPUS)
        run(world, 30, 6 * GPUS)
        before = world.ordered[1]
        world.drain = True
        world.set_replicas("prefill", 0)
        world.step(minutes=5)
        assert world.ordered == (0, before), "its pods drain, and one is its due"
        world.drained("prefill")
        world.step(minutes=5)
        assert min(world.ordered) >= 1

    def test_a_role_gives_up_its_gpus_where_another_budget_leaves_its_other_one_nothing(self) -> None:
        world = RoleCluster(rate=8.0)
        world.nodes = {"prefill": {"gpu": "a"}, "decode": {"gpu": "b"}}
        world.pool(behavior={"maxChangePerStep": 1})
        budget(world, 4 * GPUS, "of-prefill", nodeSelector={"gpu": "a"})
        budget(world, 4 * GPUS, "of-decode", nodeSelector={"gpu": "b"})
        world.step(minutes=40)
        assert min(world.ordered) >= 1
        budget(world, 0, "of-prefill", generation=2, nodeSelector={"gpu": "a"})
        world.step(minutes=5)
        assert world.ordered == (0, 0)
        assert "GPUBudget of-prefill allows 0: " in world.side("decode")["lastDecision"]["reason"]
        budget(world, 4 * GPUS, "of-prefill", generation=3, nodeSelector={"gpu": "a"})
        world.step(minutes=10)
        assert min(world.ordered) >= 1

    @pytest.mark.parametrize("least", [0, 1])
    def test_a_role_stays_only_where_its_other_one_may_be_ordered_outside_the_budget(self, least: int) -> None:
        world = RoleCluster(rate=8.0)
        world.serve("spot", replicas=0)
        world.nodes = {"prefill": {"gpu": "a"}, "decode": {"gpu": "a"}, "spot": {"gpu": "b"}}
        world.show("spot")
        costs = (
            ({**PREFILL, "min": least}, 1),
            ({**PREFILL, "name": "spot", "min": 0}, 9),
            ({**DECODE, "min": least}, 1),
        )
        targets = [{**each, "costPerReplicaHour": cost} for each, cost in costs]
        world.pool(targets=targets, metrics={"gateway": GATEWAY})
        budget(world, 8 * GPUS, nodeSelector={"gpu": "a"})
        world.step(minutes=3)  # before it is tried
        spot = world.services["spot"]
        assert (spot.engines, spot.orders) == ([], [])
        budget(world, GPUS, generation=2, nodeSelector={"gpu": "a"})
        for _ in range(80):
            world.step()
            assert world.ordered == (0, 1 - least)
        assert spot.replicas == 1 - least, "a target's own min is for that target"


def test_another_target_set_is_not_shared_by_what_the_old_one_wanted() -> None:
    """Until the pool itself is decided again it keeps what it has."""
    need = PoolNeed({"a": TargetNeed(5), "b": TargetNeed(5)}, (0.0,), 10.0, 4, 1)
    before = Wanted(need, float("inf"), acts=True, at=0.0)
    member = Member(("chat", "pool"), TargetKey("chat", "a"), "a", frozenset("a"), 5, None, Held(1, 5, 5))
    [claim] = claims_in(BudgetSpec.read({"gpus": 20}), [member], {member.key: (before,)}, 0.0)
    assert (claim.wanted, claim.least, claim.fixed) == (5, 0, True)


# Any claims, and any sequence.


@st.composite
def sides(draw: st.DrawFn) -> list[tuple[PoolNeed, dict[str, Claim], float]]:
    found = []
    for role in ("prefill", "decode"):
        names = [f"{role}-{number}" for number in range(draw(st.integers(1, 2)))]
        needs = {name: TargetNeed(draw(st.integers(0, 6)), draw(st.sampled_from((0.5, 1.0)))) for name in names}
        claims = {
            name: Claim(name, draw(st.sampled_from((1, 2, 4, 8))), draw(st.integers(0, 4)), 0, 0, None)
            for name in names
        }
        found.append((PoolNeed(needs, None, 0.0, 1, 1), claims, 1.0))
    return found


@given(sides(), st.integers(0, 64))
def test_a_floor_that_holds_a_replica_of_each_role_is_one_of_each(
    sides: list[tuple[PoolNeed, dict[str, Claim], float]], floor: int
) -> None:
    parts = _floors(floor, sides)
    assert sum(parts) == floor
    assert min(parts) >= 0
    least = [
        min((one.gpus for name, one in own.items() if need.targets[name].wanted), default=None)
        for need, own, _ in sides
    ]
    known = [one for one in least if one is not None]
    if len(known) == len(least) and sum(known) <= floor:
        assert all(part >= one for part, one in zip(parts, known, strict=True))
