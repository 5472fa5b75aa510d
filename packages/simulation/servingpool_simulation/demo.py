"""The comparison behind `servingpool demo`: one trace, one kind of replica, every policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import numpy as np

from servingpool.decision.pool import Pool
from servingpool_simulation.baselines import hpa, llmd
from servingpool_simulation.changes import Change, Watched
from servingpool_simulation.fleet import ColdStart
from servingpool_simulation.hardware import EngineProfile
from servingpool_simulation.policies import Ours, Policy, Static
from servingpool_simulation.run import FORMAT, Result, SimulationOptions, best_static, simulate
from servingpool_simulation.traces import Trace

PEAK_WINDOW = 300.0
"""Seconds: a fleet sized for the peak attains the target in every window of this length."""
FEWEST = 20
"""Requests in a window from which its attainment is judged: below, a single miss fails a target of 95%."""
HPA_TARGETS = (8.0, 12.0, 24.0, 32.0, 48.0, 64.0)
"""The HPA's other targets, for the frontier: what tuning it to this very trace could have given."""
LONGEST_VARIED = 7200.0
"""Seconds of trace up to which the comparison is repeated under other assumptions."""

VARIED_RUNS, UNSEEN_RUNS = 26, 3
"""8 variants of 3 policies, and 2 searches for the best static fleet; one variant more where there is a past. For the
progress bar only."""

Progress = Callable[[str, int, int], None]
"""Told what begins now, how many runs are done, and how many there will be as far as is known."""


class Role(StrEnum):
    """What a policy stands for in the comparison."""

    HINDSIGHT = "best static in hindsight"
    """Not a policy that anybody can have: it was chosen with the trace known."""
    PEAK = "static for the peak"
    BASELINE = "baseline"
    OURS = "ours"


@dataclass(frozen=True, slots=True)
class Setup:
    """What all policies have in common."""

    trace: Trace
    """Scored."""
    profile: EngineProfile
    pool: Pool
    options: SimulationOptions = field(default_factory=SimulationOptions)
    past: Trace | None = None
    """Before it: served by the fleet that is found, shown to the policies, not scored."""

    def run(self, policy: Policy) -> Result:
        """One policy."""
        return simulate(self.traffic, self.profile, self.pool, policy, self.watched)

    def best_static(self) -> Result | None:
        """The smallest fixed fleet that attains the target."""
        return best_static(self.traffic, self.profile, self.pool, self.watched)

    @property
    def traffic(self) -> Trace:
        """The past and what is scored."""
        return self.trace if self.past is None else self.past.then(self.trace)

    @property
    def watched(self) -> SimulationOptions:
        """The options, with the past as history."""
        return replace(self.options, history=0.0 if self.past is None else self.past.duration)


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One policy and how it did."""

    label: str
    role: Role
    settings: str
    """A sentence's end that tells where its settings come from."""
    result: Result
    changes: tuple[Change, ...] = ()

    @property
    def held(self) -> bool:
        """It attained what the SLO asks for."""
        return self.result.score.attainment >= self.result.slo.attainment


@dataclass(frozen=True, slots=True, eq=False)
class Variant:
    """The same comparison with one assumption changed."""

    name: str
    results: tuple[tuple[str, Result], ...]
    """(label, result) of each policy that scales, and of the best static fleet where one attains."""


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """All runs of a demo."""

    setup: Setup
    entries: tuple[Entry, ...]
    """In the order of the table; ours last."""
    statics: tuple[Result, ...]
    """Fixed fleets of 1, 2, 3, ... replicas."""
    tuned: tuple[Result, ...]
    """The HPA with HPA_TARGETS."""
    variants: tuple[Variant, ...]
    initial: int
    """Replicas that every policy that scales started with."""

    @property
    def ours(self) -> Entry:
        """Our own."""
        return self.entries[-1]

    @property
    def best(self) -> Result | None:
        """The smallest fixed fleet that attains the target, known in hindsight; None where none does."""
        return next(filter(_attains, self.statics), None)

    @property
    def others(self) -> tuple[Entry, ...]:
        """All but ours."""
        return self.entries[:-1]

    def to_dict(self) -> dict[str, Any]:
        """For JSON. Keys: format, entries (label, role, settings, held, result, changes), frontier, variants.

        `result` is as Result.to_dict; `frontier` and `variants` hold label, attainment, gpu_hours, average_replicas.
        """
        return {
            "format": FORMAT,
            "entries": [
                {
                    "label": entry.label,
                    "role": entry.role.name.lower(),
                    "settings": entry.settings,
                    "held": entry.held,
                    "result": entry.result.to_dict(),
                    "changes": [change.to_dict() for change in entry.changes],
                }
                for entry in self.entries
            ],
            "frontier": [_point(result.policy, result) for result in (*self.statics, *self.tuned)],
            "variants": [
                {"name": variant.name, "points": [_point(label, result) for label, result in variant.results]}
                for variant in self.variants
            ],
        }


def compare(setup: Setup, progress: Progress = lambda *_: None) -> Comparison:
    """Runs every policy, all that scale from the same start: the fleet sized for the peak, or `initial_replicas`."""
    varied = setup.trace.duration <= LONGEST_VARIED
    varied_runs = varied * (VARIED_RUNS + UNSEEN_RUNS * (setup.past is not None))
    runs = _Runs(setup, progress, planned=len(_scalers()) + len(HPA_TARGETS) + varied_runs)
    statics = tuple(runs.statics())
    best = next(filter(_attains, statics), None)
    peak = next((result for result in statics if _attains_always(result)), statics[-1])
    initial = setup.options.initial_replicas or peak.score.peak_replicas
    runs.options = replace(setup.options, initial_replicas=initial)
    entries = [_peak(peak, best=best is peak)]
    if best is not None and best is not peak:
        entries.insert(0, _hindsight(best))
    entries.extend(runs.entry(*scaler) for scaler in _scalers())
    tuned = tuple(runs.run(hpa.on_running(target)) for target in HPA_TARGETS)
    variants = tuple(runs.variants(best)) if varied else ()
    return Comparison(setup, tuple(entries), statics, tuned, variants, initial)


def _scalers() -> tuple[tuple[Role, str, str, Policy], ...]:
    """Fresh policies with label and where the settings come from; ours last."""
    return (
        (
            Role.BASELINE,
            "HPA on running",
            f"{hpa.RUNNING:g} running requests a replica, as in llm-d's default guide; HPA's own default behavior",
            hpa.on_running(),
        ),
        (
            Role.BASELINE,
            "llm-d slo-aware",
            "its published settings: up above 0.55 of the SLO, down below 0.40",
            llmd.slo_aware(),
        ),
        (Role.OURS, "servingpool", "all defaults; knows of model, hardware and traffic what it watched", Ours()),
    )


def _hindsight(result: Result) -> Entry:
    settings = "the smallest fixed fleet that attains the target over the whole trace: known only afterwards"
    return Entry(f"static {result.score.peak_replicas} (hindsight)", Role.HINDSIGHT, settings, result)


def _peak(result: Result, *, best: bool) -> Entry:
    every = f"every {PEAK_WINDOW / 60:g} minutes"
    if not _attains_always(result):
        settings = f"the pool's maximum; no fixed fleet attains the target in {every}"
    else:
        also = "; also the smallest over the whole trace" if best else ""
        settings = f"the smallest fixed fleet that attains the target in {every}{also}"
    return Entry(f"static {result.score.peak_replicas} (peak)", Role.PEAK, settings, result)


def _attains(result: Result) -> bool:
    return result.score.attainment >= result.slo.attainment


def _attains_always(result: Result) -> bool:
    """In each window by arrival that has requests enough to tell."""
    window = ((result.outcomes.arrival - result.outcomes.arrival[:1]) // PEAK_WINDOW).astype(np.int64)
    requests = np.bincount(window)
    met = np.bincount(window, weights=result.outcomes.met)
    judged = requests >= FEWEST
    return _attains(result) and bool(np.all(met[judged] >= result.slo.attainment * requests[judged]))


def _point(label: str, result: Result) -> dict[str, Any]:
    score = result.score
    return {
        "label": label,
        "attainment": score.attainment,
        "gpu_hours": score.gpu_hours,
        "average_replicas": score.average_replicas,
    }


@dataclass(slots=True)
class _Runs:
    """Counts runs, for the progress bar, while it makes them."""

    setup: Setup
    progress: Progress
    planned: int
    """Runs that are known to come, fixed fleets not among them."""
    options: SimulationOptions = field(init=False)
    _done: int = 0
    _statics: int = 5
    """A guess, until it is known."""

    def __post_init__(self) -> None:
        self.options = self.setup.options

    def run(self, policy: Policy, **changed: Any) -> Result:
        """One run; `changed` are fields of Setup."""
        self._begin(policy.name)
        return replace(self.setup, **({"options": self.options} | changed)).run(policy)

    def statics(self) -> Iterator[Result]:
        """Fixed fleets, one replica more each, to one beyond the peak or to the pool's maximum."""
        enough = self.setup.pool.max_replicas
        for size in range(1, self.setup.pool.max_replicas + 1):
            if size > enough:
                break
            result = self.run(Static(size), options=replace(self.options, initial_replicas=size))
            if enough == self.setup.pool.max_replicas and _attains_always(result):
                enough = size + 1
            yield result
        self._statics = self._done

    def entry(self, role: Role, label: str, settings: str, policy: Policy) -> Entry:
        """One policy that scales."""
        watched = Watched(policy)
        return Entry(label, role, settings, self.run(watched), tuple(watched.changes))

    def variants(self, best: Result | None) -> Iterator[Variant]:
        """One assumption changed at a time."""
        options = self.options
        for seed in range(options.seed + 1, options.seed + 4):
            yield self._variant(f"other luck: seed {seed}", best, options=replace(options, seed=seed))
        for mean in (30.0, 300.0):
            cold_start = ColdStart(mean, options.cold_start.jitter)
            yield self._variant(f"cold start {mean:g} s", best, options=replace(options, cold_start=cold_start))
        for factor in (0.9, 1.1):
            profile = self.setup.profile.scaled(factor)
            self._begin("best static")
            found = replace(self.setup, profile=profile, options=options).best_static()
            yield self._variant(f"step times {factor - 1:+.0%}", found, profile=profile)
        if best is not None:
            start = best.score.peak_replicas
            yield self._variant(f"start at {start} replicas", best, options=replace(options, initial_replicas=start))
        if self.setup.past is not None:
            yield self._variant("nothing seen before", best, past=None)

    def _begin(self, what: str) -> None:
        self.progress(what, self._done, max(self._statics + self.planned, self._done + 1))
        self._done += 1

    def _variant(self, name: str, best: Result | None, **changed: Any) -> Variant:
        results = [(label, self.run(policy, **changed)) for _, label, _, policy in _scalers()]
        static = [] if best is None else [("best static", best)]
        return Variant(name, (*static, *results))
