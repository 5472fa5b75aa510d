"""What was found of each case, with names for what is compared."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from cases import Case

from servingpool_simulation.baselines.catalogue import BY_SLUG, Baseline


@dataclass(frozen=True, slots=True)
class Run:
    """One run, as far as tables and plots need it."""

    target: float
    score: Mapping[str, Any]
    """As `servingpool_simulation.score.Score`."""
    course: Mapping[str, Sequence[Any]] | None = None

    @classmethod
    def read(cls, target: float, report: Mapping[str, Any]) -> Self:
        """From the report of a piece of work."""
        return cls(target, report["score"], report.get("course"))

    @property
    def attainment(self) -> float:
        """Share of all arrivals."""
        return float(self.score["attainment"])

    @property
    def settled(self) -> float:
        """Without the first 10 minutes."""
        return float(self.score["settled_attainment"])

    @property
    def held(self) -> bool:
        """It attained what the SLO asks for, over all arrivals."""
        return self.attainment >= self.target

    @property
    def cost(self) -> float:
        """GPU-hours."""
        return float(self.score["gpu_hours"])


@dataclass(frozen=True, slots=True)
class BaselineRuns:
    """One baseline on one case."""

    baseline: Baseline
    default: Run
    tried: Mapping[float, Run]
    """By the value of its parameter, ascending."""
    best: float | None
    """The cheapest value that attains."""

    @property
    def tuned(self) -> Run | None:
        """With it; None where none attains, or where it was not tuned."""
        return self.tried[self.best] if self.best is not None and len(self.tried) > 1 else None


@dataclass(frozen=True, slots=True)
class Named:
    """A run and whose it is."""

    name: str
    run: Run


Seeds = dict[tuple[bool, int], Run]
"""Ours, by (with history, seed)."""


@dataclass(slots=True)
class CaseResults:
    """All runs of one case that there are."""

    case: Case
    fleets: Sequence[Run] = ()
    """Fixed ones, ascending."""
    static_size: int | None = None
    oracle: Run | None = None
    timetables: dict[int, Run] = field(default_factory=dict)
    """Chosen in hindsight, by the minutes for which each fleet stays."""
    ours: Seeds = field(default_factory=dict)
    without: dict[str, Seeds] = field(default_factory=dict)
    """Ours with one idea taken out, by the idea."""
    baselines: dict[str, BaselineRuns] = field(default_factory=dict)
    """By slug, in the order of the tables."""

    @property
    def target(self) -> float:
        """Attainment asked for."""
        return self.case.slo.attainment

    @property
    def static(self) -> Run | None:
        """The best static fleet in hindsight."""
        return next((run for run in self.fleets if run.score["peak_replicas"] == self.static_size), None)

    def our(self, *, history: bool) -> Run | None:
        """The run that is compared: seed 0, as of everybody else."""
        return self.ours.get((history, 0))

    def seeds(self, *, history: bool) -> list[Run]:
        """All our runs, by seed."""
        return [run for (known, _), run in sorted(self.ours.items(), key=lambda item: item[0][1]) if known == history]

    def relative(self, run: Run | None) -> float | None:
        """GPU-hours over the oracle's."""
        return None if run is None or self.oracle is None else run.cost / self.oracle.cost

    def best_default(self) -> Named | None:
        """The cheapest baseline that holds the SLO with its defaults."""
        return _cheapest((runs.baseline.name, runs.default) for runs in self.baselines.values())

    def best_tuned(self) -> Named | None:
        """The cheapest baseline at the cheapest value of its parameter that holds the SLO on this very trace."""
        return _cheapest(
            (f"{runs.baseline.name} at {runs.best:g}", runs.tuned)
            for runs in self.baselines.values()
            if runs.tuned is not None
        )


def run_of(named: Named | None) -> Run | None:
    """Without the name."""
    return None if named is None else named.run


def _cheapest(runs: Iterable[tuple[str, Run]]) -> Named | None:
    held = [Named(name, run) for name, run in runs if run.held]
    return min(held, key=lambda named: named.run.cost, default=None)


def baseline_runs(target: float, slug: str, report: Mapping[str, Any]) -> BaselineRuns:
    """From the report of a piece of work."""
    tried = {float(entry["value"]): Run.read(target, entry) for entry in report["tried"]}
    return BaselineRuns(BY_SLUG[slug], tried[report["default"]], tried, report["best"])


def mean(values: Sequence[float]) -> float | None:
    """None of nothing."""
    return statistics.fmean(values) if values else None
