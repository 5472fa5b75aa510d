"""What a run leaves behind, as JSON: counts of the clients' records by minute, replicas, writes, simulated figures."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rivals.scene import SLO
from servingpool_lab.emulator.ledger import Ended, Fate
from servingpool_simulation.traces import Trace

STEP = 15.0
"""Seconds between two entries of `replicas`."""


@dataclass(frozen=True)
class Write:
    """A write to the Deployment's scale, from the API server's audit log."""

    minute: float
    user: str
    after: int


@dataclass(frozen=True)
class Simulated:
    """The simulator's run of the same course."""

    attainment: float
    replica_hours: float
    changes: int


@dataclass(frozen=True)
class FleetRecord:
    """What became of one rival. Lists have an entry for each minute of arrivals."""

    met: list[int]
    """Requests answered within every bound, by the minute in which they came."""
    late: list[int]
    """Answered, first token too late."""
    slow: list[int]
    """Answered, first token in time, the others too slow."""
    lost: list[int]
    """Their replica went away."""
    replicas: list[int]
    """Ordered, at each STEP."""
    replica_hours: float
    """Loading and draining replicas too."""
    writes: list[Write]
    simulated: Simulated


@dataclass
class Record:
    """The whole run."""

    commit: str
    day: str
    minutes: float
    cores: int
    versions: dict[str, str]
    load: tuple[float, float]
    """The machine's load average, mean and most."""
    late: tuple[float, float]
    """Seconds by which the emulator looked at the time too late, mean and most."""
    tail: float
    """Seconds after the last request in which answers could end."""
    sent: list[int]
    """Requests in each minute, the same for every fleet."""
    fleets: dict[str, FleetRecord]
    absent: dict[str, str] = field(default_factory=dict)
    """By fleet of the scene: why this run does not have it."""
    faults: list[str] = field(default_factory=list)
    """What went wrong in the run itself."""
    explained: dict[str, str] = field(default_factory=dict)
    """By fleet: why the run and the simulator differ. The one part that a person writes, after the run."""

    def write(self, path: Path) -> None:
        """Store it."""
        path.write_text(json.dumps(asdict(self)) + "\n")

    @classmethod
    def read(cls, path: Path) -> Record:
        """What `write` stored."""
        raw: dict[str, Any] = json.loads(path.read_text())
        fleets = {
            name: FleetRecord(
                **one
                | {
                    "writes": [Write(**each) for each in one["writes"]],
                    "simulated": Simulated(**one["simulated"]),
                }
            )
            for name, one in raw["fleets"].items()
        }
        return cls(**raw | {"fleets": fleets, "load": tuple(raw["load"]), "late": tuple(raw["late"])})


def by_minute(trace: Trace) -> list[int]:
    """Requests of each minute."""
    return _counted((at for at in trace.arrival.tolist()), _minutes(trace))


def judged(clients: Iterable[Sequence[Any]], trace: Trace) -> dict[str, list[int]]:
    """The lists of a FleetRecord, from the clients' records as the emulator gives them."""
    came: dict[str, list[float]] = {"met": [], "late": [], "slow": [], "lost": []}
    for arrival, at, fate, ttft, tpot in clients:
        came[_verdict(Ended(arrival, at, Fate(fate), ttft, tpot))].append(arrival)
    return {name: _counted(when, _minutes(trace)) for name, when in came.items()}


def _verdict(one: Ended) -> str:
    if one.meets(SLO):
        return "met"
    if one.fate is not Fate.FINISHED or one.ttft is None:
        return "lost"
    bound = SLO.time_to_first_token
    return "slow" if bound is None or one.ttft <= bound else "late"


def _minutes(trace: Trace) -> int:
    return -int(-trace.duration // 60)


def _counted(moments: Iterable[float], minutes: int) -> list[int]:
    found = Counter(min(int(at // 60), minutes - 1) for at in moments)
    return [found[minute] for minute in range(minutes)]
