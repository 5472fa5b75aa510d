"""What the recommendation would have cost beside the fleet of an HPA."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import cast

import pytest

from servingpool.adapters.prometheus.own_record import OwnRecord, Point, Record
from servingpool.catalogue.metrics import Metric
from servingpool.cli.compare import compare_fleets
from servingpool.recording import verdict

from ..reconcile.stories import settled  # noqa: TID252, tests are no package of an installed name
from .recorder import Recorder

MINUTES = 30
TARGET = {"name": "vllm", "min": 1, "max": 10, "gpusPerReplica": 2, "costPerReplicaHour": 12.0}


@pytest.fixture(scope="module")
def half_an_hour() -> Recorder:
    """Six replicas stand for so long, and fewer would do."""
    recorder = Recorder(settled(mode="Recommend", targets=[TARGET]))
    recorder.world.autoscaler("HorizontalPodAutoscaler")
    recorder.world.set_replicas("vllm", 6, by="kube-controller-manager")
    recorder.world.step(minutes=6)
    recorder.run(MINUTES)
    return recorder


@pytest.fixture
def beside(half_an_hour: Recorder, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    monkeypatch.setattr(verdict, "LEAST", 0.0)  # half an hour is enough for these stories
    return half_an_hour.copy()


def test_both_fleets_are_summed_over_the_time_that_is_recorded(
    beside: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = beside.ask(monkeypatch, "compare", "--since", f"{MINUTES}m", "-o", "json")
    assert shown.exit_code == 0, shown.output
    told = json.loads(shown.stdout)
    hours = told["seconds"] / 3600.0
    assert hours == pytest.approx(MINUTES / 60.0, rel=0.001), "no more than was asked for"
    assert told["stood"]["replica_hours"] == pytest.approx(6 * hours)
    assert told["stood"]["gpu_hours"] == pytest.approx(12 * hours)
    assert told["stood"]["dollars"] == pytest.approx(72 * hours)
    wanted = told["recommended"]
    assert 0.0 < wanted["replica_hours"] < 6 * hours
    assert wanted["gpu_hours"] == pytest.approx(2 * wanted["replica_hours"])
    assert wanted["dollars"] == pytest.approx(12 * wanted["replica_hours"])
    assert told["stood"]["attainment"] == pytest.approx(beside.world.status()["attainment"] / 100.0, abs=0.02)
    assert told["objective"] == 0.95
    assert 0.0 < told["judged"] <= 1.0
    assert 0.9 < wanted["attainment"] <= 1.0


def test_a_short_record_gives_no_verdict_but_a_band_and_when_to_ask_again(
    beside: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdict, "LEAST", 7200.0)
    shown = beside.ask(monkeypatch, "compare", "--since", f"{MINUTES}m")
    assert shown.exit_code == 0
    assert (
        f"No verdict yet. The history is {MINUTES}m long, and a verdict needs 2h: ask again in 1h30m." in shown.output
    )
    (attainment,) = (line for line in shown.output.splitlines() if line.startswith("attainment"))
    assert re.search(r"\d+% to \d+% expected$", attainment), "a band, and no difference"


class Told:
    """A record of identical fleets, 10 requests a second, minute by minute."""

    def __init__(self, minutes: int, *, without: range = range(0), learning: int = 0, expected: float = 0.97) -> None:
        self._minutes, self._without, self._learning, self._expected = minutes, without, learning, expected

    def over(self, _: object, start: float, end: float, step: float) -> Iterator[tuple[float, Record]]:
        for minute in range(self._minutes):
            if minute in self._without:
                continue
            calibrating = {"type": "Calibrating", "status": str(minute < self._learning), "reason": "Learning"}
            values = {
                Metric.REQUESTED_REPLICAS: 3.0,
                Metric.DESIRED_REPLICAS: 3.0,
                Metric.NEEDED_REPLICAS: 2.5,
                Metric.ARRIVAL_RATE: 10.0,
                Metric.RECENT_ATTAINMENT: 0.971,
                Metric.EXPECTED_MISSES: 1.0 - self._expected,
            }
            record = {metric: [Point({}, value)] for metric, value in values.items()}
            yield 60.0 * (minute + 1), {**record, Metric.CONDITION: [Point(calibrating, 1.0)]}


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (Told(180), ""),
        (Told(180, expected=0.839), "83.9% of requests within the SLO, and 97.1% were observed of the same fleet"),
        (Told(180, without=range(60, 90)), "Data are missing for 30m of 3h, more than 10%"),
        (Told(180, learning=60), "The operator was calibrating for 1h of 3h: ask again in 7h or from after it on."),
    ],
)
def test_a_comparison_says_why_it_is_no_verdict(told: Told, said: str) -> None:
    found = compare_fleets(cast("OwnRecord", told), 0.0, 10_800.0, 60.0)
    assert found is not None
    assert len(found.doubts) == (1 if said else 0)
    assert said in " ".join(found.doubts)


def test_what_nobody_has_said_is_unknown_and_not_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(settled(mode="Recommend"))
    recorder.run(5)
    shown = recorder.ask(monkeypatch, "compare").output
    assert "Dollars need targets[0].costPerReplicaHour in the pool." in shown
    assert json.loads(recorder.ask(monkeypatch, "compare", "-o", "json").stdout)["stood"]["dollars"] is None


def test_while_the_need_is_unknown_nothing_is_recommended(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(settled(mode="Recommend"))
    recorder.world.prometheus.silent = "Prometheus backend 'default' cannot be reached"
    recorder.world.step()
    recorder.run(5)
    shown = recorder.ask(monkeypatch, "compare", "--since", "4m", "--context", "eu")
    assert shown.exit_code == 3
    said = "No recommendation for chat/pool in the last 4m. `servingpool explain pool -n chat --context eu` says"
    assert said in shown.stderr
