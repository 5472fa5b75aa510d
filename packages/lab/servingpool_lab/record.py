"""A run as a file: what it was, how it went, how it ended."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from servingpool_lab.scenario import Scenario
from servingpool_lab.snapshot import Snapshot

FORMAT = 1
"""Rises when a key changes its meaning."""


@dataclass(frozen=True, slots=True)
class _Said:
    """What the operator said, from a time on."""

    unix: float
    desired: int | None
    attainment: float | None
    verdict: str | None
    reason: str | None


@dataclass(slots=True)
class Recorder:
    """Remembers what the operator said when; everything else is in the last snapshot's series."""

    scenario: Scenario
    _said: list[_Said] = field(default_factory=list)

    def note(self, snapshot: Snapshot) -> None:
        """Takes in one look; call it at least once a tick."""
        if snapshot.pool is None:
            return
        status = snapshot.pool.status
        decision = status.last_decision
        said = _Said(
            unix=snapshot.unix,
            desired=status.desired_replicas,
            attainment=None if status.attainment is None else status.attainment / 100,
            verdict=decision.verdict if decision else None,
            reason=decision.reason if decision else None,
        )
        last = self._said[-1] if self._said else None
        if last is None or asdict(last) | {"unix": 0} != asdict(said) | {"unix": 0}:
            self._said.append(said)

    def document(self, snapshot: Snapshot) -> dict[str, Any]:
        """For JSON. `series` has a place every 15 s in each list; seconds, requests/s, tokens/s; unknown is null."""
        truth: Mapping[str, Any] = snapshot.truth or {}
        begun = snapshot.unix - snapshot.seconds
        workload = self.scenario.workload
        return {
            "format": FORMAT,
            "begun": datetime.fromtimestamp(begun, UTC).isoformat(timespec="seconds"),
            "trace": workload.title,
            "start_at": self.scenario.start_at,
            "profile": workload.profile,
            "model": workload.model,
            "slo": asdict(workload.slo),
            "mode": self.scenario.mode.value,
            "load_seconds": self.scenario.load_seconds,
            "replicas": {"initial": workload.initial, "max": workload.maximum},
            "first_decision_seconds": snapshot.first_decision,
            "score": _score(truth),
            "best_static": _static(truth),
            "series": {**snapshot.series, **self._operator(snapshot, begun)},
            "events": [asdict(event) | {"at": event.at - begun} for event in snapshot.events],
        }

    def write(self, path: Path, snapshot: Snapshot) -> None:
        """Writes the document."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.document(snapshot), indent=1) + "\n")

    def _operator(self, snapshot: Snapshot, begun: float) -> dict[str, list[Any]]:
        """What held at each moment of the series."""
        moments = [said.unix - begun for said in self._said]
        held = [bisect_right(moments, at) - 1 for at in snapshot.series.get("time", [])]
        said = [self._said[index] if index >= 0 else None for index in held]
        return {
            "desired": [each.desired if each else None for each in said],
            "operator_attainment": [each.attainment if each else None for each in said],
            "verdict": [each.verdict if each else None for each in said],
            "reason": [each.reason if each else None for each in said],
        }


def _score(truth: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("seconds", "arrived", "attained", "ended", "in_flight", "attainment", "replica_seconds", "gpu_hours")
    return {key: truth.get(key) for key in keys}


def _static(truth: Mapping[str, Any]) -> dict[str, Any] | None:
    """The smallest static fleet that would have held the SLO, by simulation, and its cost over the same time."""
    static = truth.get("static")
    return static and {**static, "gpu_hours": static_gpu_hours(truth)}


def static_gpu_hours(truth: Mapping[str, Any]) -> float | None:
    """GPU-hours of the best static fleet over the time of the run; None without one."""
    static = truth.get("static")
    return static and static["replicas"] * truth["gpus_per_replica"] * truth["seconds"] / 3600
