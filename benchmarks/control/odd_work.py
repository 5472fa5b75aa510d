"""The pieces of work of the odd family: best static fleets, and our own runs with what they said of the SLO."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from pathlib import Path

import odd_status
import store
from cases import Case
from odd_cases import FOUND_AT, ODD, OddCase
from work import USUAL_LOAD, Report, Work, run_report, smallest

from servingpool_simulation.hindsight import attains
from servingpool_simulation.offered import offered_load
from servingpool_simulation.policies import Ours, Static
from servingpool_simulation.run import Result, SimulationOptions, simulate
from servingpool_simulation.timetable import SELDOM
from servingpool_simulation.traces import Trace

SCENES = ("benchmarks/control/odd_cases.py",)


@lru_cache(maxsize=2)
def trace_of(slug: str, seed: int) -> Trace:
    """The whole of it is scored."""
    return ODD[slug].case.trace(seed)


@dataclass(frozen=True, slots=True)
class OddWork(Work):
    """One case of the family under one seed."""

    seed: int

    @property
    def odd(self) -> OddCase:
        """The case with its oddities."""
        return ODD[self.slug]

    @property
    def case(self) -> Case:
        """The part that is as of any other."""
        return self.odd.case

    def kept(self) -> Path:
        """Where its result is kept."""
        sources = (*store.WORLD, *store.SCENES, *self.sources())
        return store.place(f"odd-{self.slug}-{self.name}", (self, _said(self.odd)), sources)

    def options(self, replicas: int) -> SimulationOptions:
        """The world of this seed: cold starts, scrapes and pauses."""
        return SimulationOptions(
            initial_replicas=replicas,
            seed=self.seed,
            scrape=self.odd.scrape,
            half_speed=self.odd.half_speed,
            routing=self.odd.routing,
        )


@dataclass(frozen=True, slots=True)
class OddStatic(OddWork):
    """The smallest static fleet that holds the SLO as users experience it, in hindsight. It knows no core."""

    @property
    def name(self) -> str:
        return f"static-seed-{self.seed}"

    @property
    def runs(self) -> float:
        return 4.0

    def sources(self) -> tuple[str, ...]:
        return (*SCENES, f"{store.SIMULATION}/offered.py")

    def do(self) -> Report:
        case, trace = self.case, trace_of(self.slug, self.seed)

        @cache
        def run(size: int) -> Result:
            options = self.options(size)
            return simulate(trace, case.profile, case.pool(), Static(size, every=SELDOM), options)

        load = float(offered_load(trace, case.profile, case.slo, SELDOM).max()) / USUAL_LOAD
        guess = max(math.ceil(load), case.max_replicas * 2 // 5)
        best = smallest(lambda size: attains(run(size)), guess, case.max_replicas)
        return {"best": best, "attainment": None if best is None else run(best).score.attainment}


@dataclass(frozen=True, slots=True)
class OddRun(OddWork):
    """Our own, found at FOUND_AT replicas with nothing known."""

    @property
    def name(self) -> str:
        return f"ours-seed-{self.seed}"

    @property
    def runs(self) -> float:
        return 1.2

    def sources(self) -> tuple[str, ...]:
        return (*SCENES, *store.CORE, "benchmarks/control/odd_status.py")

    def do(self) -> Report:
        case, trace = self.case, trace_of(self.slug, self.seed)
        watched = odd_status.Watched(Ours())
        result = simulate(trace, case.profile, case.pool(), watched, self.options(FOUND_AT))
        step_at = self.odd.step_at
        return {
            **run_report(result, course=True),
            "status": odd_status.compare(result, watched.stated, watched.met),
            "first_order": None if step_at is None else odd_status.first_order(result, step_at),
        }


def _said(odd: OddCase) -> str:
    """All that it depends on but the trace, whose source is hashed."""
    case = odd.case
    return repr(
        (
            asdict(case.profile),
            asdict(case.slo),
            case.max_replicas,
            odd.scrape,
            odd.half_speed,
            odd.routing,
            odd.step_at,
        )
    )
