"""Looks at a running lab from outside, as a person with curl and kubectl would."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from servingpool.api.group import API_VERSION, KIND, PLURAL
from servingpool.api.serving_pool import ServingPool
from servingpool_lab.api_client import ApiClient, ApiError
from servingpool_lab.processes import open_local
from servingpool_lab.scenario import Scenario
from servingpool_lab.snapshot import Event, Snapshot

log = logging.getLogger(__name__)

_EVENTS_KEPT = 20


class Collector:
    """Reads every part at its own pace in a thread of its own; `snapshot` never waits."""

    def __init__(
        self, scenario: Scenario, api: ApiClient, emulator_url: str, parts: Callable[[], dict[str, bool]], begun: float
    ) -> None:
        """`begun` is `time.monotonic()` at the start of the command."""
        self._scenario = scenario
        self._api = api
        self._emulator_url = emulator_url
        self._read_parts = parts
        self._begun = begun
        self._stopped = threading.Event()
        self._parts: dict[str, bool] = parts()
        self._truth: Mapping[str, Any] | None = None
        self._series: Mapping[str, list[Any]] = {}
        self._pool: ServingPool | None = None
        self._events: tuple[Event, ...] = ()
        self._first_decision: float | None = None
        self._thread = threading.Thread(target=self._run, name="collector", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stopped.set()
        self._thread.join(5.0)

    def snapshot(self) -> Snapshot:
        """What was last seen."""
        return Snapshot(
            elapsed=time.monotonic() - self._begun,
            unix=time.time(),
            parts=self._parts,
            truth=self._truth,
            series=self._series,
            pool=self._pool,
            events=self._events,
            first_decision=self._first_decision,
        )

    def refresh(self) -> Snapshot:
        """Looks at everything now."""
        for look in (self._look_at_parts, self._look_at_truth, self._look_at_series, self._look_at_pool):
            self._attempt(look)
        self._attempt(self._look_at_events)
        return self.snapshot()

    def _run(self) -> None:
        # The pool is read often until its first decision, whose time is one of the lab's figures.
        paces: list[tuple[Callable[[], None], Callable[[], float]]] = [
            (self._look_at_parts, lambda: 1.0),
            (self._look_at_truth, lambda: 1.0),
            (self._look_at_series, lambda: 5.0),
            (self._look_at_pool, lambda: 0.5 if self._first_decision is None else 2.0),
            (self._look_at_events, lambda: 5.0),
        ]
        due = [0.0] * len(paces)
        while not self._stopped.is_set():
            now = time.monotonic()
            for index, (look, pace) in enumerate(paces):
                if now >= due[index]:
                    self._attempt(look)
                    due[index] = now + pace()
            self._stopped.wait(0.25)

    def _attempt(self, look: Callable[[], None]) -> None:
        try:
            look()
        except (OSError, ApiError, ValueError, ValidationError, KeyError) as error:
            # A part that is away is shown as such; the others go on.
            log.debug("%s: %s", look.__name__, error)

    def _look_at_parts(self) -> None:
        self._parts = self._read_parts()

    def _look_at_truth(self) -> None:
        self._truth = self._emulator("/truth")

    def _look_at_series(self) -> None:
        self._series = self._emulator("/truth/series")

    def _look_at_pool(self) -> None:
        namespace, name = self._scenario.namespace, self._scenario.workload.name
        raw = self._api.get(f"/apis/{API_VERSION}/namespaces/{namespace}/{PLURAL}/{name}")
        self._pool = ServingPool.read(raw)
        if self._first_decision is None and self._pool.status.last_decision is not None:
            self._first_decision = time.monotonic() - self._begun

    def _look_at_events(self) -> None:
        selector = f"involvedObject.kind%3D{KIND}%2CinvolvedObject.name%3D{self._scenario.workload.name}"
        path = f"/api/v1/namespaces/{self._scenario.namespace}/events?fieldSelector={selector}"
        events = sorted((_event(raw) for raw in self._api.items(path)), key=lambda event: event.at)
        self._events = tuple(events[-_EVENTS_KEPT:])

    def _emulator(self, path: str) -> dict[str, Any]:
        with open_local(self._emulator_url + path, 5.0) as response:
            answer: dict[str, Any] = json.load(response)
            return answer


def _event(raw: Mapping[str, Any]) -> Event:
    moment = raw.get("eventTime") or raw.get("lastTimestamp") or raw["metadata"]["creationTimestamp"]
    return Event(
        at=datetime.fromisoformat(moment).timestamp(),
        reason=str(raw.get("reason") or ""),
        message=" ".join(str(raw.get("message") or "").split()),
        warning=raw.get("type") == "Warning",
    )
