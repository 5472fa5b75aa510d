"""What is said of a pod template that loses requests."""

from __future__ import annotations

import pytest

from servingpool.adapters.cluster.drain import ARGUMENTS_UNSEEN, HOOK_UNCLEAR, Drain
from servingpool.api.conditions import Reason
from servingpool.decision.observation import Unknown
from servingpool.status.conditions import judge_drain


def test_a_pod_that_waits_drains_and_is_then_killed_loses_nothing() -> None:
    reason, said = judge_drain(Drain(150.0, 15.0, 120.0), [12.0])
    assert reason is Reason.FINISHES_REQUESTS
    assert said == "A removed pod waits 15 s, drains for up to 120 s, and is killed after 150 s."


def test_each_missing_drain_setting_is_named_with_its_cost() -> None:
    reason, said = judge_drain(Drain(30.0, 0.0, 0.0), [10.0, 15.0])
    assert reason is Reason.NO_SHUTDOWN_TIMEOUT
    assert said == (
        "Scale-down aborts running requests, about 12 per replica now. Set vLLM's --shutdown-timeout. "
        "There is no preStop sleep, so scale-down fails requests that still arrive. Sleep 5 s or more; 15 s is safe."
    )


def test_no_number_of_requests_is_given_if_it_is_unknown() -> None:
    _, said = judge_drain(Drain(30.0, 15.0, 0.0), [])
    assert said == "Scale-down aborts running requests. Set vLLM's --shutdown-timeout."


@pytest.mark.parametrize(
    ("drain", "reason", "said"),
    [
        (Drain(130.0, 2.0, 120.0), Reason.PRE_STOP_TOO_SHORT, "The preStop hook sleeps only 2 s"),
        (
            Drain(139.0, 15.0, 120.0),
            Reason.GRACE_PERIOD_TOO_SHORT,
            "after 139 s; preStop 15 s and drain 120 s need 140 s.",
        ),
        (
            Drain(30.0, HOOK_UNCLEAR, 120.0),
            Reason.GRACE_PERIOD_TOO_SHORT,
            "after 30 s; preStop 0 s and drain 120 s need 125 s.",
        ),
        (
            Drain(15.0, 15.0, ARGUMENTS_UNSEEN),
            Reason.GRACE_PERIOD_TOO_SHORT,
            "after 15 s; preStop 15 s and drain 0 s need 20 s.",
        ),
        (Drain(150.0, HOOK_UNCLEAR, 0.0), Reason.NO_SHUTDOWN_TIMEOUT, "--shutdown-timeout"),
    ],
)
def test_one_missing_drain_setting_is_enough(drain: Drain, reason: Reason, said: str) -> None:
    found, message = judge_drain(drain, [])
    assert found is reason
    assert said in message


@pytest.mark.parametrize(
    ("drain", "unknown"),
    [
        (Drain(150.0, 15.0, ARGUMENTS_UNSEEN), [ARGUMENTS_UNSEEN]),
        (Drain(150.0, HOOK_UNCLEAR, 120.0), [HOOK_UNCLEAR]),
        (Drain(150.0, HOOK_UNCLEAR, ARGUMENTS_UNSEEN), [ARGUMENTS_UNSEEN, HOOK_UNCLEAR]),
    ],
)
def test_an_invisible_drain_setting_is_unknown(drain: Drain, unknown: list[Unknown]) -> None:
    reason, said = judge_drain(drain, [3.0])
    assert reason is Reason.DRAIN_NOT_VISIBLE
    assert said == f"Drain settings are not visible: {'; '.join(each.reason for each in unknown)}."
