"""A budget of GPUs that many pools share: what must hold in any sequence of orders, late watches and slow drains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servingpool.gpubudget.holding import Holding
from servingpool.gpubudget.sharing import HYSTERESIS, STEP, Claim, Grant, share, worth

from ..decision.sequences import tell_progress  # noqa: TID252
from ..fuzzing import fuzzed  # noqa: TID252, tests are no package of an installed name

RATES = (0.0, 0.01, 0.3, 1.0, 4.0)


def need(replicas: int, rate: float = 1.0) -> tuple[float, ...]:
    """Misses of a pool that wants so many replicas, each of which avoids less than the one before."""
    return tuple(rate * (replicas - n) ** 2 for n in range(replicas + 1))


def claim(pool: str, **given: object) -> Claim:
    """One that holds what it has ordered."""
    wanted = int(str(given.get("wanted", 0)))
    gpus, ordered = int(str(given.get("gpus", 1))), int(str(given.get("ordered", 0)))
    rest = {"gpus": gpus, "ordered": ordered, "held": gpus * ordered, "wanted": wanted, "misses": need(wanted)}
    return Claim(pool, **{**rest, **given})  # type: ignore[arg-type]


def granted(gpus: int, *claims: Claim, lending: bool = True) -> dict[str, int]:
    return {pool: grant.most for pool, grant in share(gpus, claims, lending=lending).items()}


def test_floors_come_before_priority_and_mins_before_need() -> None:
    shares = granted(
        8,
        claim("low", wanted=4, floor=3, priority=0),
        claim("middle", wanted=4, least=2, priority=1),
        claim("high", wanted=8, priority=9),
    )
    assert shares == {"low": 3, "middle": 2, "high": 3}


def test_mins_that_do_not_fit_are_met_by_priority() -> None:
    found = granted(4, claim("a", wanted=3, least=3, priority=1), claim("b", wanted=3, least=3, priority=5))
    assert found == {"a": 1, "b": 3}


def test_a_floor_that_is_not_wanted_is_lent_and_comes_back_once_its_pod_is_gone() -> None:
    idle = claim("owner", wanted=1, ordered=1, floor=4)
    greedy = claim("other", wanted=8, ordered=4, priority=9)
    assert granted(8, idle, greedy)["other"] == 7
    assert granted(8, idle, greedy, lending=False)["other"] == 4
    back = share(8, [replace(idle, wanted=4, misses=need(4)), replace(greedy, ordered=7, held=7)], lending=True)
    assert (back["owner"].most, back["owner"].share) == (1, 4)
    assert back["owner"].detail == "8 of 8 GPUs are in use; waits for GPUs of other"
    assert back["other"].most == 4
    gone = share(8, [replace(idle, wanted=4, misses=need(4)), replace(greedy, ordered=4, held=4)], lending=True)
    assert gone["owner"].most == 4


def test_one_step_of_priority_counts_ten_misses_two_nearly_decide_and_three_do() -> None:
    few, many = need(4, 0.05), need(4, 1.0)
    one = granted(4, claim("a", wanted=4, misses=few, priority=1), claim("b", wanted=4, misses=many, priority=0))
    assert 0 < one["b"]
    two = granted(4, claim("a", wanted=4, misses=few, priority=2), claim("b", wanted=4, misses=many, priority=0))
    assert two == {"a": 3, "b": 1}
    three = granted(4, claim("a", wanted=4, misses=few, priority=3), claim("b", wanted=4, misses=many, priority=0))
    assert three == {"a": 4, "b": 0}
    assert STEP == 10.0


def test_replicas_near_a_cliff_share_what_they_avoid_together() -> None:
    assert worth((8.0, 8.0, 8.0, 2.0, 1.0), 0) == [2.0, 2.0, 2.0, 1.0]
    assert worth((8.0, 8.0, 8.0, 2.0, 1.0), 3) == [1.0]
    assert worth((), 0) == worth((3.0,), 0) == []


def test_a_replica_that_stands_goes_only_for_three_times_its_worth() -> None:
    a = claim("a", wanted=2, ordered=2, misses=(2.0, 1.0, 0.0))
    for times, left in ((HYSTERESIS - 0.1, 2), (HYSTERESIS + 0.1, 0)):
        assert granted(2, a, claim("b", wanted=2, misses=(2 * times, times, 0.0)))["a"] == left


def test_a_large_replica_is_not_overtaken_by_small_ones_while_it_waits() -> None:
    large = claim("large", gpus=4, wanted=1, priority=5)
    leaving = claim("leaving", wanted=0, ordered=0, held=2)
    small = claim("small", wanted=4, ordered=0)
    assert granted(4, large, leaving, small) == {"large": 0, "leaving": 0, "small": 0}


def test_a_pool_that_nobody_scales_keeps_what_it_holds_and_an_unknown_need_keeps_its_replicas() -> None:
    paused = claim("paused", ordered=3, wanted=9, fixed=True)
    blind = claim("blind", ordered=2, wanted=2, misses=None)
    assert granted(8, paused, blind, claim("c", wanted=9, priority=9)) == {"paused": 3, "blind": 2, "c": 3}


def test_the_largest_change_of_a_step_holds_for_what_is_given_up_too() -> None:
    assert granted(2, claim("a", ordered=6, wanted=6, max_change=1.0), claim("b", wanted=2, priority=9))["a"] == 5


# Prefill and decode: neither is worth anything without the other.


def roles(pool: str = "chat", **given: object) -> list[Claim]:
    return [replace(claim(f"{pool} ({role})", **given), pair=pool, role=role) for role in ("decode", "prefill")]


def due(gpus: int, *claims: Claim, lending: bool = True) -> list[int]:
    return [grant.share for grant in share(gpus, claims, lending=lending).values()]


def test_a_gpu_that_is_too_little_for_both_roles_goes_to_another_pool() -> None:
    rival = claim("rival", gpus=4, ordered=3, wanted=6, least=3, priority=9)
    both = roles(gpus=4, wanted=1, least=1)
    found = share(16, [rival, *both], lending=True)
    assert (found["rival"].most, found["rival"].share) == (4, 4)
    assert [found[each.pool].share for each in both] == [0, 0]
    said = "one replica each of prefill and decode takes 8 GPUs, and of 16 fewer are left for this pool"
    assert found["chat (decode)"].detail == said
    assert due(20, rival, *both) == [3, 1, 1], "their first replicas rank with the mins"


def test_both_roles_run_before_one_has_two_and_by_priority_before_the_mins_of_others() -> None:
    assert due(3, *roles(wanted=3, least=2)) == [2, 1]
    other = claim("other", wanted=2, least=2)
    assert due(3, *roles(wanted=1, priority=1), other) == [1, 1, 1]
    assert due(3, other, *roles(wanted=1)) == [1, 1, 1], "chat comes before other"
    assert due(3, claim("another", wanted=2, least=2), *roles(wanted=1)) == [3 - 1, 0, 0]


def test_a_role_takes_a_target_that_fits_where_its_first_one_does_not() -> None:
    decode, prefill = roles(gpus=4, wanted=1, least=1)
    small = replace(prefill, pool="chat (small)", gpus=1, least=0)
    assert share(5, [decode, prefill, small], lending=True)["chat (small)"].share == 1
    assert due(8, decode, prefill, small)[:2] == [1, 1]


@pytest.mark.parametrize("lending", [True, False])
def test_a_floor_of_less_than_both_roles_is_kept_for_them_and_no_more(lending: bool) -> None:
    decode, prefill = roles(gpus=4, wanted=1, least=1)
    floored = [replace(decode, floor=4), prefill]
    assert due(8, *floored, lending=lending) == [1, 1]
    rival = claim("rival", gpus=4, wanted=3, least=3, priority=9)
    assert due(8, rival, *floored, lending=lending) == [2 if lending else 1, 0, 0]


# What a fleet grows by while its removed pods are on their way.


def test_groups_of_pods_hold_what_their_pods_ask_for_and_a_whole_replica_while_they_come() -> None:
    held = Holding().seen(2, [{"leader": 0, "worker": 8}, {"leader-2": 0}], 8, 2, lambda _: True, {"old": 8}, 2, 0.0)
    assert held.gpus == 24


# Any sequence.


@dataclass
class Fleet:
    """A pool, its Deployment as it is, and as the watch has shown it. The controller and the watch are late."""

    pool: Claim
    replicas: int
    pods: set[str] = field(default_factory=set)
    draining: set[str] = field(default_factory=set)
    made: int = 0
    shown: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
    behind: list[tuple[frozenset[str], frozenset[str]]] = field(default_factory=list)
    held: Holding = field(default_factory=Holding)

    def control(self) -> None:
        """The ReplicaSet controller makes and deletes pods."""
        while len(self.pods) < self.replicas:
            self.pods.add(f"{self.pool.pool}-{self.made}")
            self.made += 1
            self.tell()
        while len(self.pods) > self.replicas:
            gone = max(self.pods, key=hash)
            self.pods.remove(gone)
            self.draining.add(gone)
            self.tell()

    def end(self) -> None:
        """One drained pod is gone."""
        if self.draining:
            self.draining.remove(min(self.draining))
            self.tell()

    def tell(self) -> None:
        self.behind.append((frozenset(self.pods), frozenset(self.draining)))

    def watch(self) -> None:
        if self.behind:
            self.shown = self.behind.pop(0)

    def look(self) -> None:
        standing, draining = self.shown
        gpus = self.pool.gpus
        runs = standing | draining
        self.held = self.held.seen(
            self.replicas,
            [{pod: gpus} for pod in sorted(standing)],
            gpus,
            1,
            runs.__contains__,
            dict.fromkeys(draining, gpus),
            self.replicas,
            0.0,
        )

    @property
    def truly_held(self) -> int:
        return self.pool.gpus * (max(self.replicas, len(self.pods)) + len(self.draining))


STEPS = st.tuples(
    st.sampled_from(("decide", "decide", "decide", "control", "control", "watch", "watch", "end", "end")),
    st.integers(0, 3),
    st.integers(0, 6),
    st.sampled_from(RATES),
)


@st.composite
def budgets(draw: st.DrawFn) -> tuple[int, bool, list[Claim]]:
    pools = [
        Claim(
            pool=f"pool-{number}",
            gpus=draw(st.sampled_from((1, 1, 2, 4))),
            ordered=0,
            held=0,
            wanted=0,
            misses=(0.0,),
            least=draw(st.integers(0, 2)),
            floor=draw(st.integers(0, 4)),
            priority=draw(st.integers(0, 9)),
        )
        for number in range(draw(st.integers(1, 4)))
    ]
    if len(pools) > 1 and draw(st.booleans()):
        pair = zip(pools, ("prefill", "decode"), strict=False)
        pools[:2] = [replace(one, priority=pools[0].priority, pair="both", role=role) for one, role in pair]
    return draw(st.integers(1, 16)), draw(st.booleans()), pools


def both_or_none(claims: list[Claim], grants: Mapping[str, Grant]) -> bool:
    """No pool of prefill and decode is due one role alone."""
    found = {(claim.pair, claim.role): 0 for claim in claims if claim.pair}
    for claim in claims:
        if claim.pair:
            found[claim.pair, claim.role] += grants[claim.pool].share
    return all((found[pair, "prefill"] > 0) == (found[pair, "decode"] > 0) for pair, _ in found)


@fuzzed(1.0)
@given(budgets(), st.lists(STEPS, min_size=10, max_size=60))
def test_no_sequence_orders_more_than_the_budget(
    budget: tuple[int, bool, list[Claim]], steps: list[tuple[str, int, int, float]]
) -> None:
    """Pools are decided one by one, as those of several Prometheus are, each with the others' last claims."""
    tell_progress()
    gpus, lending, pools = budget
    fleets = [Fleet(pool, 0) for pool in pools]
    for what, which, number, rate in steps:
        fleet = fleets[which % len(fleets)]
        if what != "decide":
            getattr(fleet, what)()
        else:
            unknown = rate == RATES[0]
            wanted = fleet.replicas if unknown else number
            fleet.pool = replace(fleet.pool, wanted=wanted, misses=None if unknown else need(number, rate))
            for each in fleets:
                each.look()
                each.pool = replace(each.pool, ordered=each.replicas, held=each.held.gpus)
                assert each.held.gpus >= each.truly_held, "nothing is counted as free that is not"
            grants = share(gpus, [each.pool for each in fleets], lending=lending)
            assert sum(grants[each.pool.pool].share * each.pool.gpus for each in fleets) <= gpus
            assert both_or_none([each.pool for each in fleets], grants)
            fleet.replicas = min(wanted, grants[fleet.pool.pool].most)
        assert sum(each.truly_held for each in fleets) <= gpus


@fuzzed(1.0)
@given(budgets(), st.lists(st.tuples(st.integers(0, 6), st.sampled_from(RATES[1:])), min_size=4, max_size=4))
def test_constant_needs_come_to_rest_and_stay_under_noise(
    budget: tuple[int, bool, list[Claim]], wants: list[tuple[int, float]]
) -> None:
    """No oscillation: once at rest nothing moves, nor while each need is worth up to 1.7 times as much or as little."""
    gpus, lending, pools = budget
    claims = [
        replace(pool, wanted=max(number, pool.least), misses=need(max(number, pool.least), rate))
        for pool, (number, rate) in zip(pools, wants, strict=False)
    ]

    def turn(now: list[Claim]) -> list[Claim]:
        grants = share(gpus, now, lending=lending)
        assert both_or_none(now, grants)
        moved = [min(one.wanted, grants[one.pool].most) for one in now]
        return [replace(one, ordered=to, held=one.gpus * to) for one, to in zip(now, moved, strict=True)]

    for _ in range(20):
        claims = turn(claims)
    rest = [one.ordered for one in claims]
    for factors in ((1.0, 1.0), (1.7, 1 / 1.7), (1 / 1.7, 1.7), (1.0, 1.0)):
        noisy = [
            replace(one, misses=tuple(factors[at % 2] * each for each in one.misses or ()))
            for at, one in enumerate(claims)
        ]
        claims = [replace(one, misses=kept.misses) for one, kept in zip(turn(noisy), claims, strict=True)]
        assert [one.ordered for one in claims] == rest


@fuzzed(0.2)
@given(budgets(), st.integers(0, 20), st.integers(0, 20), st.sampled_from(RATES))
def test_a_pool_alone_decides_as_without_a_budget_that_is_large_enough(
    budget: tuple[int, bool, list[Claim]], ordered: int, wanted: int, rate: float
) -> None:
    _, lending, [pool, *_] = budget
    alone = replace(pool, ordered=ordered, held=pool.gpus * ordered, wanted=wanted, misses=need(wanted, rate), floor=0)
    grant = share(max(ordered, wanted) * pool.gpus, [alone], lending=lending)[pool.pool]
    assert min(wanted, grant.most) == wanted
    assert grant.detail == ""


@fuzzed(0.2)
@given(budgets(), st.tuples(st.integers(1, 6), st.integers(1, 6)), st.tuples(st.integers(0, 16), st.integers(0, 16)))
def test_roles_alone_both_run_where_one_of_each_fits_whatever_their_floors(
    budget: tuple[int, bool, list[Claim]], wants: tuple[int, int], floors: tuple[int, int]
) -> None:
    gpus, lending, [pool, *_] = budget
    pair = [
        replace(pool, pool=role, wanted=want, misses=need(want), floor=min(floor, gpus // 2), pair="both", role=role)
        for role, want, floor in zip(("prefill", "decode"), wants, floors, strict=True)
    ]
    grants = share(gpus, pair, lending=lending)
    assert [grants[each.pool].share > 0 for each in pair] == [2 * pool.gpus <= gpus] * 2


def test_what_a_paused_pool_has_firm_lies_within_the_floor_that_is_set_aside_for_it() -> None:
    paused = claim("paused", ordered=2, floor=5, fixed=True, placed=0, priority=9)
    both = [paused, claim("a", wanted=2, ordered=2, least=2)]
    assert share(7, both, lending=False, before={"paused": 2, "a": 2})["a"].most == 2


@pytest.mark.parametrize("fixed", [False, True])
def test_of_what_is_firm_and_does_not_fit_any_more_those_that_have_a_node_keep_theirs(*, fixed: bool) -> None:
    away = claim("away", wanted=2, ordered=2, least=2, placed=0, priority=9, fixed=fixed)
    here = claim("here", wanted=2, ordered=2, least=2)
    assert share(3, [away, here], lending=True, before={"away": 2, "here": 2})["here"].share == 2


def test_a_pool_whose_need_is_unknown_gives_up_one_replica_at_a_time() -> None:
    blind = claim("blind", ordered=6, wanted=6, misses=None)
    assert granted(0, blind)["blind"] == 5
    assert granted(0, replace(blind, misses=need(6)))["blind"] == 0
