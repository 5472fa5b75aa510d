"""Several targets: what each should be for a capacity, and when one replaces another."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servingpool.catalogue.limits import LimitName
from servingpool.decision.allocate import Fleet
from servingpool.decision.decision import ENOUGH, Limited, Part, Verdict, moves, verdict_of_parts
from servingpool.decision.observation import Reading, Unknown
from servingpool.decision.params import DEFAULT
from servingpool.decision.pool import Pool, Slo

UNPROVEN = Unknown("no replica of it has served yet")
SPEEDS: list[Reading] = [0.0, 0.3, 0.5, 1.0, 2.0, UNPROVEN]


def line(
    name: str = "h100",
    *,
    price: float = 4.0,
    base: int = 0,
    most: int = 10,
    ordered: int = 0,
    ready: int | None = None,
    loading: int = 0,
    speed: Reading = 1.0,
    stuck: str | None = None,
) -> Part:
    ready = ordered - loading if ready is None else ready
    weight = speed if isinstance(speed, float) else 0.3
    measured, delivered = speed is not UNPROVEN, ready + loading
    return Part(name, ordered, ordered, ready, weight, 100.0, stuck, delivered, measured, False, base, most, price)


def fleet(*lines: Part, least: int = 1, most: int = 20, max_change: float = math.inf) -> Fleet:
    params = replace(DEFAULT, worth_moving=0.1)
    stand = tuple(one._replace(absent=one.stuck is not None and len(lines) > 1) for one in lines)
    return Fleet(stand, Pool(Slo(2.0), least, most, max_change=max_change, params=params))


def split(of: Fleet, need: float, *, move: bool = True, trial: bool = False) -> tuple[int, ...]:
    return tuple(part.replicas for part in of.split(Limited(need), move=move, trial=trial)[0])


def l40s(*, ordered: int = 0) -> Part:
    return line("l40s", price=1.0, speed=0.3, ordered=ordered)


class TestCapacity:
    def test_grows_by_the_cheapest_replicas_beside_what_stands(self) -> None:
        assert split(fleet(line(ordered=2), l40s()), 2.2, move=False) == (2, 1)

    def test_shrinks_by_the_dearest_replicas(self) -> None:
        assert split(fleet(line(ordered=2), l40s(ordered=4)), 2.2) == (1, 4)

    def test_stays_where_another_mix_saves_little(self) -> None:
        assert split(fleet(line(ordered=3), line("other", price=3.9)), 3.0) == (3, 0)

    def test_keeps_the_base_at_any_price_but_not_at_zero(self) -> None:
        some = fleet(line("on-demand", base=2, ordered=2), line("spot", price=1.2, ordered=2), least=0)
        assert split(some, 1.0) == (2, 0)
        assert split(some, 0.0) == (0, 0)

    def test_keeps_to_min_and_max_in_replicas_of_any_target(self) -> None:
        assert split(fleet(line(ordered=1), l40s(), least=4), 0.5, move=False) == (1, 3)
        assert split(fleet(line(ordered=1), l40s(), least=4), 0.5) == (1, 4)  # four cheap ones, then the dear one goes
        assert split(fleet(line(), l40s(ordered=3), most=3), 3.0, move=False) == (0, 3)
        assert split(fleet(line(ordered=1), l40s(), most=3), 3.0) == (3, 0)

    def test_changes_by_no_more_than_a_step_allows(self) -> None:
        assert sum(split(fleet(line(ordered=1), l40s(), max_change=2.0), 5.0)) == 3


class TestReplacement:
    def test_is_ordered_first_and_what_goes_stays_until_it_is_ready(self) -> None:
        dear = line(ordered=3)
        assert split(fleet(dear, line("cheap", price=1.0)), 3.0) == (3, 3)
        assert split(fleet(dear, line("cheap", price=1.0, ordered=3, loading=3)), 3.0) == (3, 3)
        assert split(fleet(dear, line("cheap", price=1.0, ordered=3, loading=1)), 3.0) == (1, 3)
        assert split(fleet(dear, line("cheap", price=1.0, ordered=3)), 3.0) == (0, 3)

    def test_does_not_begin_while_that_is_not_certain(self) -> None:
        assert split(fleet(line(ordered=3), line("cheap", price=1.0)), 3.0, move=False) == (3, 0)

    def test_begins_at_once_for_what_is_stuck_and_leaves_one_as_a_probe(self) -> None:
        lost = line("spot", price=1.0, ordered=3, ready=0, stuck="3 pods find no node")
        assert split(fleet(line(ordered=2), lost), 4.0) == (4, 1)

    def test_counts_what_a_stuck_target_delivers(self) -> None:
        short = line("spot", price=1.0, ordered=4, ready=2, stuck="2 pods find no node")
        assert split(fleet(line(ordered=1), short), 4.0) == (2, 3)

    def test_a_probe_stays_where_no_target_delivers_more(self) -> None:
        lost = line(ordered=8, ready=2, stuck="6 pods find no node")
        assert split(fleet(lost._replace(requested=3), line("full", most=2, ordered=2)), 4.0) == (3, 2)

    def test_where_none_delivers_each_keeps_a_probe_and_a_target_alone_what_is_needed(self) -> None:
        lost = line(ordered=8, ready=2, stuck="6 pods find no node")
        assert split(fleet(lost), 8.0) == (8,)
        assert split(fleet(lost), 5.0) == (5,)
        spot = line("spot", price=1.0, ordered=2, ready=0, stuck="2 pods find no node")
        assert split(fleet(lost, spot), 8.0) == (3, 1)
        assert split(fleet(lost._replace(ready=0, delivered=0), least=0), 0.0) == (0,)

    def test_comes_home_once_the_probe_has_a_node(self) -> None:
        assert split(fleet(line(ordered=4), line("spot", price=1.0, ordered=1, loading=1)), 4.0) == (4, 4)


class TestWhileTheNeedIsNotKnown:
    """Metrics are missing, or a target is in rollout."""

    def test_pods_without_a_node_stay_ordered_unless_another_target_serves_in_their_place(self) -> None:
        lost = line("spot", price=1.0, ordered=3, ready=1, stuck="2 pods find no node")
        parts = fleet(line(ordered=1), lost).split(Limited(2.0), move=False, trial=False, keep=True)[0]
        assert [part.replicas for part in parts] == [1, 3]
        parts = fleet(line(ordered=1), lost).split(Limited(4.0), move=False, trial=False, keep=True)[0]
        assert [part.replicas for part in parts] == [3, 2]

    def test_a_target_that_counts_for_little_or_nothing_stays(self) -> None:
        some = fleet(
            line(ordered=20, most=20), line("small", speed=0.01, ordered=1), line("slow", speed=0.0, ordered=1), most=30
        )
        parts = some.split(Limited(some.standing), move=False, trial=False, keep=True)[0]
        assert [part.replicas for part in parts] == [20, 1, 1]

    def test_a_pool_that_has_lost_all_is_not_at_zero(self) -> None:
        lost = line("spot", price=1.0, ordered=4, ready=0, stuck="4 pods find no node")
        parts = fleet(lost, line(), least=0).split(Limited(0.0), move=False, trial=False, keep=True)[0]
        assert [part.replicas for part in parts] == [4, 0]


def test_money_pays_for_a_mix_beside_what_stands_only_where_another_one_has_not_much_more() -> None:
    for dear, found in ((10.0, (0, 6)), (2.1, (1, 5))):
        some = fleet(line("dear", price=dear, ordered=1), line("cheap", price=2.0))
        parts, _ = some.split(Limited(some.paid_by(12.2)), move=False, trial=False, keep=True, money=12.2)
        assert tuple(part.replicas for part in parts) == found


def test_a_base_does_not_keep_a_pool_from_zero() -> None:
    assert fleet(line(base=2, ordered=2), l40s(), least=0).fewest == 0.0


class TestTrial:
    def test_gives_a_target_that_never_served_one_replica_and_keeps_it_until_it_has(self) -> None:
        some = fleet(line(ordered=3), line("new", price=1.0, speed=UNPROVEN))
        assert split(some, 3.0) == (3, 0)
        assert split(some, 3.0, trial=True) == (3, 1)
        assert split(fleet(line(ordered=3), line("new", price=1.0, speed=UNPROVEN, ordered=1)), 3.0) == (3, 1)

    def test_is_of_one_target_at_a_time(self) -> None:
        some = fleet(line(ordered=3), line("a", speed=UNPROVEN), line("b", speed=UNPROVEN))
        assert split(some, 3.0, trial=True) == (3, 1, 0)

    def test_goes_on_with_the_next_one_where_the_first_replica_finds_no_node(self) -> None:
        lost = line("a", speed=UNPROVEN, ordered=1, ready=0, stuck="1 pod finds no node")
        assert split(fleet(line(ordered=3), lost, line("b", speed=UNPROVEN)), 3.0, trial=True) == (3, 1, 1)

    def test_of_a_target_that_serves_nothing_within_the_slo_ends(self) -> None:
        assert split(fleet(line(ordered=3), line("slow", price=1.0, speed=0.0, ordered=1)), 3.0) == (3, 0)


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    lines = []
    for at in range(draw(st.integers(2, 4))):
        base = draw(st.integers(0, 2))
        most = base + draw(st.integers(0, 6))
        ordered = draw(st.integers(0, most))
        ready = draw(st.integers(0, ordered))
        loading = draw(st.integers(0, ordered - ready))
        stuck = "stuck" if ready + loading < ordered and draw(st.booleans()) else None
        speed = draw(st.sampled_from(SPEEDS))
        price = draw(st.sampled_from([0.5, 1.0, 4.0]))
        one = line(f"t{at}", price=price, base=base, most=most, ordered=ordered, ready=ready, speed=speed, stuck=stuck)
        lines.append(one._replace(delivered=ready + loading))
    bases = sum(one.base for one in lines)
    return fleet(*lines, least=max(1, bases), most=max(1, sum(one.most for one in lines)))


@given(fleets(), st.just(0.0) | st.floats(0.01, 12.0), st.booleans(), st.booleans())
def test_whatever_stands_each_target_keeps_its_bounds_and_ready_capacity_that_is_needed_stays(
    some: Fleet, need: float, move: bool, trial: bool
) -> None:
    parts = some.split(Limited(need), move=move, trial=trial)[0]
    for part, one in zip(parts, some.lines, strict=True):
        assert one.base <= part.replicas <= max(one.most, one.requested)
    served = sum(one.weight * one.ready for one in some.lines)
    left = sum(one.weight * min(one.ready, part.replicas) for part, one in zip(parts, some.lines, strict=True))
    assert left >= min(need, served) * ENOUGH


@given(fleets(), st.floats(0.1, 12.0))
def test_what_was_ordered_is_not_ordered_otherwise_at_the_next_look(some: Fleet, need: float) -> None:
    """Once all is Ready the answer is one that stays: nothing swings between two mixes."""
    for _ in range(4):
        parts = some.split(Limited(need), move=True, trial=False)[0]
        lines = tuple(
            one._replace(
                requested=part.replicas, ready=part.replicas, delivered=part.replicas, stuck=None, absent=False
            )
            for one, part in zip(some.lines, parts, strict=True)
        )
        some = replace(some, lines=lines)
    assert tuple(part.replicas for part in some.split(Limited(need), move=True, trial=False)[0]) == tuple(
        one.requested for one in some.lines
    )


@given(
    st.lists(st.tuples(st.integers(0, 4), st.sampled_from([1.0, 2.0, 4.0])), min_size=2, max_size=2),
    st.floats(0.5, 9.0),
)
def test_where_nodes_of_two_targets_lack_the_orders_come_to_rest(targets: list[tuple[int, float]], need: float) -> None:
    """Each target has some nodes; a pod beyond them is stuck three looks after its order."""
    ordered, waits = [2] + [0] * (len(targets) - 1), [0] * len(targets)
    seen = []
    for _ in range(40):
        ready = [min(count, nodes) for count, (nodes, _) in zip(ordered, targets, strict=True)]
        waits = [wait + 1 if count > has else 0 for wait, count, has in zip(waits, ordered, ready, strict=True)]
        lines = [
            line(
                f"t{at}", price=price, ordered=ordered[at], ready=ready[at], stuck="no node" if waits[at] > 2 else None
            )
            for at, (_, price) in enumerate(targets)
        ]
        ordered = list(split(fleet(*lines), need))
        seen.append(tuple(ordered))
    assert len(set(seen[-10:])) == 1


def test_a_sentence_says_what_changes() -> None:
    parts = fleet(line(ordered=2), l40s()).split(Limited(2.2), move=False, trial=False)[0]
    assert moves(parts, "h100") == "scale up l40s 0 -> 1 (counted in replicas of h100)"
    assert verdict_of_parts(parts) is Verdict.SCALE_UP


class TestAlone:
    """A pool of one target."""

    @pytest.mark.parametrize(("ordered", "need"), [(999, 999), (1000, 1000), (2000, 2001), (2000, 1999), (1, 2500)])
    def test_is_what_was_asked_for_to_the_replica(self, ordered: int, need: int) -> None:
        some = fleet(line(ordered=ordered, most=10_000), most=10_000)
        assert split(some, float(need)) == (need,)

    def test_a_step_is_told_where_it_changes_the_answer(self) -> None:
        some = fleet(line(ordered=2), max_change=2.0)
        limited = some.split(Limited(7.0), move=False, trial=False)[1]
        assert [(one.name, one.before, one.after) for one in limited.applied] == [(LimitName.MAX_CHANGE, 7.0, 4.0)]


class TestRole:
    """A target alone of a role: the other role's size follows from this one's."""

    def pair(self, one: Part, *, least: int = 1, most: int = 10) -> Fleet:
        return Fleet((one._replace(absent=one.stuck is not None),), Pool(Slo(2.0), least, most, paired=True))

    def test_keeps_its_own_base_above_the_pools_min(self) -> None:
        assert split(self.pair(line(base=3, ordered=5)), 1.0) == (3,)

    def test_keeps_to_a_lower_max_while_pods_find_no_node(self) -> None:
        lost = line(most=10, ordered=12, ready=10, stuck="2 pods find no node")
        assert split(self.pair(lost), 12.0) == (10,)


def test_a_step_that_holds_back_a_cheaper_replacement_is_not_told_as_need() -> None:
    some = fleet(line(ordered=5), line("cheap", price=1.0), max_change=2.0)
    found = some.split(Limited(5.0), move=True, trial=False)
    assert [part.replicas for part in found[0]] == [5, 2]
    assert found[1] == Limited(5.0)
    assert some.split(Limited(5.0001), move=True, trial=False)[1] == Limited(5.0001), "no part of a replica lacks"
