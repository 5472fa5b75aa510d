"""Pools of several targets under budgets of GPUs: what each target claims, and that no sequence orders too many."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from servingpool.gpubudget.claims import PoolNeed, TargetNeed, claims_of
from servingpool.gpubudget.sharing import Claim, share, spare, worth

from ..decision.sequences import tell_progress  # noqa: TID252
from ..fuzzing import fuzzed  # noqa: TID252, tests are no package of an installed name
from .test_sharing import RATES, STEPS, Fleet, both_or_none, need


def held(name: str, ordered: int, *, gpus: int = 1, priority: int = 0) -> Claim:
    """A target as it stands, before what its pool wants is known."""
    return Claim(f"chat/a ({name})", gpus, ordered, gpus * ordered, ordered, None, priority=priority)


def pool(*, misses: tuple[float, ...] | None = None, least: int = 0, gpus: int = 1, **targets: TargetNeed) -> PoolNeed:
    capacity = sum(one.wanted * one.weight for one in targets.values())
    return PoolNeed(targets, need(round(capacity)) if misses is None else misses, capacity, least, gpus)


def granted(gpus: int, *claims: Claim) -> dict[str, int]:
    found = share(gpus, claims, lending=True)
    return {claim.pool.partition(" ")[2].strip("()") or claim.pool: found[claim.pool].most for claim in claims}


def test_what_stands_is_not_given_up_for_another_target_of_its_pool() -> None:
    """Else a pool under a full budget would lose replicas before those that replace them are Ready."""
    moving = pool(fast=TargetNeed(3, weight=2.0), slow=TargetNeed(4))
    moving = replace(moving, capacity=4.0)
    claims = claims_of(moving, 0, {"fast": held("fast", 0), "slow": held("slow", 4)})
    assert granted(4, *claims.values()) == {"fast": 0, "slow": 4}
    assert granted(6, *claims.values()) == {"fast": 2, "slow": 4}
    assert (claims["fast"].optional, claims["slow"].optional) == (3, 0), "the pool lacks nothing without them"


def test_a_cheaper_mix_pushes_no_other_pool_aside_whatever_the_priority() -> None:
    moving = replace(pool(home=TargetNeed(4), elsewhere=TargetNeed(4)), capacity=4.0)
    claims = claims_of(moving, 0, {"home": held("home", 0, priority=9)})
    other = Claim("other", 1, 4, 4, 4, need(4, 0.01), priority=0)
    assert granted(4, *claims.values(), other) == {"home": 0, "other": 4}
    lost = claims_of(pool(home=TargetNeed(4), elsewhere=TargetNeed(0)), 0, {"home": held("home", 0, priority=9)})
    assert share(4, [*lost.values(), other], lending=True)["chat/a (home)"].share == 4


def test_an_unknown_need_keeps_what_stands_and_grows_to_the_min_only() -> None:
    blind = replace(pool(a=TargetNeed(2, base=1), b=TargetNeed(3), least=4), misses=None)
    claims = claims_of(blind, 0, {"a": held("a", 0), "b": held("b", 2)})
    assert {name: claim.least for name, claim in claims.items()} == {"a": 2, "b": 2}
    assert granted(9, *claims.values()) == {"a": 2, "b": 2}


# Any sequence.


@dataclass
class Parts:
    """A pool of several targets, each in one of two budgets or in none, and what it wants."""

    fleets: dict[str, Fleet]
    places: dict[str, int]
    """Budget of each target; 2 is none."""
    need: PoolNeed
    floor: int
    pair: str = ""
    """Of prefill and decode in one budget, their pool."""
    role: str = ""

    def claims(self, budget: int) -> dict[str, Claim]:
        own = {name: each.pool for name, each in self.fleets.items() if self.places[name] == budget}
        found = claims_of(self.need, self.floor, own) if own else {}
        return {name: replace(one, pair=self.pair, role=self.role) for name, one in found.items()}


@st.composite
def pools(draw: st.DrawFn) -> list[Parts]:
    found: list[Parts] = []
    pair = draw(st.booleans())
    for number in range(draw(st.integers(2 if pair else 1, 3))):
        names = [f"target-{each}" for each in range(draw(st.integers(1, 3)))]
        gpus = {name: draw(st.sampled_from((1, 1, 2, 4))) for name in names}
        priority = draw(st.integers(0, 9))
        fleets = {
            name: Fleet(Claim(f"pool-{number} ({name})", gpus[name], 0, 0, 0, None, priority=priority), 0)
            for name in names
        }
        places = {name: draw(st.sampled_from((0, 0, 1, 2))) for name in names}
        nothing = PoolNeed({name: TargetNeed(0) for name in names}, (0.0,), 0.0, 0, 1)
        found.append(Parts(fleets, places, nothing, draw(st.integers(0, 4))))
    for one, role in zip(found[: 2 * pair], ("prefill", "decode"), strict=False):
        one.pair, one.role, one.places = "both", role, dict.fromkeys(one.places, 0)
    return found


Needed = tuple[list[TargetNeed], float, int, int]
"""Of three targets, and of the pool: capacity, min, GPUs of a replica of the reference."""


@st.composite
def needs(draw: st.DrawFn) -> Needed:
    targets = st.builds(
        TargetNeed,
        wanted=st.integers(0, 5),
        weight=st.sampled_from((0.0, 0.3, 1.0, 2.0)),
        base=st.integers(0, 2),
        delivered=st.one_of(st.none(), st.integers(0, 4)),
    )
    three = draw(st.lists(targets, min_size=3, max_size=3))
    return three, draw(st.floats(0.0, 8.0)), draw(st.integers(0, 4)), draw(st.sampled_from((0, 1, 4)))


@fuzzed(0.5)
@given(
    st.tuples(st.integers(1, 16), st.integers(1, 16)),
    st.booleans(),
    pools(),
    st.lists(st.tuples(STEPS, needs()), min_size=10, max_size=40),
)
def test_no_sequence_of_pools_with_several_targets_orders_more_than_a_budget(
    sizes: tuple[int, int], lending: bool, pools: list[Parts], steps: list[tuple[tuple[str, int, int, float], Needed]]
) -> None:
    """Pools are decided one by one, each with what the others asked for last."""
    tell_progress()
    fleets = [each for one in pools for each in one.fleets.values()]
    for (what, which, number, rate), (three, capacity, least, gpus) in steps:
        one = pools[which % len(pools)]
        if what != "decide":
            getattr(fleets[(which + number) % len(fleets)], what)()
        else:
            misses = None if rate == RATES[0] else need(number + 4, rate)
            one.need = PoolNeed(dict(zip(one.fleets, three, strict=False)), misses, capacity, least, gpus)
            for each in fleets:
                each.look()
                each.pool = replace(each.pool, ordered=each.replicas, held=each.held.gpus)
                assert each.held.gpus >= each.truly_held, "nothing is counted as free that is not"
            for budget, size in enumerate(sizes):
                claims = [claim for each in pools for claim in each.claims(budget).values()]
                grants = share(size, claims, lending=lending)
                used = sum(grants[claim.pool].share * claim.gpus for claim in claims)
                assert used <= size
                assert both_or_none(claims, grants)
                assert 0 <= spare(size, claims, grants, lending=lending) <= size - used
                for name, claim in one.claims(budget).items():
                    one.fleets[name].replicas = min(claim.wanted, grants[claim.pool].most)
        for budget, size in enumerate(sizes):
            inside = [each for one in pools for name, each in one.fleets.items() if one.places[name] == budget]
            assert sum(each.truly_held for each in inside) <= size


@fuzzed(0.5)
@given(pools(), needs(), st.sampled_from(RATES), st.integers(1, 16))
def test_a_split_adds_up_and_what_each_replica_is_worth_never_rises(
    pools: list[Parts], needed: Needed, rate: float, number: int
) -> None:
    one, (three, capacity, least, gpus) = pools[0], needed
    one.need = PoolNeed(dict(zip(one.fleets, three, strict=False)), need(number, rate), capacity, least, gpus)
    for budget in (0, 1):
        claims = one.claims(budget)
        if not claims:
            continue
        assert sum(claim.floor for claim in claims.values()) == one.floor
        bases = sum(min(need.base, need.wanted) for need in one.need.targets.values())
        assert sum(claim.least for claim in claims.values()) <= max(least, bases)
        for claim in claims.values():
            if len(one.need.targets) == 1:
                assert claim.misses == one.need.misses
            else:
                assert len(claim.misses or ()) == claim.wanted + 1
            assert 0 <= claim.optional <= claim.wanted
            values = worth(claim.misses or (), 0)
            assert all(a >= b - 1e-9 for a, b in pairwise(values))
