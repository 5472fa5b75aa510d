"""Prefill and decode under budgets of GPUs: both roles or none, through the whole loop. Each replica has four GPUs."""

from __future__ import annotations

import random
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

from ..reconcile.fake_cluster import DrainsWhatRan  # noqa: TID252, tests are no package of an installed name
from ..reconcile.role_cluster import DECODE, GATEWAY, PREFILL, RoleCluster  # noqa: TID252
from .test_budgets import GPUS, budget, held, run, status

ASLEEP = [{**PREFILL, "min": 0}, {**DECODE, "min": 0}]


class Chaos(DrainsWhatRan, RoleCluster):
    """Any sequence of events."""


def rival(world: RoleCluster, least: int, *, rate: float = 40.0, most: int = 20, **settings: Any) -> None:
    """A pool that outranks the other one."""
    world.serve("rival", rate=rate, **settings)
    world.pool("rival", targets=[{"name": "rival", "min": least, "max": most}], priority=9)


def pairs_in(world: RoleCluster) -> list[tuple[int, int]]:
    """Replicas due to prefill and to decode, for each budget with both roles."""
    found = []
    for shared in world.budgets.latest.values():
        due = {role: shared.grants.get(f"chat/pool ({role})") for role in ("prefill", "decode")}
        if due["prefill"] is not None and due["decode"] is not None:
            found.append((due["prefill"].share, due["decode"].share))
    return found


class TestSqueezed:
    def test_a_running_pool_for_which_one_replica_is_left_gives_that_up_too_and_comes_back(self) -> None:
        world = RoleCluster(rate=8.0)
        world.pool()
        world.step(minutes=40)
        assert min(world.ordered) >= 1
        budget(world, GPUS)
        world.step(minutes=30)
        assert (world.ordered, held(world)) == ((0, 0), 0), "one role alone would hold a GPU and serve nothing"
        assert world.condition("ScalingLimited") == ("True", "GPUBudget")
        assert "one replica each of prefill and decode takes 8 GPUs" in world.message("ScalingLimited")
        budget(world, 2 * GPUS, generation=2)
        world.step(minutes=10)
        assert world.ordered == (1, 1)

    def test_a_running_pool_gives_way_as_a_whole_to_the_floor_of_another_and_not_to_its_min(self) -> None:
        world = RoleCluster(rate=8.0)
        world.pool()
        rival(world, 4)
        budget(world, 5 * GPUS)
        run(world, 40, 6 * GPUS)
        assert world.ordered == (1, 1), "its mins stood first"
        floors = [{"namespace": "chat", "pool": "rival", "gpus": 4 * GPUS}]
        budget(world, 5 * GPUS, generation=2, floors=floors)
        run(world, 40, 6 * GPUS)
        assert world.ordered == (0, 0)
        assert [one["due"] for one in status(world)["pools"]][1] == 0, "no GPU is kept free for it"

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


class TestAsleep:
    def test_a_gpu_on_which_neither_role_can_wake_is_not_kept_from_another_pool(self) -> None:
        world = RoleCluster(rate=0.0, prefill=0, decode=0)
        world.pool(targets=ASLEEP, metrics={"gateway": GATEWAY})
        rival(world, 3, replicas=3, most=4)
        world.rate = 2.0
        budget(world, 4 * GPUS)
        run(world, 30, 4 * GPUS)
        assert world.ordered == (0, 0)
        [high, pool] = status(world)["pools"]
        assert pool == {**pool, "held": 0, "due": 0, "wanted": 2 * GPUS}, "it waits for nobody's pods"
        assert high["due"] <= 4 * GPUS


class TestFloor:
    def test_a_floor_for_two_replicas_serves_though_decode_asks_for_most_of_it(self) -> None:
        world = RoleCluster(rate=8.0, prefill=1, decode=3)
        world.prompt, world.output = 500.0, 3000.0
        world.pool()
        rival(world, 4, rate=60.0)
        budget(world, 6 * GPUS, floors=[{"namespace": "chat", "pool": "pool", "gpus": 2 * GPUS}])
        for _ in range(8):
            world.step(minutes=10)
            assert world.ordered == (1, 1)


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


@pytest.mark.parametrize("seed", [2, 3])
def test_in_no_sequence_one_role_alone_is_due_or_left(seed: int) -> None:
    chance = random.Random(seed)
    world = Chaos(rate=8.0)
    world.pool(targets=ASLEEP, metrics={"gateway": GATEWAY})
    rival(world, 1, rate=6.0)
    gpus, generation, alone = 6 * GPUS, 1, 0
    budget(world, gpus)
    world.step(minutes=10)
    for _ in range(240):
        match chance.randrange(30):
            case 0 | 1:
                world.rate = chance.choice((0.0, 2.0, 8.0, 24.0))
            case 2 | 3:
                world.services["rival"].rate = chance.choice((1.0, 15.0, 40.0))
            case 4:
                gpus, generation = chance.choice((1, 2, 3, 6, 8)) * GPUS, generation + 1
                budget(world, gpus, generation=generation)
            case 5:
                world.drain = not world.drain
            case 6 | 7 | 8:
                world.drained(chance.choice(("prefill", "decode", "rival")))
            case 9:
                world.restart()
            case 10:
                world.pool("rival", targets=[{"name": "rival", "min": chance.randrange(1, 6), "max": 20}], priority=9)
        before = held(world)
        world.step()
        assert held(world) <= max(before, gpus), "it grows within the budget only"
        for prefill, decode in pairs_in(world):
            assert (prefill == 0) == (decode == 0)
        alone = alone + 1 if (world.ordered[0] == 0) != (world.ordered[1] == 0) else 0
        assert alone <= 2, "a tick or two, until the other was ordered away"
