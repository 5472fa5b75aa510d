"""The recorded afternoon: what its record proves, and its page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from afternoon.course import Afternoon, Minutes
from afternoon.evidence import faults, least_between_writers, phases
from afternoon.page import SECTIONS, page
from afternoon.picture import picture
from afternoon.pod_metrics import ROOT, PodMetrics
from afternoon.record import Command, FleetObservation, Record, Write

HPA = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
TYPED = (0.0, 1320.0, 1330.0, 1340.0, 1400.0, 2100.0, 2110.0, 4410.0, 5710.0, 5890.0)
"""When the commands of each section were typed."""
OPERATOR = "system:serviceaccount:servingpool-system:servingpool-operator"


def observation(minute: float, **other: int) -> FleetObservation:
    """10 requests a minute, all answered and 9 in time, by 2 replicas."""
    done = int(10 * minute)
    figures = {"arrived": done, "finished": done, "attained": 9 * done // 10, "rejected": 0, "lost": 0, **other}
    return FleetObservation(at=60 * minute, in_flight=0, replica_seconds=120 * minute, ready=2, load=1.0, **figures)


def afternoon(*writes: Write, lost: int = 0) -> Record:
    """25 minutes of HPA, 10 of Recommend, 60 of Auto, 5 of HPA."""
    return Record(
        title="trace",
        hardware="GPU",
        slo={"time_to_first_token": 2.5, "time_per_output_token": 0.15, "attainment": 0.95},
        gpus=4,
        cores=2,
        target=16.0,
        minimum=2,
        maximum=8,
        marks={
            "hpa": 0.0,
            "recommend": 1500.0,
            "auto": 2130.0,
            "hpa_deleted": 2100.0,
            "hpa_created": 5700.0,
            "released": 5710.0,
            "end": 6000.0,
        },
        commands=[
            Command(at, f"{begins} x", f"{begins}\n" + "line\n" * 49, 1.25, 0, failed=False)
            for at, one in zip(TYPED, SECTIONS, strict=True)
            for begins in one.commands
        ],
        observations=[observation(minute) for minute in range(100)] + [observation(100, lost=lost)],
        writes=list(writes),
    )


GOOD = (Write(100.0, HPA, 4), Write(150.0, "alice", 4), Write(2110.0, OPERATOR, 3), Write(5730.0, HPA, 5))


def test_one_after_the_other_is_no_fault() -> None:
    record = afternoon(*GOOD)
    assert list(faults(record)) == []
    assert least_between_writers(record) == 2010.0


def test_the_hpa_writing_in_the_operators_time_is_a_fault() -> None:
    found = list(faults(afternoon(*GOOD[:3], Write(3000.0, HPA, 6), GOOD[3])))
    assert found == ["The HPA controller set 6 replicas in minute 50.0, when the other was in charge."]


def test_the_operator_writing_before_its_time_is_a_fault() -> None:
    assert "The operator set 2 replicas in minute 30.0" in next(faults(afternoon(Write(1800.0, OPERATOR, 2))))


def test_two_writers_within_a_step_are_a_fault() -> None:
    found = list(faults(afternoon(Write(2095.0, HPA, 4), Write(2105.0, OPERATOR, 3))))
    assert found == ["Two writers set replicas within 10.0 s."]


def test_a_command_that_failed_is_a_fault() -> None:
    record = afternoon(*GOOD)
    record.commands[0] = replace(record.commands[0], status=4, failed=True)
    assert list(faults(record)) == [f"`{record.commands[0].typed}` ended with 4."]


def test_an_emulator_that_does_not_answer_is_a_fault_and_asked_again_only_at_the_next_turn(tmp_path: Path) -> None:
    run = Afternoon(tmp_path, {"kubectl": tmp_path}, Minutes(1.0, 1.0, 1.0, 1.0))
    waits: list[float] = []
    asked = 0

    def truth() -> None:
        nonlocal asked
        assert asked == len(waits), "it is not asked again at once"
        asked += 1
        raise ConnectionRefusedError("refused")

    run._stack = SimpleNamespace(truth=truth)  # type: ignore[assignment]
    run._over = SimpleNamespace(is_set=lambda: len(waits) == 2, wait=waits.append)  # type: ignore[assignment]
    run._observe()
    assert run.record.faults == ["Nothing was seen in minute 0.0: refused."] * 2
    record = afternoon(*GOOD)
    record.faults = run.record.faults[:1]
    assert list(faults(record)) == record.faults


def test_a_lost_request_is_a_fault() -> None:
    assert list(faults(afternoon(*GOOD, lost=1))) == ["1 requests were lost."]


def test_each_phase_has_its_own_requests_and_replica_hours() -> None:
    found = phases(afternoon(*GOOD))
    assert [(one.name, one.sent, one.attainment) for one in found] == [
        ("HPA", 250, 0.9),
        ("Recommend", 100, 0.9),
        ("Auto", 600, 0.9),
        ("HPA again", 50, 0.9),
    ]
    assert [round(one.replica_hours, 3) for one in found] == [0.833, 0.333, 2.0, 0.167]


def test_the_page_shows_each_command_and_who_wrote_when() -> None:
    text = page(afternoon(*GOOD))
    assert "$ servingpool backtest x\nservingpool backtest\nline\n" in text
    assert "... 5 lines more" in text
    assert "--hpa 22 --recommend 10 --auto 38 --released 3" in text
    assert "| 35 | Auto |  | 3 |" in text
    assert "should not have happened" not in text
    bad = page(afternoon(*GOOD, lost=2))
    assert "**What should not have happened:** 2 requests were lost." in bad


def test_what_the_command_before_has_printed_is_not_shown_again() -> None:
    record = afternoon(*GOOD)
    last = record.commands[-1]
    checked = "".join(f"check {number}\n" for number in range(6))
    record.commands[-1:] = [replace(last, printed=f"{checked}refused\n"), replace(last, printed=f"{checked}Done.\n")]
    assert "... 6 lines as above\nDone.\n```" in page(record)


def test_a_picture_names_both_writers() -> None:
    drawn = picture(afternoon(*GOOD))
    assert "set by the HPA" in drawn
    assert "set by the operator" in drawn


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    record = afternoon(*GOOD)
    record.write(tmp_path / "record.json")
    assert Record.read(tmp_path / "record.json") == record
    assert Record.read(tmp_path / "record.json") != replace(record, cores=3)


def test_the_adapter_lists_pods_only_and_knows_no_other_path() -> None:
    adapter = PodMetrics(None, "http://127.0.0.1:1")  # type: ignore[arg-type]
    listed = adapter.answer(ROOT)
    assert listed is not None
    assert [one["name"] for one in listed["resources"]] == ["pods/*"]
    assert adapter.answer(f"{ROOT}/namespaces/default/services/chat/x") is None
