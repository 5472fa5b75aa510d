"""The pieces of work that the benchmark is made of. Each names a case by its slug, so that any process can do it."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import ablations
import store
import sweeps
from cases import CASES, Case, Kind

from servingpool_simulation.baselines.catalogue import BY_SLUG
from servingpool_simulation.hindsight import attains, tune
from servingpool_simulation.offered import offered_load
from servingpool_simulation.oracle import Effort, oracle
from servingpool_simulation.policies import Ours, Policy, Static
from servingpool_simulation.run import Result, SimulationOptions, simulate
from servingpool_simulation.timetable import SELDOM, timetable
from servingpool_simulation.traces import Trace

Report = dict[str, Any]
"""What a piece of work found, as JSON."""
TOOK, KEPT = "took", "kept"
"""Of a report: seconds that it took, and its file. Of this machine and that time, so they are not published."""

POINTS = 720
"""Moments of a run that are kept for its plot, at most."""
AROUND, NEXT_TO = (-3, -2, -1, 0, 1, 2), (-1, 0, 1)
"""Fixed fleets on the frontier, around the best one: of an hour, and of what takes long."""
USUAL_LOAD = 0.75
"""Of a replica that just holds its SLO."""


@lru_cache(maxsize=1)
def trace_of(slug: str, seed: int) -> Trace:
    """The scored part; a day takes seconds to draw, and the next piece of work is often of the same one."""
    return CASES[slug].trace(seed)


def measured(report: Report) -> Report:
    """What anybody who runs it again finds too, to the last digit."""
    return {name: value for name, value in report.items() if name not in {TOOK, KEPT}}


@dataclass(frozen=True, slots=True)
class Work(ABC):
    """One piece. Its fields are what its result depends on, besides the sources."""

    slug: str
    """Of the case."""

    @property
    @abstractmethod
    def name(self) -> str:
        """For people and for files."""

    @property
    @abstractmethod
    def runs(self) -> float:
        """About how many runs of the case it takes, to begin with the long ones."""

    @abstractmethod
    def sources(self) -> tuple[str, ...]:
        """Besides world and scenes."""

    @abstractmethod
    def do(self) -> Report:
        """Computes."""

    @property
    def case(self) -> Case:
        """The case itself."""
        return CASES[self.slug]

    def kept(self) -> Path:
        """Where its result is kept."""
        case = self.case
        inputs = (self, case.profile, case.slo, case.max_replicas)
        return store.place(f"{self.slug}-{self.name}", inputs, (*store.WORLD, *store.SCENES, *self.sources()))

    def done(self) -> Report:
        """Computes what is not there yet, and keeps it."""
        began = time.perf_counter()
        found = self.do()
        found[TOOK] = time.perf_counter() - began
        path = self.kept()
        found[KEPT] = path.name
        store.save(path, found)
        return found


@dataclass(frozen=True, slots=True)
class Statics(Work):
    """The best static fleet in hindsight, and those around it."""

    name = "static"
    runs = 8.0

    def sources(self) -> tuple[str, ...]:
        return (f"{store.SIMULATION}/offered.py",)

    def do(self) -> Report:
        case, trace = self.case, trace_of(self.slug, 0)

        @cache
        def run(size: int) -> Result:
            options = SimulationOptions(decide_every=SELDOM, initial_replicas=size)
            return simulate(trace, case.profile, case.pool(), Static(size), options)

        # Far too small a fleet takes longest to simulate: begin near where the work in the trace says.
        load = offered_load(trace, case.profile, case.slo, SELDOM)
        size = smallest(lambda size: attains(run(size)), math.ceil(float(load.max()) / USUAL_LOAD), case.max_replicas)
        if size is None:
            return {"best": None, "fleets": []}
        step = max(1, size // 10)
        sizes = {size + step * away for away in (NEXT_TO if takes_long(case) else AROUND)}
        return {
            "best": size,
            "fleets": [run_report(run(each)) for each in sorted(sizes) if 1 <= each <= case.max_replicas],
        }


def smallest(enough: Callable[[int], bool], guess: int, most: int) -> int | None:
    """The smallest size from 1 to `most` that is enough, looked for from a guess on; None where not even `most` is.

    Taking for granted that a larger one is no worse.
    """
    low, high, size = 0, most + 1, min(max(guess, 1), most)  # too small, enough
    while high - low > 1:
        if enough(size):
            high = size
        else:
            low = size
        step = max(1, size // 8)
        if high > most:
            size = min(size + step, most)
        elif low == 0:
            size = max(size - step, 1)
        else:
            size = (low + high) // 2
    return high if high <= most else None


@dataclass(frozen=True, slots=True)
class Oracle(Work):
    """The oracle course."""

    initial: int
    effort: int
    name = "oracle"
    runs = 200.0

    def sources(self) -> tuple[str, ...]:
        return store.SEARCH

    def do(self) -> Report:
        case = self.case
        effort = Effort(requests=self.effort)
        found = oracle(trace_of(self.slug, 0), case.profile, case.pool(), _start(self.initial), effort)
        return {"found": None if found is None else run_report(found, course=True)}


@dataclass(frozen=True, slots=True)
class Timetable(Work):
    """A timetable chosen in hindsight."""

    minutes: int
    """Of each of its stretches."""
    runs = 25.0

    @property
    def name(self) -> str:
        return f"timetable-{self.minutes}"

    def sources(self) -> tuple[str, ...]:
        return store.TIMETABLE

    def do(self) -> Report:
        case, stretch = self.case, 60.0 * self.minutes
        found = timetable(trace_of(self.slug, 0), case.profile, case.pool(), SimulationOptions(), stretch=stretch)
        return {"found": None if found is None else run_report(found)}


@dataclass(frozen=True, slots=True)
class OurRun(Work):
    """Our own defaults, one seed."""

    initial: int
    seed: int
    history: bool

    @property
    def name(self) -> str:
        return f"ours-{_conditions(self.seed, history=self.history)}"

    @property
    def runs(self) -> float:
        return _our_runs(history=self.history)

    def sources(self) -> tuple[str, ...]:
        return store.CORE

    def do(self) -> Report:
        return {"found": our_run(self.case, Ours(), self.initial, self.seed, history=self.history)}


@dataclass(frozen=True, slots=True)
class BaselineRuns(Work):
    """One baseline: its defaults, and its parameter tuned in hindsight."""

    initial: int
    baseline: str
    how: str
    """`default`, `bisect` or `grid`."""

    @property
    def name(self) -> str:
        return f"{self.baseline}-{self.how}"

    @property
    def runs(self) -> float:
        return {"default": 1.5, "bisect": 6.0, "grid": 14.0}[self.how] * (5 if "knative" in self.baseline else 1)

    def sources(self) -> tuple[str, ...]:
        return store.BASELINES

    def do(self) -> Report:
        case, baseline = self.case, BY_SLUG[self.baseline]
        if self.how == "default":
            baseline = replace(baseline, grid=(baseline.default,))
        trace = trace_of(self.slug, 0)
        found = tune(baseline, trace, case.profile, case.pool(), _start(self.initial), whole=self.how == "grid")
        tried = [{"value": value, **run_report(result)} for value, result in found.tried.items()]
        return {"default": baseline.default, "best": found.value, "tried": tried}


@dataclass(frozen=True, slots=True)
class SweepRun(Work):
    """One variation of a sweep; `slug` is its base."""

    variation: str

    @property
    def name(self) -> str:
        return f"sweep-{_word(self.variation)}"

    @property
    def runs(self) -> float:
        return 10.0

    def sources(self) -> tuple[str, ...]:
        return (*store.CORE, "benchmarks/control/sweeps.py")

    def do(self) -> Report:
        (variation,) = (each for each in sweeps.VARIATIONS if each.name == self.variation)
        return sweeps.run(variation)


@dataclass(frozen=True, slots=True)
class AblationRun(Work):
    """Our own with one idea taken out."""

    initial: int
    seed: int
    history: bool
    ablation: str

    @property
    def name(self) -> str:
        return f"ablation-{_word(self.ablation)}-{_conditions(self.seed, history=self.history)}"

    @property
    def runs(self) -> float:
        return _our_runs(history=self.history)

    def sources(self) -> tuple[str, ...]:
        return (*store.CORE, "benchmarks/control/ablations.py")

    def do(self) -> Report:
        (ablation,) = (each for each in ablations.ABLATIONS if each.name == self.ablation)
        return {"found": our_run(self.case, ablation.make(), self.initial, self.seed, history=self.history)}


def _word(name: str) -> str:
    """As part of a file's name."""
    return "".join(letter if letter.isalnum() else "-" for letter in name)


def _conditions(seed: int, *, history: bool) -> str:
    return f"{'with' if history else 'no'}-history-seed-{seed}"


def _our_runs(*, history: bool) -> float:
    """What is before the case is played too."""
    return 2.2 if history else 1.2


def our_run(case: Case, policy: Policy, initial: int, seed: int, *, history: bool) -> Report:
    """One run of our own or of a variant of it."""
    trace, options = trace_of(case.slug, seed), _start(initial, seed)
    if history:
        assert case.past is not None
        past = case.past(seed)
        trace, options = past.then(trace), replace(options, history=past.duration)
    return run_report(simulate(trace, case.profile, case.pool(), policy, options), course=True)


def run_report(result: Result, *, course: bool = False) -> Report:
    """Policy and score; with `course` the replicas and latencies over time too, thinned to POINTS."""
    found: Report = {"policy": result.policy, "score": asdict(result.score)}
    if course:
        series = result.series
        scored = [index for index, at in enumerate(series.time) if at >= 0]
        step = max(1, len(scored) // POINTS)
        found["course"] = {
            name: [getattr(series, name)[index] for index in scored[::step]]
            for name in ("time", "requested", "ready", "ttft")
        }
        found["course"]["arrivals"] = _means([series.arrivals[index] for index in scored], step)
    return found


def _means(values: Sequence[float], step: int) -> list[float]:
    """Of each `step` values."""
    return [sum(part) / len(part) for part in (values[at : at + step] for at in range(0, len(values), step))]


def _start(initial: int, seed: int = 0) -> SimulationOptions:
    """The world as it is for all of them."""
    return SimulationOptions(initial_replicas=initial, seed=seed)


def takes_long(case: Case) -> bool:
    """One run takes many seconds: a day, or hundreds of replicas."""
    return case.kind is Kind.DAY or case.slug == "replicas-300"


def weight(work: Work) -> float:
    """About what it costs, for the order: requests and decisions of all its runs."""
    hours = {Kind.BURST: 1.0, Kind.DAY: 24.0, Kind.SCALE: 10.0}.get(work.case.kind, 2.5)
    return work.runs * hours
