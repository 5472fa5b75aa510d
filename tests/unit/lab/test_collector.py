from __future__ import annotations

import contextlib
import io
import json
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from servingpool_lab import collector
from servingpool_lab.collector import Collector
from servingpool_lab.scenario import WORKLOADS, Scenario
from servingpool_lab.workload import serving_pool

SCENARIO = Scenario(WORKLOADS["conv"])
EVENTS: list[dict[str, Any]] = [
    {
        "type": "Warning",
        "reason": "FailedGetMetrics",
        "message": "no\nanswer",
        "lastTimestamp": None,
        "eventTime": "2026-11-21T10:00:30.500000Z",
        "metadata": {"creationTimestamp": "2026-11-21T10:00:31Z"},
    },
    {
        "reason": "SuccessfulRescale",
        "message": "New size: 3",
        "lastTimestamp": "2026-11-21T10:00:15Z",
        "metadata": {"creationTimestamp": "2026-11-21T10:00:15Z"},
    },
]


class World:
    """The API server and the emulator, each of which may be away."""

    def __init__(self) -> None:
        self.api_away = self.emulator_away = False
        self.pool = serving_pool(SCENARIO)
        self.truth: dict[str, Any] = {"seconds": 30.0}

    def get(self, path: str) -> dict[str, Any]:
        assert path.endswith("/namespaces/default/servingpools/llama-70b")
        if self.api_away:
            raise ConnectionRefusedError
        return self.pool

    def items(self, path: str) -> list[dict[str, Any]]:
        assert path.startswith("/api/v1/namespaces/default/events?fieldSelector=")
        if self.api_away:
            raise ConnectionRefusedError
        return EVENTS

    @contextlib.contextmanager
    def open(self, url: str, _timeout: float) -> Iterator[io.BytesIO]:
        if self.emulator_away:
            raise ConnectionRefusedError
        answers = {"http://emulator/truth": self.truth, "http://emulator/truth/series": {"time": [15.0]}}
        yield io.BytesIO(json.dumps(answers[url]).encode())


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(collector, "open_local", made.open)
    monkeypatch.setattr(collector, "time", SimpleNamespace(time=time.time, monotonic=lambda: 114.0))
    return made


def looking(world: World) -> Collector:
    parts = {"operator": True}
    return Collector(SCENARIO, world, "http://emulator", lambda: parts, begun=100.0)  # type: ignore[arg-type]


def test_events_are_in_order_of_time_and_on_one_line(world: World) -> None:
    events = looking(world).refresh().events
    assert [(event.reason, event.warning) for event in events] == [
        ("SuccessfulRescale", False),
        ("FailedGetMetrics", True),
    ]
    assert events[1].at - events[0].at == pytest.approx(15.5)
    assert events[1].message == "no answer"


def test_what_was_seen_last_stands_while_a_part_is_away(world: World) -> None:
    looks = looking(world)
    looks.refresh()
    world.api_away = True
    world.truth = {"seconds": 45.0}
    during = looks.refresh()
    assert during.seconds == 45.0
    assert during.pool is not None
    world.emulator_away = True
    assert looks.refresh().truth == {"seconds": 45.0}
