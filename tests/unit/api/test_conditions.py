from datetime import UTC, datetime

from servingpool.api.conditions import Condition, Reason, condition_of, updated

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = datetime(2026, 1, 1, 13, tzinfo=UTC)


def ready(reason: Reason, now: datetime, message: str = "") -> Condition:
    return condition_of(reason, message, generation=1, at=now.timestamp())


def test_a_new_reason_and_message_keep_the_transition_time_while_the_status_stays() -> None:
    before = ready(Reason.TARGET_NOT_FOUND, NOON)
    [after] = updated([before], [ready(Reason.OWNED_BY_HPA, LATER, "An HPA scales it.")])
    assert (after.reason, after.last_transition_time) == ("OwnedByHPA", NOON)


def test_a_new_status_moves_the_transition_time() -> None:
    [after] = updated([ready(Reason.TARGET_NOT_FOUND, NOON)], [ready(Reason.PAUSED, LATER)])
    assert after.last_transition_time == LATER


def test_nothing_new_leaves_the_conditions_equal_so_no_status_is_written() -> None:
    held = (ready(Reason.SUCCEEDED_GET_SCALE, NOON),)
    assert updated(held, [ready(Reason.SUCCEEDED_GET_SCALE, LATER)]) == held


def test_conditions_not_judged_this_time_stay_in_place() -> None:
    slo = condition_of(Reason.OBJECTIVE_MET, "", generation=1, at=NOON.timestamp())
    after = updated([slo], [ready(Reason.SUCCEEDED_GET_SCALE, LATER)])
    assert [one.type for one in after] == ["SLOMet", "Ready"]


def test_a_long_message_is_cut_not_refused() -> None:
    message = ready(Reason.FAILED_UPDATE_SCALE, NOON, message="x" * 5000).message
    assert (len(message), message[-1]) == (1024, "…")


def test_is_written_as_a_metav1_condition() -> None:
    assert ready(Reason.SUCCEEDED_GET_SCALE, NOON, "fine").to_dict() == {
        "type": "Ready",
        "status": "True",
        "reason": "SucceededGetScale",
        "message": "fine",
        "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T12:00:00Z",
    }
