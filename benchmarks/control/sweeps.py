"""Sweeps in which the controller must degrade gracefully: one assumption of a base case changed at a time.

`python benchmarks/control/sweeps.py [GROUP ...]` runs the groups named, or all, and prints the table.
Ours starts from the best static fleet of the variation, or of its base where none attains, and knows nothing.
"""

from __future__ import annotations

import re
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import scenes
from cases import CASES, Case
from rich.console import Console
from rich.table import Table

from servingpool.decision.observation import Observation
from servingpool.decision.pool import Pool
from servingpool_simulation.families.lengths import like
from servingpool_simulation.families.regimes import correlated_pools
from servingpool_simulation.families.resampled import resampled
from servingpool_simulation.families.stops import stops
from servingpool_simulation.fleet import ColdStart, Routing
from servingpool_simulation.hardware import BLOCK_TOKENS, EngineProfile
from servingpool_simulation.policies import Answer, Ours, Static
from servingpool_simulation.run import Result, SimulationOptions, best_static, simulate
from servingpool_simulation.scrape import EPOCH, ScrapeOptions
from servingpool_simulation.traces import Trace, azure2023_conv
from servingpool_simulation.upgrade import Upgrade

HOUR = 3_600.0
UPGRADED_AT = 1_800.0
"""Seconds into the hour."""
NEW_POOL = 600.0
"""Seconds of a never-seen pool that the goals except."""
STEPS, SPEEDS = "engine's speed", (0.7, 1.3)
"""Group of the variations whose steps take as many times as long from UPGRADED_AT on."""
BIN = 600.0
"""Seconds of one figure of attainment after an upgrade."""
LEARNED, LEARNED_WITHIN = 0.1, 600.0
"""Relative error within which the step base counts as learned, and seconds in which it is to be."""


@dataclass(frozen=True, slots=True)
class Variation:
    """A base case with something changed."""

    name: str
    group: str
    base: str
    """Slug of the case."""
    case: Mapping[str, Any] = field(default_factory=dict)
    """Fields of Case to set otherwise."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Fields of SimulationOptions to set otherwise."""
    history: float = 0.0
    """Seconds that it has been seen before."""

    def changed(self) -> Case:
        """The case as varied."""
        return replace(CASES[self.base], **self.case)


@dataclass(slots=True)
class Listened(Ours):
    """Our core, with what it said and believed at each decision. Times are seconds since the first."""

    warned: Counter[str] = field(default_factory=Counter, init=False)
    """Decisions by warning; figures in it are written as #."""
    bases: list[tuple[float, float]] = field(default_factory=list, init=False)
    """(time, step base in seconds)."""

    def decide(self, observation: Observation, pool: Pool, now: float) -> Answer:
        """As ever."""
        answer = Ours.decide(self, observation, pool, now)
        if answer.decision is not None:
            self.warned.update(
                [re.sub(r"\d+(\.\d+)?", "#", answer.decision.warning)] if answer.decision.warning else []
            )
        step = self.memory.profile.engine.fit.solve(pool.params)
        if step is not None:
            self.bases.append((now - EPOCH, step.base))
        return answer


def _upgraded(profile: EngineProfile) -> dict[str, Any]:
    return {"upgrades": (Upgrade(UPGRADED_AT, profile),)}


def _speed(factor: float) -> str:
    return f"steps x {factor:g}"


def _slo(case: Case, **bounds: float) -> dict[str, Any]:
    return {"slo": replace(case.slo, **bounds)}  # type: ignore[arg-type]  # none is `at_gateway`


def _of_both() -> Iterator[Variation]:
    """What is swept on the smooth hour and on the bursty one."""
    for base in ("conv", "code"):
        case = CASES[base]

        def vary(name: str, group: str, base: str = base, **changes: Any) -> Variation:
            return Variation(f"{base}, {name}", group, base, **changes)

        yield vary("unchanged", "base")
        for mean in (5.0, 30.0, 120.0, 300.0, 600.0):
            yield vary(f"cold start {mean:g} s", "cold start", options={"cold_start": ColdStart(mean)})
        yield vary("cold start 100 s +- 50%", "cold start", options={"cold_start": ColdStart(100.0, 0.5)})
        for interval in (5.0, 15.0, 30.0):
            yield vary(f"scrapes every {interval:g} s", "scrapes", options={"scrape": ScrapeOptions(interval)})
        for lost in (0.1, 0.5):
            yield vary(f"{lost:.0%} of scrapes lost", "scrapes", options={"scrape": ScrapeOptions(lost_share=lost)})
        for factor in SPEEDS:
            yield vary(_speed(factor), STEPS, options=_upgraded(case.profile.scaled(factor)))
        cached = replace(case.profile, prefix_cache_hit_rate=0.5)
        yield vary("prefix cache 0 to 50%", "upgrade", options=_upgraded(cached))
        yield vary("prefix cache 50% to 0", "upgrade", case={"profile": cached}, options=_upgraded(case.profile))
        yield vary("max_num_seqs 256 to 16", "upgrade", options=_upgraded(replace(case.profile, max_num_seqs=16)))
        for seqs in (64, 16):
            small = {"profile": replace(case.profile, max_num_seqs=seqs)}
            yield vary(f"max_num_seqs {seqs}", "small batch", case=small)
        for attainment in (0.9, 0.95, 0.99, 0.999):
            yield vary(f"attainment {attainment:g}", "attainment", case=_slo(case, attainment=attainment))
        yield vary("round robin", "routing", options={"routing": Routing.ROUND_ROBIN})
        yield vary("stops for two hours", "stops", case={"trace": _stopping(case.trace)})


def _of_one() -> Iterator[Variation]:
    """What is swept on one of them."""
    conv = CASES["conv"]
    # A step of this engine takes 28 ms when empty and 1k tokens take 0.2 s to prefill: the last of each cannot be held.
    for tpot in (0.1, 0.07, 0.05, 0.04, 0.03, 0.02):
        changed = _slo(conv, time_per_output_token=tpot)
        yield Variation(f"conv, {1000 * tpot:g} ms per output token", "tight SLO", "conv", changed)
    for ttft in (1.0, 0.5, 0.3, 0.1):
        yield Variation(f"conv, {ttft:g} s to first token", "tight SLO", "conv", _slo(conv, time_to_first_token=ttft))
    for most in (3, 2, 1):
        yield Variation(f"conv, max {most}", "max too small", "conv", {"max_replicas": most})
    for most in (5, 3):
        yield Variation(f"code, max {most}", "max too small", "code", {"max_replicas": most})
    for letter, place in (("A", 0), ("B", 1)):
        yield Variation(f"correlated pool {letter}", "correlated pools", "conv", {"trace": _pool(place)})
    # Few tokens a step tell little of its slope.
    reasoning = CASES["reasoning"].profile
    for factor in SPEEDS:
        other = _upgraded(reasoning.scaled(factor))
        yield Variation(f"reasoning, {_speed(factor)}", STEPS, "reasoning", options=other)
    for size, scale in ((1, 0.01), (3, 0.08), (30, 1.0), (300, 10.0)):
        changed = {"trace": scenes.conv_at(scale), "max_replicas": max(4, 2 * size)}
        yield Variation(f"{size} replicas", "fleet size", "replicas-30", changed)


def _of_scarce_memory() -> Iterator[Variation]:
    """Where the KV cache is full long before the engine is busy."""
    for base, part in (("conv", 8), ("conv", 16), ("reasoning", 4)):
        profile = CASES[base].profile
        tokens = profile.kv_tokens // part // BLOCK_TOKENS * BLOCK_TOKENS
        scarce = {"profile": replace(profile, kv_tokens=tokens, max_model_len=min(profile.max_model_len, tokens))}
        yield Variation(f"{base}, KV cache / {part}", "KV cache", base, scarce)


def _of_starts() -> Iterator[Variation]:
    """What it is given to begin with."""
    for base, sizes in (("conv", (1, 2, 6, 16)), ("code", (1, 3, 14)), ("ramp", (1, 3, 14))):
        for size in sizes:
            yield Variation(f"{base}, found at {size}", "fleet found", base, options={"initial_replicas": size})
    for base, hours in product(("conv", "code"), (1.0, 2.0)):
        yield Variation(f"{base}, seen for {hours:g} h before", "history", base, history=hours * HOUR)
    # The past of a recorded hour is drawn from that hour, for nothing longer was published: nine in ten of its requests
    # occur in two hours of it. One half after two hours like the other has seen none of its bursts.
    for base, half in product(("conv", "code"), (1, 2)):
        halves = {"trace": _half(base, half), "past": _like_half(base, 3 - half)}
        yield Variation(f"{base}, half {half} seen like half {3 - half} before", "history", base, halves, {}, 2 * HOUR)
    # Who installs an autoscaler over a fleet that is too small has a queue; and new replicas are not read at once.
    for (base, size), interval in product((("conv", 1), ("code", 3)), (5.0, 15.0, 30.0)):
        found = {"initial_replicas": size, "scrape": ScrapeOptions(interval)}
        name = f"{base}, found at {size}, half an hour of it seen, scrapes every {interval:g} s"
        yield Variation(name, "overload found", base, {}, found, HOUR / 2)
    for size in (2, 16):
        found = {"initial_replicas": size}
        yield Variation(f"conv, found at {size}, seen for 2 h before", "history", "conv", {}, found, 2 * HOUR)


def _stopping(trace: Callable[[int], Trace]) -> Callable[[int], Trace]:
    return lambda seed: stops(trace(seed), at=1_800.0, pause=7_200.0)


def _half(base: str, which: int) -> Callable[[int], Trace]:
    def half(seed: int) -> Trace:
        trace = CASES[base].trace(seed)
        return trace.between((which - 1) * trace.duration / 2, which * trace.duration / 2)

    return half


def _like_half(base: str, which: int) -> Callable[[int], Trace]:
    return lambda seed: resampled(_half(base, which)(seed), minutes=scenes.PAST_MINUTES, seed=seed)


def _pool(place: int) -> Callable[[int], Trace]:
    """One of two pools that the same 2, 5, 8 or 12 chats/s drive."""
    return lambda seed: correlated_pools((2.0, 5.0, 8.0, 12.0), 480.0, like(azure2023_conv()), seed=seed)[place]


VARIATIONS: tuple[Variation, ...] = (*_of_both(), *_of_one(), *_of_scarce_memory(), *_of_starts())


@cache
def _static_replicas(base: str, seed: int) -> int | None:
    case = CASES[base]
    found = best_static(case.trace(seed), case.profile, case.pool(), SimulationOptions(seed=seed))
    return None if found is None else found.score.peak_replicas


def run(variation: Variation, seed: int = 0) -> dict[str, Any]:
    """One variation: ours beside the best static fleet under the same conditions.

    Keys: name, group, requests, target (attainment asked for); attainment, after_new_pool (arrivals from NEW_POOL
    on), gpu_hours, average_replicas, peak_replicas, share_at_max (of the decisions that asked for max_replicas),
    changes_per_hour; static_replicas, static_gpu_hours, ratio (null where no fixed fleet attains), attainment_at_max
    (of max_replicas fixed, null where some fixed fleet attains); decisions, and warnings (how many of them gave
    each). For an upgrade also relearned_after (seconds, null for never within the run) and after_upgrade
    (attainment of each BIN of arrivals).
    """
    case = variation.changed()
    trace, options = case.trace(seed), SimulationOptions(seed=seed, **variation.options)
    if variation.history:
        assert case.past is not None
        past = case.past(seed)
        trace = past.between(past.duration - variation.history, past.duration).then(trace)
        options = replace(options, history=variation.history)
    static = best_static(trace, case.profile, case.pool(), options)
    initial = static.score.peak_replicas if static else (_static_replicas(variation.base, seed) or case.max_replicas)
    if options.initial_replicas is None:
        options = replace(options, initial_replicas=min(initial, case.max_replicas))
    policy = Listened()
    result = simulate(trace, case.profile, case.pool(), policy, options)
    score = result.score
    report: dict[str, Any] = {
        "name": variation.name,
        "group": variation.group,
        "requests": score.requests,
        "target": case.slo.attainment,
        "attainment": score.attainment,
        "after_new_pool": _attainment(result, options.history + NEW_POOL),
        "gpu_hours": score.gpu_hours,
        "average_replicas": score.average_replicas,
        "peak_replicas": score.peak_replicas,
        "share_at_max": float(np.mean(np.array(result.series.requested) >= case.max_replicas)),
        "changes_per_hour": score.scale_changes_per_hour,
        "static_replicas": static.score.peak_replicas if static else None,
        "static_gpu_hours": static.score.gpu_hours if static else None,
        "ratio": score.gpu_hours / static.score.gpu_hours if static else None,
        "attainment_at_max": None if static else _at_max(case, trace, options),
        "warnings": dict(policy.warned.most_common()),
        "decisions": len(result.series.time),
    }
    if options.upgrades:
        (upgrade,) = options.upgrades
        reference = Listened()
        simulate(trace, upgrade.profile, case.pool(), reference, replace(options, upgrades=()))
        report["relearned_after"] = _relearned_after(policy.bases, reference.bases, upgrade.at)
        edges = np.arange(upgrade.at, trace.duration, BIN)
        report["after_upgrade"] = [_attainment(result, begin, begin + BIN) for begin in edges.tolist()]
    return report


def _attainment(result: Result, begin: float, end: float = np.inf) -> float | None:
    """Of the arrivals in [begin, end) seconds; None without any."""
    truth = result.outcomes
    chosen = (truth.arrival >= begin) & (truth.arrival < end)
    return float(truth.met[chosen].mean()) if chosen.any() else None


def _at_max(case: Case, trace: Trace, options: SimulationOptions) -> float:
    """What the largest fleet that is allowed attains."""
    most = case.max_replicas
    options = replace(options, initial_replicas=most)
    return simulate(trace, case.profile, case.pool(), Static(most), options).score.attainment


def _relearned_after(bases: list[tuple[float, float]], reference: list[tuple[float, float]], at: float) -> float | None:
    """Seconds after the upgrade from which on the base stays close to what it should be; None for never.

    It should be what the same core learns that never knew the old engine: the median of it over the same time.
    """
    truth = statistics.median(base for time, base in reference if time >= at)
    after = [(time, abs(base / truth - 1.0) <= LEARNED) for time, base in bases if time >= at]
    wrong = [time for time, close in after if not close]
    learned = [time for time, _ in after if not wrong or time > wrong[-1]]
    return learned[0] - at if learned else None


def main(groups: list[str]) -> None:
    """Print the table."""
    table = Table(
        "variation", "attains", "from 10 min", "GPU-h", "static", "ratio", "changes/h", "peak", "at max", "remarks"
    )
    for variation in VARIATIONS:
        if groups and variation.group not in groups:
            continue
        found = run(variation)
        static = found["static_replicas"]
        table.add_row(
            found["name"],
            f"{found['attainment']:.2%}",
            f"{found['after_new_pool']:.2%}",
            f"{found['gpu_hours']:.1f}",
            f"max: {found['attainment_at_max']:.2%}"
            if static is None
            else f"{static}: {found['static_gpu_hours']:.1f}",
            "" if static is None else f"{found['ratio']:.2f}",
            f"{found['changes_per_hour']:.1f}",
            f"{found['peak_replicas']}",
            f"{found['share_at_max']:.0%}",
            _remarks(found),
        )
    Console(width=200).print(table)


def _remarks(found: Mapping[str, Any]) -> str:
    remarks = [f"{times} of {found['decisions']}: {text}" for text, times in found["warnings"].items()]
    if "relearned_after" in found:
        seconds = found["relearned_after"]
        learned = "step base not relearned" if seconds is None else f"step base relearned after {seconds:.0f} s"
        bins = ", ".join("-" if share is None else f"{share:.1%}" for share in found["after_upgrade"])
        remarks.insert(0, f"{learned}; then {bins}")
    return "\n".join(remarks)


if __name__ == "__main__":
    main(sys.argv[1:])
