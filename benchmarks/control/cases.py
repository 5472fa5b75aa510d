"""The catalogue: every trace and GPU/model pair on which policies are compared.

Every SLO is feasible: some fixed fleet within `max_replicas` attains it.
`python benchmarks/control/cases.py [SLUG ...]` finds the smallest and prints the table.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import scenes
from rich.console import Console
from rich.table import Table

from servingpool.decision.pool import Pool, Slo
from servingpool_simulation.families import held_out
from servingpool_simulation.hardware import EngineProfile, engine_profile
from servingpool_simulation.run import SimulationOptions, best_static
from servingpool_simulation.traces import Trace


class Kind(StrEnum):
    """What a case is there for."""

    BURST = "burst"
    """About an hour of recorded or published traffic."""
    DAY = "day"
    """24 hours."""
    FAMILY = "family"
    """Synthetic, two to four hours, each unlike the others in one way."""
    SCALE = "scale"
    """A large fleet for an hour."""
    HELD_OUT = "held out"
    """Synthetic; nobody tunes on it."""


@dataclass(frozen=True, slots=True)
class Case:
    """Traffic, hardware and what is asked of them."""

    slug: str
    title: str
    kind: Kind
    trace: Callable[[int], Trace]
    """By seed; the scored part. Recorded traces are the same for every seed."""
    profile: EngineProfile
    slo: Slo
    max_replicas: int
    past: Callable[[int], Trace] | None
    """What was before it, for runs with history."""

    def pool(self) -> Pool:
        """As a policy sees it."""
        return Pool(self.slo, min_replicas=1, max_replicas=self.max_replicas)


H100_70B, H200_70B, A100_70B = (engine_profile(f"{gpu}-70b-tp4") for gpu in ("h100", "h200", "a100"))
H100_8B, A100_8B, L40S_8B = (engine_profile(f"{gpu}-8b-tp1") for gpu in ("h100", "a100", "l40s"))


def _burst(slug: str, title: str, profile: EngineProfile, slo: Slo, most: int) -> Case:
    trace, past = {
        "ramp": (scenes.ramp, scenes.another(scenes.ramp)),
        "conv": (scenes.conv, scenes.conv_before),
        "code": (scenes.code, scenes.code_before),
    }[slug.partition("-")[0]]
    return Case(slug, title, Kind.BURST, trace, profile, slo, most, past)


def _family(slug: str, title: str, scene: scenes.Scene, profile: EngineProfile, slo: Slo) -> Case:
    return Case(slug, title, Kind.FAMILY, scene, profile, slo, 16, scenes.another(scene))


BURSTS = (
    _burst("ramp", "llm-d ramp, H100 70B TP4", H100_70B, Slo(3.0, 0.1), 16),
    _burst("conv", "Azure 2023 conv, A100 70B TP4", A100_70B, Slo(2.0, 0.15), 16),
    _burst("conv-h100", "Azure 2023 conv, H100 70B TP4", H100_70B, Slo(0.5, 0.03), 16),
    _burst("conv-h200", "Azure 2023 conv, H200 70B TP4", H200_70B, Slo(0.5, 0.025), 16),
    _burst("conv-a100-8b", "Azure 2023 conv, A100 8B", A100_8B, Slo(0.5, 0.025), 16),
    _burst("conv-l40s", "Azure 2023 conv, L40S 8B", L40S_8B, Slo(2.0, 0.1), 16),
    _burst("code", "Azure 2023 code, H100 70B TP4", H100_70B, Slo(2.0, 0.1), 24),
    _burst("code-h200", "Azure 2023 code, H200 70B TP4", H200_70B, Slo(1.0, 0.06), 24),
    _burst("code-a100", "Azure 2023 code, A100 70B TP4", A100_70B, Slo(5.0, 0.3), 24),
    _burst("code-l40s", "Azure 2023 code, L40S 8B", L40S_8B, Slo(2.0, 0.1), 24),
)
DAYS = (
    Case(
        slug="code-day",
        title="code-day, H100 70B TP4",
        kind=Kind.DAY,
        trace=scenes.code_tuesday,
        profile=H100_70B,
        slo=Slo(2.0, 0.1),
        max_replicas=24,
        past=scenes.code_monday,
    ),
    Case(
        slug="conv-day",
        title="Azure 2024 conv, reconstructed, H100 8B",
        kind=Kind.DAY,
        trace=scenes.conv_tuesday,
        profile=H100_8B,
        slo=Slo(1.0, 0.04),
        max_replicas=16,
        past=scenes.conv_monday,
    ),
    Case(
        slug="clients-day",
        title="150 clients, A100 70B TP4",
        kind=Kind.DAY,
        trace=scenes.clients_today,
        profile=A100_70B,
        slo=Slo(2.0, 0.15),
        max_replicas=16,
        past=scenes.clients_yesterday,
    ),
)
FAMILIES = (
    _family("renewal-5", "gaps of CV 5, A100 70B TP4", scenes.bursty(5.0), A100_70B, Slo(3.0, 0.15)),
    _family("renewal-10", "gaps of CV 10, H100 70B TP4", scenes.bursty(10.0), H100_70B, Slo(3.0, 0.1)),
    _family("regimes", "regime switches, H100 70B TP4", scenes.switching, H100_70B, Slo(2.0, 0.1)),
    _family("on-off", "on-off code, H100 70B TP4", scenes.coding, H100_70B, Slo(3.0, 0.15)),
    _family("long-prompts", "prompts up to 120k tokens, H200 70B TP4", scenes.reading, H200_70B, Slo(4.0, 0.15)),
    _family("clumps", "lengths in clumps, H100 70B TP4", scenes.clumps, H100_70B, Slo(2.0, 0.1)),
    _family("reasoning", "reasoning, H100 8B", scenes.thinking, H100_8B, Slo(1.0, 0.02)),
    _family("stops", "nothing for two hours, A100 70B TP4", scenes.stopping, A100_70B, Slo(2.0, 0.15)),
)
SCALES = tuple(
    Case(
        slug=f"replicas-{size}",
        title=f"Azure 2024 conv x {scale:g}, A100 70B TP4",
        kind=Kind.SCALE,
        trace=scenes.conv_at(scale),
        profile=A100_70B,
        slo=Slo(2.0, 0.15),
        max_replicas=2 * size,
        past=scenes.conv_before_at(scale),
    )
    for size, scale in ((30, 1.0), (300, 10.0))
)
HELD_OUT = Case(
    slug="held-out",
    title="held out",
    kind=Kind.HELD_OUT,
    trace=scenes.unseen,
    profile=held_out.ENGINE,
    slo=Slo(4.0, 0.1),
    max_replicas=16,
    past=scenes.another(scenes.unseen),
)
CASES = {case.slug: case for case in (*BURSTS, *DAYS, *FAMILIES, *SCALES, HELD_OUT)}


def main(slugs: list[str]) -> None:
    """Print the catalogue with the best static fleet of each case, seed 0."""
    table = Table("case", "title", "SLO", "requests", "per second", "best static", "attains", "seconds")
    for case in [CASES[slug] for slug in slugs or CASES]:
        began = time.perf_counter()
        trace = case.trace(0)
        found = best_static(trace, case.profile, case.pool(), SimulationOptions(seed=0))
        table.add_row(
            case.slug,
            case.title,
            f"{case.slo.time_to_first_token:g} s, {case.slo.time_per_output_token:g} s",
            f"{len(trace)}",
            f"{len(trace) / trace.duration:.1f}",
            *(
                ("none", f"of {case.max_replicas}")
                if found is None
                else (f"{found.score.peak_replicas}", f"{found.score.attainment:.2%}")
            ),
            f"{time.perf_counter() - began:.0f}",
        )
    Console(width=140).print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
