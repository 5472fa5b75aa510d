from __future__ import annotations

import pytest

from servingpool.decision.pool import Slo
from servingpool_lab.emulator.ledger import Ended, Fate, Ledger

SLO = Slo(time_to_first_token=2.0, time_per_output_token=0.1, attainment=0.5)


def answered(at: float, ttft: float = 1.0, tpot: float | None = 0.05) -> Ended:
    return Ended(at - ttft, at, Fate.FINISHED, ttft, tpot)


@pytest.mark.parametrize(
    ("request_", "good"),
    [
        (answered(10.0), True),
        (answered(10.0, ttft=2.0, tpot=0.1), True),
        (answered(10.0, ttft=2.01), False),
        (answered(10.0, tpot=0.11), False),
        (answered(10.0, tpot=None), True),
        (Ended(0.0, 10.0, Fate.LOST), False),
        (Ended(0.0, 10.0, Fate.REJECTED), False),
    ],
)
def test_a_request_is_good_if_it_was_answered_within_every_bound(request_: Ended, good: bool) -> None:
    assert request_.meets(SLO) is good


def test_a_bound_that_is_not_set_does_not_matter() -> None:
    assert answered(10.0, tpot=9.0).meets(Slo(time_to_first_token=2.0))
    assert answered(100.0, ttft=90.0).meets(Slo(time_per_output_token=0.1))


def test_attainment_is_unknown_before_the_first_answer() -> None:
    ledger = Ledger(SLO)
    ledger.arrive(1.0)
    assert ledger.attainment is None
    ledger.end(answered(10.0))
    ledger.end(Ended(1.0, 11.0, Fate.LOST))
    assert ledger.attainment == 0.5


def test_current_latencies_are_those_of_the_last_minute() -> None:
    ledger = Ledger(SLO)
    for at, ttft in ((100.0, 9.0), (150.0, 1.0), (155.0, 3.0)):
        ledger.end(answered(at, ttft=ttft))
    assert ledger.latest(160.5) == (2.0, 0.05)
    assert ledger.latest(300.0) == (None, None)


def test_the_arrival_rate_does_not_dilute_in_the_first_minute() -> None:
    ledger = Ledger(SLO)
    for second in range(1, 21):
        ledger.arrive(100.0 + second)
    assert ledger.arrival_rate(120.0, since=100.0) == pytest.approx(1.0)
    assert ledger.arrival_rate(170.0, since=100.0) == pytest.approx(10 / 60)


def test_columns_place_ttft_at_the_first_token_and_tpot_at_the_end() -> None:
    ledger = Ledger(SLO)
    ledger.end(Ended(arrival=10.0, at=200.0, fate=Fate.FINISHED, ttft=5.0, tpot=0.3))
    ledger.end(Ended(arrival=190.0, at=210.0, fate=Fate.FINISHED, ttft=1.0, tpot=0.05))
    columns = ledger.by_minute([60.0, 195.0, 205.0, 215.0])
    assert columns["ttft"] == [5.0, 1.0, 1.0, 1.0]
    assert columns["tpot"] == pytest.approx([None, None, 0.3, 0.175])
    assert columns["attainment"] == [None, None, 0.0, 0.5]
