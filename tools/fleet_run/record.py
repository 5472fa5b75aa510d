"""What a run leaves behind, as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fleet_run.scale_writes import ScaleWrite, held_replicas
from recording import from_json, observation_at


@dataclass(frozen=True)
class TargetObservation:
    """A Deployment at a moment, as the API server shows it."""

    ordered: int
    """Its spec.replicas."""
    ready: int
    pods: int
    """All that exist: those that load, wait for a node or drain too."""
    draining: int
    """Of these, those that are being deleted."""
    without_node: int

    @property
    def held(self) -> int:
        """Replicas that hold GPUs of the budget."""
        return held_replicas(self.ordered, self.pods - self.draining, self.draining)


@dataclass(frozen=True)
class PoolObservation:
    """A pool at a moment: requests so far, as its emulated engines know them, and what its status says."""

    arrived: int
    attained: int
    """Of those that ended, within the SLO."""
    finished: int
    rejected: int
    lost: int
    in_flight: int
    held_back: int
    """Of these, requests that the gateway holds because no replica is ready."""
    limited: bool
    """The pool's condition ScalingLimited is True for the reason GPUBudget."""

    @property
    def ended(self) -> int:
        """Whatever way."""
        return self.finished + self.rejected + self.lost


@dataclass(frozen=True)
class ClusterObservation:
    """All of it at a moment."""

    at: float
    """Unix time in seconds."""
    load: float
    """The machine's load average over a minute."""
    targets: dict[str, TargetObservation]
    pools: dict[str, PoolObservation]
    wanted: int
    """GPUs that all pools want together, by the budget's status; 0 while it has none."""

    @property
    def gpus(self) -> int:
        """That all pools hold; a replica has one."""
        return sum(one.held for one in self.targets.values())

    @property
    def bound(self) -> bool:
        """Whether the budget keeps a pool from GPUs that it wants."""
        return any(one.limited for one in self.pools.values())


@dataclass(frozen=True)
class Said:
    """A sentence of the operator's, from a pool's status."""

    at: float
    """Unix time in seconds; of a condition when it was first seen."""
    pool: str
    about: str
    """A condition with its status and reason, or a change of replicas such as `3 -> 4`."""
    words: str


@dataclass
class Record:
    """The whole run."""

    minutes: float
    """Asked for."""
    cores: int
    begin: float = 0.0
    """When all pools had users, Unix time in seconds."""
    end: float = 0.0
    observations: list[ClusterObservation] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)
    writes: list[ScaleWrite] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """What went wrong in the run itself: a part that ended, an error in the operator's log."""

    def write(self, path: Path) -> None:
        """Store it."""
        path.write_text(json.dumps(asdict(self)) + "\n")

    @classmethod
    def read(cls, path: Path) -> Record:
        """What `write` stored."""
        raw: dict[str, Any] = json.loads(path.read_text())
        observations = [
            ClusterObservation(
                **one
                | {"targets": _each(TargetObservation, one["targets"]), "pools": _each(PoolObservation, one["pools"])}
            )
            for one in raw["observations"]
        ]
        return cls(
            **raw
            | {
                "observations": observations,
                "said": from_json(Said, raw["said"]),
                "writes": from_json(ScaleWrite, raw["writes"]),
            }
        )

    def observation(self, at: float) -> ClusterObservation:
        """The first observation at a time or after it; the last one beyond the end."""
        return observation_at(self.observations, at)

    def minute(self, at: float) -> float:
        """Minutes since the begin."""
        return (at - self.begin) / 60.0


def _each(kind: type[Any], raw: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {name: kind(**one) for name, one in raw.items()}
