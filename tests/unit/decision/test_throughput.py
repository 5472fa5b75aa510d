"""The fewest replicas that do all work by its deadlines; the mixes of a day are in benchmarks/batch.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servingpool.decision.learn.ledger import Due, Ledger
from servingpool.decision.need.throughput import Standing, needed, steady
from servingpool.decision.observation import Unknown
from servingpool.decision.params import DEFAULT
from servingpool.decision.plan import Wanted
from servingpool.decision.pool import Batch, Rate, Tariff

HOUR, START = 3600.0, 120.0


def asked(*dues: tuple[float, float], ready: float = 0, most: float = 20, spread: float = 0, had: float = 0) -> Wanted:
    """For work of so many replica-hours by so many hours from now, of a pool that had so many replicas."""
    ledger = Ledger(0.0, tuple(Due(at * HOUR, work * HOUR) for at, work in dues), 0.0, 0.0, 1.0, spread, had)
    return needed(ledger, 0.0, 0.0, Standing(((0.0, ready),), most, START), 0.0, 0.0)


def test_the_earliest_deadline_comes_first_and_all_work_up_to_a_deadline_counts_for_it() -> None:
    assert asked((4.0, 3.5)).replicas == 1.0
    assert asked((4.0, 3.5), (5.0, 3.5)).replicas == 2.0
    assert asked((1.0, 1.5), (8.0, 1.0)).replicas == 2.0


def test_a_cold_start_of_one_replica_and_the_spread_are_kept_free() -> None:
    fits = 1.0 - 2.0 * START / HOUR
    assert asked((1.0, fits)).replicas == 1.0
    assert asked((1.0, fits + 0.01)).replicas == 2.0
    assert asked((1.0, fits), spread=0.05).replicas == 2.0


def test_a_little_work_is_started_as_late_as_one_replica_allows() -> None:
    waits = asked((4.0, 0.1))
    assert (waits.replicas, waits.waits_until) == (0.0, pytest.approx(4.0 * HOUR - 0.1 * HOUR - 3.0 * START))
    assert asked((0.1 + 2.9 * START / HOUR, 0.1)).replicas == 1.0


def test_what_it_lent_is_asked_for_at_once_though_more_than_that_can_still_wait() -> None:
    work = (0.2, 1500.0 / HOUR)
    assert asked(work, ready=1.0).replicas == 1.0
    assert asked(work, ready=1.0, had=2.0).replicas == 2.0


def test_a_deadline_is_at_risk_once_what_is_kept_free_for_it_cannot_be_had() -> None:
    assert asked((1.0, 1.9), most=2.0).at_risk is None
    assert asked((1.0, 1.95), most=2.0).at_risk == Due(HOUR, 1.95 * HOUR)
    assert asked((0.01, 0.02), ready=1.0).at_risk == Due(0.01 * HOUR, 0.02 * HOUR), "too late for another one"


def night(
    *dues: tuple[float, float], at: float = 0.0, ready: float = 0, most: float = 20, cheap: float = 0.5
) -> Wanted:
    """As `asked`, `at` so many hours before a night of eight cheap hours; from then on, if it is below 0."""
    ledger = Ledger(0.0, tuple(Due(due * HOUR, work * HOUR) for due, work in dues), 0.0, 0.0, 1.0, 0.0)
    begins = (Tariff(-16 * HOUR, 1.0), Tariff(at * HOUR, cheap), Tariff((at + 8) * HOUR, 1.0))
    return needed(ledger, 0.0, 0.0, Standing(((0.0, ready),), most, START, begins), 0.0, 0.0)


def test_work_waits_for_cheaper_hours_as_far_as_half_of_max_does_it_there() -> None:
    waits = night((12.0, 40.0), at=4.0)
    assert (waits.replicas, waits.waits_for) == (0.0, Tariff(4 * HOUR, 0.5))
    assert waits.finishes_at is None, "what comes until then decides that"
    assert night((12.0, 40.0), at=4.0, ready=3.0).replicas == 0.0, "nor does what stands work on"
    assert night((12.0, 100.0), at=4.0).replicas == 6.0, "what does not fit has four hours"
    assert night((3.0, 8.0), (12.0, 40.0), at=4.0).replicas == 3.0, "what is due before, too"
    assert night((12.0, 3.9), at=4.0, most=1.0).replicas == 0.0
    assert night((12.0, 40.0), at=4.0, cheap=0.97).replicas == 0.0
    assert night((12.0, 40.0), at=4.0, cheap=0.98).replicas == 4.0, "six cold starts cost more than that saves"


def test_dearer_hours_are_left_free_and_what_the_cheap_ones_cannot_do_has_them() -> None:
    assert night((16.0, 40.0), at=-4.0).replicas == 10.0, "of four hours of the night, with a start"
    assert night((16.0, 20.0), at=-4.0).replicas == 6.0
    assert night((16.0, 300.0), at=-4.0).replicas == 19.0, "as many as the deadline asks for at any price"
    assert night((16.0, 20.0), at=-7.9).replicas == 2.0, "too late for another start"


hours, replicas = st.floats(0.01, 40.0), st.integers(0, 30)


@given(
    dues=st.lists(st.tuples(hours, hours), max_size=5).map(sorted),
    prices=st.lists(st.tuples(st.floats(-5.0, 40.0), st.sampled_from([0.01, 0.5, 0.97, 1.0, 4.0])), max_size=9).map(
        sorted
    ),
    ready=replicas,
    more=replicas,
)
def test_prices_put_nothing_at_risk_and_ask_for_no_more_than_half_of_max_or_the_deadlines(
    dues, prices, ready, more
) -> None:
    def found(*tariffs: Tariff) -> Wanted:
        ledger = Ledger(0.0, tuple(Due(at * HOUR, work * HOUR) for at, work in dues), 0.0, 0.0, 1.0)
        fleet = Standing(((0.0, ready), (60.0, 0.5)), ready + more, START, tariffs)
        return needed(ledger, 0.0, 0.0, fleet, 0.0, 0.0)

    plain, priced = found(), found(*(Tariff(at * HOUR, price) for at, price in prices))
    assert found(*(Tariff(at * HOUR, 1.0) for at, _ in prices)) == plain
    assert (priced.due, priced.at_risk) == (plain.due, plain.at_risk)
    assert priced.replicas <= max(plain.replicas, (ready + more) / 2 + 1, ready + 0.5)
    if priced.waits_for is not None:
        assert priced.waits_for.price < 1.0
        assert priced.finishes_at is None


def test_replicas_stay_while_there_is_work_for_them_and_no_longer() -> None:
    assert asked((8.0, 4.0), ready=3.0).replicas == 3.0
    assert asked((8.0, 0.08), ready=3.0).replicas == 1.0
    assert asked((0.03, 0.08), ready=3.0).replicas == 3.0, "nothing goes so near to a deadline"


def test_what_came_while_the_source_was_silent_is_due_as_if_it_came_at_once_and_a_shorter_time_counts_for_all() -> None:
    assert Batch(within=HOUR, ends=(600.0, 7200.0)).due(300.0) == 600.0, "the earlier of two deadlines"
    ledger = Ledger().update(100.0, 0.0, 0.0, Batch(within=HOUR), 0.0)
    ledger = ledger.update(Unknown("silent"), 0.0, 30.0, Batch(within=HOUR), 600.0)
    assert ledger.dues == (Due(HOUR, 70.0),)
    ledger = ledger.update(90.0, 0.0, 0.0, Batch(within=HOUR), 900.0)
    assert ledger.dues == (Due(HOUR, 90.0),)
    ledger = ledger.update(95.0, 0.0, 0.0, Batch(within=600.0), 1200.0)
    assert ledger.dues == (Due(1500.0, 95.0),)
    assert ledger.update(95.0, 0.0, 95.0, Batch(within=600.0), 1230.0).dues == (Due(1800.0, 95.0),)
    assert ledger.update(95.0, 0.0, 95.0, Batch(within=600.0), 9000.0).dues == (Due(9300.0, 95.0),), "a long silence"


amounts = st.lists(st.tuples(st.floats(-HOUR, 9 * HOUR), st.floats(0.01, 1e6)), max_size=9).map(sorted)


@given(ruled=amounts, more=amounts)
def test_of_two_deadlines_the_earlier_counts_for_as_much_work_as_the_broker_has_by_then(ruled, more) -> None:
    """Buckets that come, go, or count more than waits move deadlines to earlier times alone, and no work is lost."""
    ledger, told, whole = Ledger(dues=tuple(Due(*one) for one in ruled)), list[Due](), 0.0
    for at, amount in more:
        told.append(Due(at, whole := whole + amount))
    found = ledger.sooner(told)
    assert found.waiting == pytest.approx(ledger.waiting)
    assert list(found.dues) == sorted(found.dues, key=lambda one: one.at)
    for at in [at for at, _ in (*ruled, *more)]:
        by_rule = sum(amount for due, amount in ruled if due <= at)
        by_broker = max([amount for due, amount in told if due <= at], default=0.0)
        by_then = sum(amount for due, amount in found.dues if due <= at)
        assert by_then == pytest.approx(min(ledger.waiting, max(by_rule, by_broker)))
    assert ledger.sooner([]) is ledger


def test_a_rate_takes_no_more_than_its_money_pays_and_no_more_than_comes() -> None:
    def kept(waiting: float, flow: float, ready: float = 0.0, paid: float = 9.0) -> float:
        ledger = Ledger(0.0, (Due(HOUR, waiting),), 0.0, 0.0, 0.001)
        return steady(ledger, Rate(5000.0), paid, flow, Standing(((0.0, ready),), 20.0, START), DEFAULT, 0.0).replicas

    assert kept(1e6, 1.0) == 5.0
    assert kept(1e6, 1.0, ready=5.0, paid=2.0) == 2.0
    assert kept(0.0, 1.5) == 2.0, "three quarters busy"
    assert kept(0.0, 1.5, ready=9.0) == pytest.approx(2.2), "what stands is not removed for a tenth"
