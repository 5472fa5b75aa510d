"""Outliers: whether one replica can have counted these figures between two scrapes. Detects no other anomaly.

One damaged figure in one scrape, such as 10^12 prompt tokens or a queue of 2^64 - 1, ordered the whole max for hours.
An engine's figures move together: who begins requests counts their prompts, who generates tokens counts their steps.
So a figure is doubted that says far more than each of the others does, or more than an engine has time for. It is
left out of that scrape, and believed where the next scrape says the same: then the pool is another one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from servingpool.decision.engine import LARGEST_BATCH, LONGEST_PROMPT, MOST_BATCH, StepTime
from servingpool.decision.increase import Flags, Floats, increases
from servingpool.decision.observation import Histogram, ReplicaMetrics, Unknown
from servingpool.decision.observe.columns import Column
from servingpool.decision.observe.confirm import FAR, SLACK, Level
from servingpool.decision.observe.samples import Sample
from servingpool.decision.pool import Slo

any_of = np.logical_or.reduce
OFTEN = 3.0
"""Ratio to the usual rate up to which no figure is looked at twice, and to what there is time for."""
EQUAL = 1.0 + 1e-6
"""Ratio of equal sums: sums over ranks differ in their last digits, and float32 sums in the seventh."""
MOST_REQUESTS = 1000.0
"""Requests/s that a replica serves at most."""

NAMES: dict[int, str] = {
    Column.TTFT_COUNT: "requests with a first token",
    Column.PROMPTS: "prompt tokens",
    Column.ITL_COUNT: "inter-token latencies",
    Column.ITL_SUM: "seconds between tokens",
    Column.GENERATED: "generation tokens",
    Column.BEGUN: "requests begun",
    Column.TPOT_COUNT: "requests finished",
    Column.REJECTED: "rejections",
}
COUNTED_TOGETHER = (Column.TTFT_COUNT, Column.PROMPTS, Column.ITL_COUNT, Column.GENERATED)
"""Figures that move with each request, none of them derived from another."""
BESIDE = (Column.BEGUN, Column.TPOT_COUNT, Column.REJECTED)
"""Figures that move with requests too, some at other times; not all engines have them."""
PARTS = np.array([Column.TTFT_LOWER, Column.TTFT_UPPER, Column.TPOT_LOWER, Column.TPOT_UPPER])
WHOLES = np.array([Column.TTFT_COUNT, Column.TTFT_COUNT, Column.TPOT_COUNT, Column.TPOT_COUNT])
"""Counts up to a bound, and the counts in all."""
NEVER_FALL = np.array([*PARTS, Column.TTFT_SUM, Column.ITL_SUM])
"""Figures besides `samples.COUNTERS` that never fall without a restart."""
NEVER = "more in a bucket of a histogram than in all of it", "a sum or a bucket that fell", "a count that fell"
"""The first of what `outliers` tells, in words."""
DERIVED = np.array([Column.BEGUN, Column.CACHED, Column.REJECTED])
"""Figures that may fall by a little: some engines tell them as a difference."""


@dataclass(frozen=True, eq=False)
class Usual:
    """Usual figures of a pool's requests and replicas: those of the last twenty minutes."""

    sums: Sequence[float] = ()
    """Sum of each figure over all replicas."""
    requests: float = 0.0
    """First tokens; 0 where too few came to tell the usual."""
    covered: float = 0.0
    """Replica-seconds."""
    most_running: float = math.inf
    """Most requests that were seen in all running batches."""
    step: Callable[[], StepTime | None] = lambda: None
    """Gives the learned step time; None while it is not known."""
    full_from: Mapping[str, float] = field(default_factory=dict)
    """By target, the running requests from which on a replica may be full."""
    short: bool = False
    """Answers are short; see `ShortAnswers`."""
    queue_excluded: bool = False
    """The TTFT histogram was seen to exclude the queue."""

    @property
    def rate(self) -> float:
        """Requests/s of a replica on average."""
        return self.requests / self.covered if self.requests > 0.0 else 0.0

    @cached_property
    def each(self) -> tuple[float, ...]:
        """Each figure over the requests; empty where the usual is not known."""
        return tuple([figure / self.requests for figure in self.sums]) if self.requests > 0.0 else ()

    def exceeded(self, increase: Floats, seconds: Floats) -> Flags:
        """Of each replica, a row each, whether some figure rose by more than often happens; all where none is usual."""
        if self.requests <= 0.0:
            return np.ones(len(increase), dtype=bool)
        often = OFTEN * seconds / self.covered + SLACK / self.requests
        more: Flags = any_of(increase > often[:, None] * self.sums, axis=1)
        return more


NOTHING_USUAL = Usual()


def outliers(figures: Floats, was: Floats, now: Sequence[Sample], before: Sequence[Sample], known: Usual) -> Flags:
    """Of each replica, a row each, what about its figures is odd; a column each.

    More in a bucket of a histogram than in all of it; a sum or a bucket that fell; a count that fell; a figure that
    rose by more than often happens; first tokens in less time in all than the late ones alone took, by more than one
    request. So a count that is too high by a few shows, though no more than usual came: its requests would all be late.
    """
    rise, seconds = figures - was, np.array([new.at - old.at for new, old in zip(now, before, strict=True)])
    lower, upper = np.array([one.buckets.ttft for one in now]).reshape(-1, 2).T
    placed = np.array([new.buckets.ttft == old.buckets.ttft for new, old in zip(now, before, strict=True)], bool)
    placed &= upper < math.inf
    beyond, between = (rise[:, column] for column in (Column.TTFT_COUNT, Column.TTFT_UPPER))
    beyond, between = beyond - between, between - rise[:, Column.TTFT_LOWER]
    least = (beyond - 1.0) * np.where(placed, upper, 0.0) + between * lower
    return np.array(
        (
            any_of(figures[:, PARTS] > EQUAL * figures[:, WHOLES], axis=1),
            any_of(figures[:, NEVER_FALL] * EQUAL < was[:, NEVER_FALL], axis=1),
            any_of(figures[:, DERIVED] < 0.9 * was[:, DERIVED] - SLACK, axis=1),
            known.exceeded(rise, seconds),
            placed & (least > rise[:, Column.TTFT_SUM] * EQUAL),
        )
    ).T


def damaged(now: Sample, before: Sample, known: Usual) -> str | None:
    """Figure, in words, that a replica cannot have counted between two samples without a restart; else None."""
    figures, was = np.array([now.figures]), np.array([before.figures])
    *never, more, shorter = outliers(figures, was, [now], [before], known)[0].tolist()
    if any(never):
        return NEVER[never.index(True)]
    increase, seconds = increases(was, figures)[0].tolist(), now.at - before.at
    bounds = _bounds(increase, now, before, known, seconds) if more else ()
    figure = next((one for one, most in bounds if increase[one] > most), None)
    if figure is not None:
        return f"{increase[figure]:.3g} {NAMES[figure]} in {seconds:.0f} s"
    return "first tokens in less time than their buckets say" if shorter else None


def _bounds(
    increase: Sequence[float], now: Sample, before: Sample, known: Usual, seconds: float
) -> Iterator[tuple[int, float]]:
    """Figures, and the most that a replica can have counted of them: beside its other figures, and in that time."""
    held, came, each, began = now.held + before.held, known.rate * seconds, known.each, increase[Column.TTFT_COUNT]
    yield Column.TTFT_COUNT, increase[Column.PROMPTS] + held + SLACK  # a prompt has a token at least
    yield from ((one, MOST_REQUESTS * seconds + held) for one in BESIDE)
    if each:
        # Requests by each figure: one may not say far more than all others.
        told = sorted((increase[one] / each[one], one) for one in COUNTED_TOGETHER if each[one] > 0.0)
        second, (highest, figure) = (told[-2][0] if len(told) > 1 else 0.0), told[-1]
        most = (FAR * max(second, came) + SLACK) * each[figure]
        yield figure, max(most, LONGEST_PROMPT) if figure == Column.PROMPTS else most
        # Who ends has begun. Of what begins or ends as many more as are in the engine.
        ended, most = began + max(before.held, known.most_running) + SLACK, FAR * max(highest, came) + SLACK + held
        yield Column.TPOT_COUNT, ended * max(1.0, each[Column.TPOT_COUNT])
        yield from ((one, most * max(1.0, each[one])) for one in BESIDE)
    yield Column.ITL_SUM, OFTEN * seconds * max(LARGEST_BATCH, now.held, before.held)  # a token at a time for each
    yield Column.PROMPTS, LONGEST_PROMPT * (began + 1.0)
    if (step := known.step()) is not None and step.base > 0.0:
        yield Column.ITL_COUNT, OFTEN * (increase[Column.ITL_SUM] + seconds) / step.base


def compared_with(now: Sample, before: Sample, known: Usual) -> tuple[Sample, str | None]:
    """The sample to compare `now` with; or the sample before, with the reason why `now` is left out.

    No counter fell. What the next scrape says too is believed: counted from the doubted one on, if it says that one
    figure jumped; from the one before, if all that happens since is more than the pool has ever shown.
    """
    why = damaged(now, before, known)
    if why is None:
        return before, None
    doubted = before.doubted
    if doubted is None or now.at <= doubted.at:
        return before, why
    fell = any(now.figures[one] < doubted.figures[one] for one in COUNTED_TOGETHER)
    return (before if fell or damaged(now, doubted, known) is not None else doubted), None


def with_believed_gauges(
    shown: Sequence[ReplicaMetrics], before: Sequence[Sample], rises: Floats, recent: Flags, known: Usual, slo: Slo
) -> tuple[list[ReplicaMetrics], list[Level | None]]:
    """The samples with their gauges as far as they are believed, Unknown in place of others; and the queues' levels.

    `rises`: figures since the samples before, `recent`: where those are recent.
    """
    gauges = np.array([(one.running, one.waiting) for one in shown], np.float64).reshape(-1, 2)
    metrics = list(shown)
    levels = [old.level if hidden else None for old, hidden in zip(before, np.isnan(gauges[:, 1]), strict=True)]
    odd = any_of(gauges < 0.0, axis=1) | (gauges[:, 0] > MOST_BATCH) | (gauges[:, 1] > 0.0)
    for place in odd.nonzero()[0].tolist():
        one, old, (running, waiting) = shown[place], before[place], gauges[place].tolist()
        seconds = one.scraped_at - old.at
        if not 0.0 <= running <= MOST_BATCH and not isinstance(one.running, Unknown):
            metrics[place] = replace(one, running=Unknown(f"{running:.3g} requests running cannot be"))
        if waiting < 0.0:
            metrics[place] = replace(metrics[place], waiting=Unknown(f"{waiting:.3g} requests waiting cannot be"))
        if not waiting > 0.0:
            continue
        last = 0.0 if old.queue is None else old.queue.requests
        first, spent, begun = rises[place, [Column.TTFT_COUNT, Column.TTFT_SUM, Column.BEGUN]].tolist()
        # Where more come than are served, as many more begin than usual.
        most, level = last + FAR * max(SLACK, known.rate * seconds, begun), old.level
        if not recent[place] or level is None:
            jumped = bool(recent[place]) and waiting > most
            level = Level(one.scraped_at, one.scraped_at, waiting, waiting, 0.0 if jumped else waiting, jumped=jumped)
        elif seconds > 0.0:
            tells = first > 0.0 and not known.queue_excluded and shows_waits([one], slo.time_to_first_token)[0]
            told = {"begun": begun, "spent": spent * begun / first} if tells else {}
            level = level.next(one.scraped_at, waiting, most, **told)
        levels[place], believed = level, level.believed
        if believed != waiting:
            metrics[place] = replace(metrics[place], waiting=believed)
    return metrics, levels


def shows_waits(metrics: Sequence[ReplicaMetrics], bound: float | None) -> list[bool]:
    """Whether each TTFT histogram may show who waited: it does not begin at admission, and has a bucket to ask."""
    each = [(one.time_to_first_token, one.ttft_from_admission) for one in metrics]
    bare = [bound is not None and type(one) is Histogram and one.count > 0.0 and not one.bounds for one, _ in each]
    return [not admission and not no_bucket for (_, admission), no_bucket in zip(each, bare, strict=True)]


def doubt_of(shown: ReplicaMetrics, believed: ReplicaMetrics, level: Level | None) -> str:
    """Why a gauge that the sample has `shown` is not among the `believed` gauges, or not all of it."""
    pairs = ((shown.running, believed.running), (shown.waiting, believed.waiting))
    said = [new.reason for old, new in pairs if new is not old and isinstance(new, Unknown)]
    return "; ".join([*said, *([level.told()] if level is not None and level.parked else [])])
