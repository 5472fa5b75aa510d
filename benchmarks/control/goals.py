"""The goals, with what was measured against each, and what is lost where."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from cases import Kind
from results import CaseResults, Named, Run, run_of
from sweeps import LEARNED_WITHIN, STEPS

from servingpool_simulation.report.figures import percent


@dataclass(frozen=True, slots=True)
class Judged:
    """One case measured against one goal."""

    slug: str
    figure: str
    reached: bool


@dataclass(frozen=True, slots=True)
class Goal:
    """What was set out to reach."""

    measure: str
    goal: str
    judged: Sequence[Judged]
    oracle: Sequence[bool] = ()
    """By case, whether who knows every arrival reaches it; empty where that says nothing."""

    @property
    def reached(self) -> bool:
        """By every case."""
        return all(judged.reached for judged in self.judged)


DAY_TWO, DAY_ONE, STATIC = 1.12, 1.2, 1.0
"""GPU-hours over the oracle's, and over the best static fleet's."""
BASELINE, TUNED = 0.6, 0.9
"""GPU-hours over the best baseline's, with defaults and tuned."""
ROUNDED = 1e-9
"""Of a ratio: GPU-hours that are summed in another order differ in their last digit."""
LEVEL = 0.005
"""Share of the GPU-hours that is no difference."""
UNUSED, CHANGES, FLAPPING = 0.015, 6.0, 0.02


def goals(found: Sequence[CaseResults], varied: Sequence[Mapping[str, Any]] = ()) -> list[Goal]:
    """All of them, in the order of the issue; `varied` is what the sweeps reported.

    A case whose runs are missing is not judged.
    """
    days = [results for results in found if results.case.kind is Kind.DAY]
    bursts = [results for results in found if results.case.kind is Kind.BURST]
    return [
        Goal("every case, all seeds, profile unknown", "attains after the first 10 minutes", _attained(found, False)),
        Goal("the same, mean of the seeds", "attains after the first 10 minutes", _attained(found, False, of=fmean)),
        Goal("every case, all seeds, with history", "attains", _attained(found, True)),
        Goal("the same, mean of the seeds", "attains", _attained(found, True, of=fmean)),
        Goal(
            "one-hour bursts",
            "GPU-hours <= best static in hindsight",
            *_against(bursts, lambda results: results.static, STATIC),
        ),
        Goal(
            "the same, with history",
            "GPU-hours <= best static in hindsight",
            *_against(bursts, lambda results: results.static, STATIC, history=True),
        ),
        Goal(
            "day-long, day two (yesterday known)",
            f"GPU-hours <= {DAY_TWO} x oracle",
            _ratios(days, lambda results: results.oracle, DAY_TWO, history=True),
        ),
        Goal(
            "day-long, day one",
            f"GPU-hours <= {DAY_ONE} x oracle",
            _ratios(days, lambda results: results.oracle, DAY_ONE, history=False),
        ),
        Goal(
            "against the best baseline that holds the SLO with defaults",
            f"GPU-hours <= {BASELINE} x",
            *_against(found, lambda results: run_of(results.best_default()), BASELINE),
        ),
        Goal(
            "against the best baseline tuned in hindsight for that trace",
            f"GPU-hours <= {TUNED} x",
            *_against(found, lambda results: run_of(results.best_tuned()), TUNED),
        ),
        Goal("day-long, unused budget", f"at most {100 * UNUSED:g} points above the target", list(_unused(days))),
        Goal("day-long, changes an hour", f"<= {CHANGES:g}", list(_changes(days))),
        Goal("day-long, down then up within two cold starts", f"<= {FLAPPING:.0%} of changes", list(_flapping(days))),
        Goal(
            "step times changed in mid-run (sweeps)",
            f"learned anew within {LEARNED_WITHIN:.0f} s",
            list(_relearned(varied)),
        ),
    ]


def _relearned(varied: Sequence[Mapping[str, Any]]) -> Iterator[Judged]:
    for report in varied:
        # A prefix cache or a smaller batch leave the step as it was: known after 0 s.
        if report["group"] == STEPS:
            seconds = report["relearned_after"]
            figure = "never" if seconds is None else f"{seconds:.0f} s"
            yield Judged(report["name"].replace(", ", " "), figure, seconds is not None and seconds <= LEARNED_WITHIN)


def losses(found: Sequence[CaseResults]) -> list[str]:
    """Where ours, knowing nothing, misses the SLO or is not the cheapest that holds it; Markdown."""
    return [line for results in found for line in _lost(results)]


def _lost(results: CaseResults) -> Iterator[str]:
    ours, slug = results.our(history=False), results.case.slug
    if ours is None:
        return
    missed = [run for run in results.seeds(history=False) if not run.held]
    if missed:
        lowest = min(missed, key=lambda run: run.attainment)
        of = len(results.seeds(history=False))
        seeds = "" if of == 1 else f" in {len(missed)} of {of} seeds"
        yield (
            f"`{slug}`: misses the SLO{seeds}: {percent(lowest.attainment)} at worst, "
            f"{percent(lowest.settled)} after the first 10 minutes."
        )
    others = (
        ("the best static fleet in hindsight", results.static),
        *((named.name + how, named.run) for named, how in _baselines(results)),
    )
    for name, run in others:
        if run is not None and run.cost < ours.cost * (1 - LEVEL):
            yield f"`{slug}`: {name} holds the SLO with {1 - run.cost / ours.cost:.0%} fewer GPU-hours."


def _baselines(results: CaseResults) -> Iterator[tuple[Named, str]]:
    default, tuned = results.best_default(), results.best_tuned()
    if default is not None:
        yield default, " with defaults"
    if tuned is not None:
        yield tuned, ", tuned in hindsight,"


def _attained(
    found: Sequence[CaseResults], history: bool, *, of: Callable[[Iterable[float]], float] = min
) -> list[Judged]:
    judged = []
    for results in found:
        runs = results.seeds(history=history)
        if runs:
            attained = of(run.attainment if history else run.settled for run in runs)
            judged.append(Judged(results.case.slug, percent(attained), attained >= results.target))
    return judged


def _ratios(
    found: Sequence[CaseResults], to: Callable[[CaseResults], Run | None], most: float, *, history: bool
) -> list[Judged]:
    judged = []
    for results in found:
        ours, other = results.our(history=history), to(results)
        if ours is not None and other is not None:
            ratio = ours.cost / other.cost
            # A policy that misses the SLO is not cheap.
            missed = "" if ours.held else f", missed ({percent(ours.attainment)})"
            judged.append(Judged(results.case.slug, f"{ratio:.2f}{missed}", _within(ratio, most) and ours.held))
    return judged


def _against(
    found: Sequence[CaseResults], to: Callable[[CaseResults], Run | None], most: float, *, history: bool = False
) -> tuple[list[Judged], list[bool]]:
    """Ours against another's GPU-hours; and by case, whether the oracle's reach that."""
    oracle = [
        _within(results.oracle.cost / other.cost, most)
        for results in found
        if results.oracle is not None and (other := to(results)) is not None
    ]
    return _ratios(found, to, most, history=history), oracle


def _within(ratio: float, most: float) -> bool:
    return ratio <= most + ROUNDED


def _unused(days: Sequence[CaseResults]) -> Iterator[Judged]:
    for slug, run in _day_runs(days):
        over = run.attainment - run.target
        yield Judged(slug, f"{100 * over:+.2f}", 0 <= over <= UNUSED)


def _changes(days: Sequence[CaseResults]) -> Iterator[Judged]:
    for slug, run in _day_runs(days):
        changes = run.score["scale_changes_per_hour"]
        yield Judged(slug, f"{changes:.1f}", changes <= CHANGES)


def _flapping(days: Sequence[CaseResults]) -> Iterator[Judged]:
    for slug, run in _day_runs(days):
        share = run.score["flapping"]
        yield Judged(slug, f"{share:.1%}", share <= FLAPPING)


def _day_runs(days: Sequence[CaseResults]) -> Iterator[tuple[str, Run]]:
    for results in days:
        for history, said in ((False, "day one"), (True, "day two")):
            run = results.our(history=history)
            if run is not None:
                yield f"{results.case.slug}, {said}", run
