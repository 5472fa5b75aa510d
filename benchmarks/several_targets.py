"""Pools of several kinds of GPUs by the operator's own core, against the best mix that never changes and single kinds.

`python benchmarks/several_targets.py` writes docs/benchmarks/several-targets.md, in some minutes. `--quick` takes an
hour of each case and prints only.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean

from servingpool.decision.pool import Slo
from servingpool_simulation.families.large import conv_hours
from servingpool_simulation.families.resampled import code_day
from servingpool_simulation.fleet import Routing
from servingpool_simulation.hardware import engine_profile
from servingpool_simulation.kinds import Kind
from servingpool_simulation.mix import MixResult, Parts, best_static_mix, simulate_mix
from servingpool_simulation.policies import TICK, Ours, Policy, Schedule
from servingpool_simulation.prices import DOLLARS_PER_GPU_HOUR, SPOT, price
from servingpool_simulation.run import SimulationOptions
from servingpool_simulation.traces import Trace, azure2024_conv_reconstructed

PAGE = Path(__file__).parents[1] / "docs/benchmarks/several-targets.md"
HOUR, TUESDAY = 3600.0, 2
NOTICE = 120.0
SETTLED = 600.0
"""Seconds after the nodes are back that still count to the loss."""
MIX_GOAL, SINGLE_GOAL = 1.10, 1.0
"""Dollars over those of the best static mix, and of the best single kind under the same controller."""
OURS = Ours
"""The policy of all pools: those of several kinds and those of one."""


@dataclass(frozen=True, slots=True)
class Case:
    """Traffic, kinds of replicas, and what is asked of them. Times are seconds."""

    slug: str
    title: str
    trace: Callable[[], Trace]
    kinds: tuple[Kind, ...]
    slo: Slo
    loss: tuple[float, float] | None = None
    """From when to when nodes are gone; the notice comes before."""


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one policy."""

    policy: str
    dollars: float
    attained: float
    attains: bool
    hours: str
    """Replica-hours of each kind."""
    orders: int
    lost: int
    in_loss: float | None
    """Attained by the requests that came from the notice until nodes are back and ten minutes on."""


@dataclass(frozen=True, slots=True)
class Found:
    """What became of a case."""

    case: Case
    static: Row | None
    ours: Row
    singles: tuple[Row, ...]
    clairvoyant: Row | None
    at_notice: Row | None
    """Who orders at the notice what will be missing, and knows the supply no sooner."""
    seconds: float
    """Of computing."""

    @property
    def single(self) -> Row | None:
        """The cheapest single kind that attains under the same controller."""
        return min((row for row in self.singles if row.attains), key=lambda row: row.dollars, default=None)

    def over(self, other: Row | None) -> float | None:
        """Our dollars over another one's; None where one of them does not attain."""
        if other is None or not self.ours.attains:
            return None
        return self.ours.dollars / other.dollars


def kind(gpu: str, *, name: str | None = None, spot: bool = False, **other: object) -> Kind:
    """An 8B model on one GPU, as priced."""
    profile = engine_profile(f"{gpu}-8b-tp1")
    given = {"most": 16} | ({"notice": NOTICE} if spot else {}) | other
    return Kind(name or gpu, profile, price(profile.name, spot=spot), **given)  # type: ignore[arg-type]


def cases(*, quick: bool) -> list[Case]:
    """All of them; of the quick ones an hour each."""
    hours, scale = (1, 0.5) if quick else (6, 1.0)
    gone, back = (0.4 * HOUR, 0.7 * HOUR) if quick else (3 * HOUR, 4 * HOUR)
    spot = kind("h100", name="spot", spot=True, supply=((0.0, 2), (gone, 0), (back, 2)) if quick else _spot(gone, back))
    h100, l40s, a100 = kind("h100"), kind("l40s", most=32), kind("a100", most=24)
    code, conv = partial(_code, quick=quick), partial(_conv, quick=quick)
    return [
        Case("code", "code day, H100 and L40S", code, (h100, l40s), Slo(2.0, 0.1)),
        Case("conv", "conversation day, H100 and A100", conv, (h100, a100), Slo(1.0, 0.04)),
        Case(
            "spot",
            "conversation, H100 on demand and spot; spot is gone for an hour at the peak",
            partial(conv_hours, scale, begin=14 if quick else 11, hours=hours),
            (replace(h100, name="on-demand", base=1), spot),
            Slo(1.0, 0.04),
            (gone, back),
        ),
        Case(
            "runs-out",
            "code day, H100 and L40S of which there are 3",
            code,
            (h100, replace(l40s, supply=((0.0, 3),))),
            Slo(2.0, 0.1),
        ),
    ]


def _spot(gone: float, back: float) -> tuple[tuple[float, int], ...]:
    """Half of the nodes that the peak needs."""
    return (0.0, 3), (gone, 0), (back, 3)


def _code(*, quick: bool) -> Trace:
    day = code_day(TUESDAY, scale=3.0)
    return day.between(14 * HOUR, 15 * HOUR) if quick else day


def _conv(*, quick: bool) -> Trace:
    return conv_hours(0.6, begin=14) if quick else azure2024_conv_reconstructed(TUESDAY, scale=0.6)


def measure(slug: str, seed: int, *, quick: bool, routing: Routing) -> Found:
    """One case with one seed."""
    began = time.perf_counter()
    case = next(case for case in cases(quick=quick) if case.slug == slug)
    trace, options = case.trace(), SimulationOptions(routing=routing, seed=seed)
    best = best_static_mix(trace, case.kinds, case.slo, options)
    initial = best[0] if best else tuple(kind.base for kind in case.kinds)
    row = partial(_row, case)
    run = partial(_run, trace, case.slo, options)
    singles = []
    for one in case.kinds:
        alone = best_static_mix(trace, (one,), case.slo, options)
        least = int(min(one.most, one.lasting(0.0)))
        singles.append(row(f"{one.name} alone", run((one,), OURS(), alone[0] if alone else (least,)), (one.name,)))
    names = tuple(kind.name for kind in case.kinds)
    return Found(
        case,
        row(f"best static mix, {_mix(best[0], names)}", best[1], names) if best else None,
        row("ours", run(case.kinds, OURS(), _fitting(case.kinds, initial)), names),
        tuple(singles),
        _clairvoyant(case, trace, options, initial, foresees=True) if case.loss else None,
        _clairvoyant(case, trace, options, initial, foresees=False) if case.loss else None,
        time.perf_counter() - began,
    )


def _run(
    trace: Trace, slo: Slo, options: SimulationOptions, kinds: Sequence[Kind], policy: Policy, initial: Parts
) -> MixResult:
    return simulate_mix(trace, kinds, policy, slo, options, initial)


def _fitting(kinds: Sequence[Kind], parts: Parts) -> Parts:
    """At least each one's base, at most what there are nodes for."""
    return tuple(int(min(max(n, kind.base), kind.lasting(0.0))) for n, kind in zip(parts, kinds, strict=True))


def _row(case: Case, policy: str, run: MixResult, kinds: Sequence[str]) -> Row:
    hours = ", ".join(f"{hours:.1f} {name}" for hours, name in zip(run.hours, kinds, strict=True))
    lost = _in_loss(run, case.loss)
    return Row(policy, run.dollars, run.attained, run.attains, hours, run.orders, run.lost, lost)


def _in_loss(run: MixResult, loss: tuple[float, float] | None) -> float | None:
    if loss is None:
        return None
    truth = run.result.outcomes
    during = (truth.arrival >= loss[0] - NOTICE) & (truth.arrival < loss[1] + SETTLED)
    return float(truth.met[during].mean())


def _clairvoyant(case: Case, trace: Trace, options: SimulationOptions, initial: Parts, *, foresees: bool) -> Row:
    """Our own course with nodes without end, each tick's replicas given to spot while that lasts, else to on-demand.

    It `foresees` the supply, not the traffic: what must not be missing at the notice is ordered a cold start before it.
    Else it orders that at the notice.
    """
    on_demand, spot = case.kinds
    alone = simulate_mix(trace, (on_demand,), OURS(), case.slo, options, (sum(initial),))
    wanted = [moment.requested[0] for moment in alone.course]
    lead = on_demand.cold_start.mean * (1.0 + on_demand.cold_start.jitter) + TICK
    ticks = round(lead / TICK + 0.5)
    ahead = ticks if foresees else 1
    there = [int(min(n, spot.lasting(TICK * at))) for at, n in enumerate(wanted)]
    ready = [min(there[max(0, at - ticks) : at + 1]) if at >= ticks else there[at] for at in range(len(wanted))]
    needs = [max(on_demand.base, n - spots) for n, spots in zip(wanted, ready, strict=True)]
    plan = [(max(needs[at : at + ahead]), there[at]) for at in range(len(wanted))]
    run = simulate_mix(trace, case.kinds, Schedule(plan, "clairvoyant"), case.slo, options, plan[0])
    return _row(
        case,
        "clairvoyant of the supply" if foresees else "orders at the notice",
        run,
        tuple(kind.name for kind in case.kinds),
    )


def _mix(parts: Parts, names: Sequence[str]) -> str:
    return " + ".join(f"{n} {name}" for n, name in zip(parts, names, strict=True))


_PRICES = ", ".join(f"{gpu} {dollars:g}" for gpu, dollars in DOLLARS_PER_GPU_HOUR.items())
INTRODUCTION = f"""\
Written by `python benchmarks/several_targets.py`. Simulated; no GPU ran for this page. Seeds {{seeds}}: tables are of
the first, goals of the mean. Nothing is known at the start; an 8B model on one GPU a replica, step times as measured on
each GPU, {{routing}} routing, cold starts of 80 to 120 s. Dollars an hour, list prices of one cloud: {_PRICES};
spot is taken to cost {SPOT:.0%} of that. Loading and draining are paid for; a pod without a node is not.

The best static mix is searched in hindsight among all mixes. A single kind runs under the same controller, and starts
with its own best static fleet; ours starts with the best static mix. Where spot vanishes, the notice comes two minutes
before: the pods drain, what they have not finished then is lost, and the Deployment makes others that wait for a node.
The clairvoyant of the supply has the course that our controller takes with nodes without end, and knows when there are
spot nodes: on-demand replicas are ordered a cold start before spot goes. The row below it takes the same course and
orders them at the notice, as early as one may who does not see the future: what it attains is the goal. Attained in the
loss is of requests that came from the notice until ten minutes after the nodes are back.
"""


def section(seeds: Sequence[Found]) -> Iterator[str]:
    """A case's section of the page: the table of its first seed, the goals of all."""
    found, case = seeds[0], seeds[0].case
    yield f"\n## {case.title}\n"
    yield f"SLO {case.slo.time_to_first_token:g} s, {case.slo.time_per_output_token:g} s, {case.slo.attainment:.0%}.\n"
    yield "| | dollars | / best static mix | attained | in the loss | replica-hours | orders | requests lost |"
    yield "|---|---|---|---|---|---|---|---|"
    for row in (found.ours, found.static, *found.singles, found.clairvoyant, found.at_notice):
        if row is not None:
            yield _line(row, found.static)
    yield ""
    yield from goals(seeds)


def _line(row: Row, static: Row | None) -> str:
    cells = (
        row.policy,
        f"{row.dollars:.2f}",
        "" if static is None else f"{row.dollars / static.dollars:.2f}",
        f"{row.attained:.2%}" + "!" * (not row.attains),
        "" if row.in_loss is None else f"{row.in_loss:.2%}",
        row.hours,
        f"{row.orders}",
        f"{row.lost}",
    )
    return "| " + " | ".join(cells) + " |"


def goals(seeds: Sequence[Found]) -> Iterator[str]:
    """The goals of one case, and whether the mean over these seeds reaches them."""
    first, target = seeds[0], seeds[0].case.slo.attainment
    for what, goal in (("static mix", MIX_GOAL), ("single kind", SINGLE_GOAL)):
        ratios = [found.over(found.static if what == "static mix" else found.single) for found in seeds]
        known = [ratio for ratio in ratios if ratio is not None]
        if len(known) == len(ratios):
            reached = _reached(fmean(known) <= goal)
            yield f"- Dollars over the best {what}'s: {_mean(known, '.3f')}, goal {goal:.2f}: {reached}."
        else:
            attain = all(found.ours.attains for found in seeds)
            attained = _mean([found.ours.attained for found in seeds], ".2%")
            who = f"no {what} attains" if attain else f"ours attains {attained}, not {target:.0%} with each seed"
            yield f"- Dollars over the best {what}'s: no figure, {who}, goal {goal:.2f}: {_reached(attain)}."
    if first.clairvoyant is not None:
        pairs = [(one.ours.in_loss or 0.0, one.clairvoyant.in_loss or 0.0) for one in seeds if one.clairvoyant]
        ours, best = zip(*pairs, strict=True)
        causal = [one.at_notice.in_loss or 0.0 for one in seeds if one.at_notice]
        held = fmean(ours) >= min(fmean(causal), target)
        yield (
            f"- Attained in the loss: {_mean(ours, '.2%')}; who orders at the notice {_mean(causal, '.2%')}, "
            f"SLO {target:.0%}: {_reached(held)}. The clairvoyant {_mean(best, '.2%')}."
        )


def _mean(figures: Sequence[float], form: str) -> str:
    """Their mean, and each where they are several."""
    each = f" ({', '.join(format(one, form) for one in figures)})" if len(figures) > 1 else ""
    return f"{fmean(figures):{form}}{each}"


def _reached(yes: bool) -> str:
    return "reached" if yes else "**not reached**"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    slugs = [case.slug for case in cases(quick=True)]
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(slugs)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="an hour of each; nothing is written")
    parser.add_argument("--routing", choices=list(Routing), type=Routing, default=Routing.LEAST_LOADED)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="tables are of the first one")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    given = parser.parse_args()
    text = [
        "# Several targets in a pool\n",
        INTRODUCTION.format(routing=given.routing, seeds=", ".join(map(str, given.seeds))),
    ]
    runs = [(slug, seed) for slug in given.cases or slugs for seed in given.seeds]
    with ProcessPoolExecutor(given.jobs) as crew:
        found = list(crew.map(partial(measure, quick=given.quick, routing=given.routing), *zip(*runs, strict=True)))
    for at in range(0, len(found), len(given.seeds)):
        seeds = found[at : at + len(given.seeds)]
        lines = list(section(seeds))
        print("\n".join(lines), f"\n{sum(one.seconds for one in seeds):.0f} s", flush=True)
        text += lines
    if not given.quick and not given.cases:
        PAGE.write_text("\n".join(text) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
