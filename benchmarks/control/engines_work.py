"""The pieces of work of the engines' pages: our own runs on the catalogue's traffic, with another engine's page."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import store
from cases import CASES, Case
from odd_cases import FOUND_AT, ODD
from work import Report, Statics, Work, run_report

from servingpool_simulation.conduct import CONDUCTS
from servingpool_simulation.hardware import EngineProfile
from servingpool_simulation.policies import Ours
from servingpool_simulation.run import SimulationOptions, simulate
from servingpool_simulation.scrape import ScrapeOptions
from servingpool_simulation.traces import Trace

PAGES = ("conv", "code", "ramp", "reasoning", "regimes", "capped-8")
"""Five of the catalogue, and one whose batch is capped, so that requests queue."""


def case_of(slug: str) -> Case:
    """Of the catalogue, or of the odd family."""
    return ODD[slug].case if slug in ODD else CASES[slug]


def statics() -> list[Statics]:
    """Best static fleets, with which the catalogue's pools are found."""
    return [Statics(slug) for slug in PAGES if slug in CASES]


@lru_cache(maxsize=2)
def trace_of(slug: str, seed: int) -> Trace:
    """The whole of it is scored."""
    return case_of(slug).trace(seed)


@dataclass(frozen=True, slots=True)
class PageRun(Work):
    """Our own with nothing known, one case, one engine's page, one seed."""

    engine: str
    initial: int
    """Replicas that are found."""
    seed: int

    @property
    def name(self) -> str:
        return f"page-{self.engine}-seed-{self.seed}"

    @property
    def runs(self) -> float:
        return 1.2

    @property
    def case(self) -> Case:
        return case_of(self.slug)

    @property
    def profile(self) -> EngineProfile:
        """The case's, with this engine's page."""
        return replace(self.case.profile, conduct=CONDUCTS[self.engine])

    def sources(self) -> tuple[str, ...]:
        return (*store.CORE, *(("benchmarks/control/odd_cases.py",) if self.slug in ODD else ()))

    def kept(self) -> Path:
        inputs = (self, self.profile, self.case.slo, self.case.max_replicas)
        return store.place(f"{self.slug}-{self.name}", inputs, (*store.WORLD, *store.SCENES, *self.sources()))

    def do(self) -> Report:
        scrape = ScrapeOptions(arrivals=self.profile.conduct.prefill_seconds is not None)
        options = SimulationOptions(initial_replicas=self.initial, seed=self.seed, scrape=scrape)
        return run_report(simulate(trace_of(self.slug, self.seed), self.profile, self.case.pool(), Ours(), options))


def page_run(slug: str, engine: str, best: int | None, seed: int) -> PageRun:
    """Found with the `best` static fleet, an odd one with FOUND_AT replicas."""
    return PageRun(slug, engine, FOUND_AT if best is None else best, seed)
