"""A baseline at its best: its one parameter chosen with the trace known, which nobody can do beforehand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from servingpool.decision.pool import Pool
from servingpool_simulation.baselines.catalogue import Baseline
from servingpool_simulation.hardware import EngineProfile
from servingpool_simulation.run import Result, SimulationOptions, simulate
from servingpool_simulation.traces import Trace


@dataclass(frozen=True, slots=True, eq=False)
class Tuned:
    """One baseline on one trace, by the value of its parameter."""

    baseline: Baseline
    tried: Mapping[float, Result]
    """Ascending; the default is among them."""

    @property
    def default(self) -> Result:
        """With the published default."""
        return self.tried[self.baseline.default]

    @property
    def value(self) -> float | None:
        """The cheapest value tried that attains; None where none does."""
        attaining = [value for value, result in self.tried.items() if attains(result)]
        return min(attaining, key=lambda value: self.tried[value].score.gpu_hours, default=None)

    @property
    def best(self) -> Result | None:
        """With that value."""
        return None if self.value is None else self.tried[self.value]


def attains(result: Result) -> bool:
    """It attained what the SLO asks for."""
    return result.score.attainment >= result.slo.attainment


def tune(
    baseline: Baseline, trace: Trace, profile: EngineProfile, pool: Pool, options: SimulationOptions, *, whole: bool
) -> Tuned:
    """Looks for the cheapest value of the baseline's grid that attains: all of them, or by bisection.

    Bisection takes for granted that a value which costs more replicas attains no less, and runs 4 or 5 of 10.
    """
    runs = _Runs(baseline, trace, profile, pool, options)
    runs.at(baseline.grid.index(baseline.default))
    if whole:
        for index in range(len(baseline.grid)):
            runs.at(index)
    else:
        runs.bisect()
    return Tuned(baseline, {baseline.grid[index]: runs.done[index] for index in sorted(runs.done)})


@dataclass(slots=True)
class _Runs:
    baseline: Baseline
    trace: Trace
    profile: EngineProfile
    pool: Pool
    options: SimulationOptions
    done: dict[int, Result] = field(default_factory=dict)
    """By place in the grid."""

    def at(self, index: int) -> Result:
        """One run, made once."""
        if index not in self.done:
            policy = self.baseline.tuned(self.profile, self.pool, self.baseline.grid[index])
            self.done[index] = simulate(self.trace, self.profile, self.pool, policy, self.options)
        return self.done[index]

    def bisect(self) -> None:
        """From the default on."""
        line = list(range(len(self.baseline.grid)))
        default = self.baseline.grid.index(self.baseline.default)
        if len(line) == 1:
            return
        # Which end of the grid is the frugal one shows in any two runs.
        other = default + 1 if default + 1 in line else default - 1
        low, high = sorted((default, other))
        if self.at(low).score.replica_hours < self.at(high).score.replica_hours:
            line.reverse()
        lavish, frugal = -1, len(line)  # places in the line; beyond it nothing was run
        turn = [line.index(default), line.index(other)]
        while frugal - lavish > 1:
            place = turn.pop() if turn else (lavish + frugal) // 2
            if attains(self.at(line[place])):
                lavish = max(lavish, place)
            else:
                frugal = min(frugal, place)
