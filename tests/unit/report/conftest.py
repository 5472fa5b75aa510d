"""One small comparison, and others made of it by changing scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from servingpool.decision.pool import Pool, Slo
from servingpool_simulation.demo import Comparison, Entry, Role, Setup, compare
from servingpool_simulation.hardware import engine_profile
from servingpool_simulation.run import SimulationOptions
from servingpool_simulation.traces import poisson

SLO = Slo(2.0, 0.15, 0.95)


@pytest.fixture(scope="session")
def setup() -> Setup:
    """Twenty minutes with a peak in the middle, eight replicas at most."""
    trace = poisson("twenty minutes", (2.0, 8.0, 2.0, 1.0), 300.0, prompt=1000, output=120)
    return Setup(trace, engine_profile("a100-70b-tp4"), Pool(SLO, 1, 8), SimulationOptions(price=2.5))


@pytest.fixture(scope="session")
def comparison(setup: Setup) -> Comparison:
    return compare(setup)


Imagine = Callable[..., Comparison]


@pytest.fixture(scope="session")
def imagine(comparison: Comparison) -> Imagine:
    """The comparison with (attainment, GPU-hours) by name; those not named missed the SLO at a high cost."""

    def imagined(**scores: tuple[float, float]) -> Comparison:
        hpa, llmd, ours = comparison.entries[-3:]
        static = comparison.entries[0]
        entries = {
            "hindsight": replace(static, role=Role.HINDSIGHT, label="static 3 (hindsight)"),
            "peak": replace(static, role=Role.PEAK, label="static 4 (peak)"),
            "hpa": hpa,
            "llmd": llmd,
            "ours": ours,
        }
        assert scores.keys() <= entries.keys()
        found = [scored(entry, *scores.get(name, (0.5, 99.0))) for name, entry in entries.items()]
        return replace(comparison, entries=tuple(found))

    return imagined


def scored(entry: Entry, attainment: float, gpu_hours: float) -> Entry:
    score = replace(entry.result.score, attainment=attainment, gpu_hours=gpu_hours)
    return replace(entry, result=replace(entry.result, score=score))
