"""What is said of a pod template that loses requests."""

from __future__ import annotations

import pytest

from servingpool.adapters.cluster.drain import ARGUMENTS_UNSEEN, HOOK_UNCLEAR, Drain
from servingpool.api.conditions import Reason, Truth
from servingpool.decision.observation import Unknown
from servingpool.reconcile.draining import judge_drain


def test_a_pod_that_waits_drains_and_is_then_killed_loses_nothing() -> None:
    truth, reason, said = judge_drain(Drain(150.0, 15.0, 120.0), [12.0])
    assert (truth, reason) == (Truth.TRUE, Reason.FINISHES_REQUESTS)
    assert said == "a replica that is removed waits 15 s, finishes what it has within 120 s, and is killed after 150 s"


def test_what_is_missing_is_said_with_its_price_the_dearest_first() -> None:
    truth, reason, said = judge_drain(Drain(30.0, 0.0, 0.0), [10.0, 15.0])
    assert (truth, reason) == (Truth.FALSE, Reason.NO_SHUTDOWN_TIMEOUT)
    assert said == (
        "scale-downs cut what is in flight, about 12 requests per replica now: vLLM's --shutdown-timeout is not set; "
        "scale-downs fail requests that still arrive while a load balancer learns of it: there is no preStop sleep, "
        "5 s is the least, 15 s is safe"
    )


def test_no_figure_is_made_up_where_none_is_known() -> None:
    _, _, said = judge_drain(Drain(30.0, 15.0, 0.0), [])
    assert said == "scale-downs cut what is in flight: vLLM's --shutdown-timeout is not set"


@pytest.mark.parametrize(
    ("drain", "reason", "said"),
    [
        (Drain(130.0, 2.0, 120.0), Reason.PRE_STOP_TOO_SHORT, "the preStop hook sleeps 2 s only"),
        (
            Drain(139.0, 15.0, 120.0),
            Reason.GRACE_PERIOD_TOO_SHORT,
            "preStop 15 s and --shutdown-timeout 120 s need 140",
        ),
        (Drain(30.0, HOOK_UNCLEAR, 120.0), Reason.GRACE_PERIOD_TOO_SHORT, "--shutdown-timeout 120 s need 125"),
        (Drain(15.0, 15.0, ARGUMENTS_UNSEEN), Reason.GRACE_PERIOD_TOO_SHORT, "terminationGracePeriodSeconds is 15"),
        (Drain(150.0, HOOK_UNCLEAR, 0.0), Reason.NO_SHUTDOWN_TIMEOUT, "is not set"),
    ],
)
def test_one_thing_that_is_surely_missing_is_enough(drain: Drain, reason: Reason, said: str) -> None:
    truth, found, message = judge_drain(drain, [])
    assert (truth, found) == (Truth.FALSE, reason)
    assert said in message


@pytest.mark.parametrize(
    ("drain", "unknown"),
    [
        (Drain(150.0, 15.0, ARGUMENTS_UNSEEN), [ARGUMENTS_UNSEEN]),
        (Drain(150.0, HOOK_UNCLEAR, 120.0), [HOOK_UNCLEAR]),
        (Drain(150.0, HOOK_UNCLEAR, ARGUMENTS_UNSEEN), [ARGUMENTS_UNSEEN, HOOK_UNCLEAR]),
    ],
)
def test_what_cannot_be_seen_is_unknown_and_no_fault(drain: Drain, unknown: list[Unknown]) -> None:
    truth, reason, said = judge_drain(drain, [3.0])
    assert (truth, reason) == (Truth.UNKNOWN, Reason.DRAIN_NOT_VISIBLE)
    assert said == "; ".join(each.reason for each in unknown)
