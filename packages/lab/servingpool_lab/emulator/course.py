"""How a run went: one row every 15 seconds, with the columns of the simulator's series."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from servingpool_lab.emulator.fleet import EmulatedFleet, Phase

TICK = 15.0
"""Seconds between two rows: the operator's own interval."""


@dataclass(slots=True)
class Course:
    """Notes the fleet every `TICK` seconds from `begin` on, a time on the fleet's clock."""

    fleet: EmulatedFleet
    begin: float
    rows: list[dict[str, float]] = field(default_factory=list)
    _arrived: int = 0
    _tokens: tuple[float, float] = (0.0, 0.0)
    _replica_seconds: float = 0.0

    def __post_init__(self) -> None:
        self._arrived, self._tokens = self.fleet.ledger.arrived, self.fleet.tokens()
        self._replica_seconds = self.fleet.replica_seconds

    @property
    def replica_seconds(self) -> float:
        """Of all replicas since `begin`."""
        return self.fleet.replica_seconds - self._replica_seconds

    @property
    def due(self) -> float:
        """When the next row is to be noted."""
        return self.begin + TICK * (len(self.rows) + 1)

    def note(self) -> None:
        """Adds a row for the fleet as it is now; call it when one is due."""
        fleet = self.fleet
        arrived, tokens = fleet.ledger.arrived, fleet.tokens()
        span = fleet.now - (self.rows[-1]["at"] if self.rows else self.begin)
        loading, ready = fleet.count(Phase.LOADING), fleet.count(Phase.READY)
        self.rows.append(
            {
                "at": fleet.now,
                "time": fleet.now - self.begin,
                "requested": loading + ready + fleet.count(Phase.UNREADY),
                "ready": ready,
                "loading": loading,
                "draining": fleet.count(Phase.DRAINING),
                "queue": fleet.waiting,
                "in_flight": fleet.in_flight,
                "arrivals": (arrived - self._arrived) / span,
                "prompt_tokens": (tokens[0] - self._tokens[0]) / span,
                "output_tokens": (tokens[1] - self._tokens[1]) / span,
                "replica_seconds": self.replica_seconds,
            }
        )
        self._arrived, self._tokens = arrived, tokens

    def columns(self) -> dict[str, list[Any]]:
        """The rows as columns, with latencies and attainment as the ledger knows them by now."""
        names = [name for name in (self.rows[0] if self.rows else {}) if name != "at"]
        columns: dict[str, list[Any]] = {name: [row[name] for row in self.rows] for name in names}
        return columns | self.fleet.ledger.by_minute([row["at"] for row in self.rows])
