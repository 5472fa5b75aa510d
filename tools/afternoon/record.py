"""What an afternoon leaves behind, as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from recording import from_json, observation_at


@dataclass(frozen=True)
class Command:
    """A command as a person types it, with what it printed."""

    at: float
    """Unix time in seconds."""
    typed: str
    printed: str
    seconds: float
    status: int
    failed: bool
    """It ended with another status than it should."""


@dataclass(frozen=True)
class FleetObservation:
    """The fleet at a moment, as the emulated engines and their users know it."""

    at: float
    """Unix time in seconds."""
    arrived: int
    """Requests so far."""
    attained: int
    """Of those that ended, within the SLO."""
    finished: int
    rejected: int
    lost: int
    in_flight: int
    replica_seconds: float
    ready: int
    load: float
    """The machine's load average over a minute."""


@dataclass(frozen=True)
class Write:
    """A request that set the Deployment's replicas, by the API server's audit log."""

    at: float
    """Unix time in seconds at which it was answered."""
    user: str
    replicas: int


@dataclass
class Record:
    """The whole afternoon."""

    title: str
    """Of the trace."""
    hardware: str
    slo: dict[str, float | None]
    gpus: int
    """Of a replica."""
    cores: int
    target: float
    """Running requests for each replica that the HPA aims at."""
    minimum: int
    maximum: int
    marks: dict[str, float] = field(default_factory=dict)
    """When a phase began, unix seconds: hpa, recommend, auto, released, end; and hpa_deleted, hpa_created."""
    commands: list[Command] = field(default_factory=list)
    observations: list[FleetObservation] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """What went wrong in the run itself."""

    def write(self, path: Path) -> None:
        """Store it."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Record:
        """What `write` stored."""
        raw: dict[str, Any] = json.loads(path.read_text())
        kinds = {"commands": Command, "observations": FleetObservation, "writes": Write}
        return cls(**raw | {name: from_json(kind, raw[name]) for name, kind in kinds.items()})

    def observation(self, at: float) -> FleetObservation:
        """The first observation at a time or after it; the last one beyond the end."""
        return observation_at(self.observations, at)
