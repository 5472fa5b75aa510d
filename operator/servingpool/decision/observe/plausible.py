"""Whether one replica can have counted these figures between two scrapes.

One damaged figure in one scrape, such as 10^12 prompt tokens or a queue of 2^64 - 1, ordered the whole max for hours.
An engine's figures move together: who begins requests counts their prompts, who generates tokens counts their steps.
So a figure is doubted that says far more than each of the others does, or more than an engine has time for. It is
left out of that scrape, and believed where the next scrape says the same: then the pool is another one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import gt, itemgetter, lt, sub

from servingpool.decision.engine import FASTEST_STEP, LARGEST_BATCH, LONGEST_PROMPT, StepTime
from servingpool.decision.increase import Change
from servingpool.decision.observation import Reading, ReplicaMetrics, Unknown
from servingpool.decision.observe.samples import (
    BEGUN,
    CACHED,
    GENERATED,
    ITL_COUNT,
    ITL_SUM,
    PROMPTS,
    REJECTED,
    TPOT_COUNT,
    TPOT_LOWER,
    TPOT_UPPER,
    TTFT_COUNT,
    TTFT_LOWER,
    TTFT_SUM,
    TTFT_UPPER,
    Sample,
    change_between,
)
from servingpool.decision.params import DAY

FAR = 8.0
"""Ratio of a figure to the next highest, from which on the figure is doubted."""
OFTEN = 3.0
"""Ratio to the usual rate up to which no figure is looked at twice."""
PACE = 2.0
"""Ratio to the learned pace of work, up to which no figure is doubted."""
QUICKER = 4.0
"""Ratio of a step without work, as learned, to the mean step, up to which no count of steps is doubted."""
EQUAL = 1.0 + 1e-6
"""Ratio of equal sums: sums over ranks differ in their last digits, and float32 sums in the seventh."""
SLACK = 16.0
"""Requests by which a figure may exceed the usual: few requests vary by chance."""
MOST_REQUESTS = 1000.0
"""Requests/s that a replica serves at most."""

NAMES = {
    TTFT_COUNT: "requests with a first token",
    PROMPTS: "prompt tokens",
    ITL_COUNT: "inter-token latencies",
    ITL_SUM: "seconds between tokens",
    GENERATED: "generation tokens",
    BEGUN: "requests begun",
    TPOT_COUNT: "requests finished",
    REJECTED: "rejections",
    TTFT_SUM: "seconds to first tokens",
}
COUNTED_TOGETHER = (TTFT_COUNT, PROMPTS, ITL_COUNT, GENERATED)
"""Figures that move with each request, none of them derived from another."""
BESIDE = (BEGUN, TPOT_COUNT, REJECTED)
"""Figures that move with requests too, some at other times; not all engines have them."""
NEVER_FALL = itemgetter(TTFT_LOWER, TTFT_UPPER, TTFT_SUM, TPOT_LOWER, TPOT_UPPER, ITL_SUM)
"""Figures besides `samples.COUNTERS` that never fall without a restart."""
DERIVED = itemgetter(BEGUN, CACHED, REJECTED)
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
    most_running: Callable[[], float] = lambda: math.inf
    """Most requests that were seen in all running batches."""
    step: Callable[[], StepTime | None] = lambda: None
    """Gives the learned step time; None while it is not known."""
    _most: dict[float, list[float]] = field(default_factory=dict, init=False, repr=False)

    @property
    def rate(self) -> float:
        """Requests/s of a replica on average."""
        return self.requests / self.covered if self.requests > 0.0 else 0.0

    @cached_property
    def each(self) -> tuple[float, ...]:
        """Each figure over the requests; empty where the usual is not known."""
        return tuple(figure / self.requests for figure in self.sums) if self.requests > 0.0 else ()

    def often(self, seconds: float) -> list[float]:
        """Increase of each figure that a replica may show in so many seconds without being examined."""
        most = self._most.get(seconds)
        if most is None:
            part = OFTEN * seconds / self.covered + SLACK / self.requests if self.requests > 0.0 else 0.0
            most = self._most[seconds] = [part * figure for figure in self.sums]
        return most


NOTHING_USUAL = Usual()


def damaged(now: Sample, before: Sample, known: Usual) -> str | None:
    """Figure, in words, that a replica cannot have counted between two samples without a restart; else None."""
    figures, old = now.figures, before.figures
    if _crossed(figures):
        return "more in a bucket of a histogram than in all of it"
    if any(map(lt, figures, old)):
        if any(new * EQUAL < was for new, was in zip(NEVER_FALL(figures), NEVER_FALL(old), strict=True)):
            return "a sum or a bucket that fell"
        if any(new < 0.9 * was - SLACK for new, was in zip(DERIVED(figures), DERIVED(old), strict=True)):
            return "a count that fell"
    increase, seconds = list(map(sub, figures, old)), now.at - before.at
    figure = None
    if known.requests <= 0.0 or any(map(gt, increase, known.often(seconds))):
        increase = [max(0.0, more) for more in increase]
        figure = _impossible(increase, now, before, seconds)
        if figure is None:
            figure = _beyond_others(increase, now, before, known, seconds)
        if figure is None:
            figure = _beyond_time(increase, now, before, known, seconds)
    if figure is not None:
        return f"{increase[figure]:.3g} {NAMES[figure]} in {seconds:.0f} s"
    if _shorter_than_their_buckets(increase, now, before):
        return "first tokens in less time than their buckets say"
    return None


def _crossed(figures: Sequence[float]) -> bool:
    """Whether a histogram counts more up to a bound than in all."""
    ttft, tpot = EQUAL * figures[TTFT_COUNT], EQUAL * figures[TPOT_COUNT]
    return (
        figures[TTFT_LOWER] > ttft
        or figures[TTFT_UPPER] > ttft
        or figures[TPOT_LOWER] > tpot
        or figures[TPOT_UPPER] > tpot
    )


def _shorter_than_their_buckets(increase: Sequence[float], now: Sample, before: Sample) -> bool:
    """Whether first tokens took less time in all than the late requests alone did, by more than one request.

    So a count that is too high by a few shows, though no more than usual came: its requests would all be late.
    """
    ends = now.buckets.ttft
    if ends != before.buckets.ttft or ends.upper == math.inf:
        return False
    beyond, between = increase[TTFT_COUNT] - increase[TTFT_UPPER], increase[TTFT_UPPER] - increase[TTFT_LOWER]
    return (beyond - 1.0) * ends.upper + between * ends.lower > increase[TTFT_SUM] * EQUAL


def _impossible(increase: Sequence[float], now: Sample, before: Sample, seconds: float) -> int | None:
    """The figure that no engine of any pool can show."""
    held = now.held + before.held
    if increase[TTFT_COUNT] > increase[PROMPTS] + held + SLACK:  # a prompt has a token at least
        return TTFT_COUNT
    if increase[ITL_COUNT] * FASTEST_STEP > increase[ITL_SUM] + seconds:
        return ITL_COUNT
    return next((one for one in BESIDE if increase[one] > MOST_REQUESTS * seconds + held), None)


def _beyond_others(increase: Sequence[float], now: Sample, before: Sample, known: Usual, seconds: float) -> int | None:
    """The figure that says far more requests than each of the other figures."""
    if not known.each:
        return None
    told = [(increase[one] / known.each[one], one) for one in COUNTED_TOGETHER if known.each[one] > 0.0]
    told.sort()
    second = told[-2][0] if len(told) > 1 else 0.0
    most = FAR * max(second, known.rate * seconds) + SLACK
    if told and told[-1][0] > most:
        figure = told[-1][1]
        if figure != PROMPTS or increase[PROMPTS] > LONGEST_PROMPT:
            return figure
    began = increase[TTFT_COUNT] + max(before.held, known.most_running())
    if increase[TPOT_COUNT] > (began + SLACK) * max(1.0, known.each[TPOT_COUNT]):  # who ends has begun
        return TPOT_COUNT
    # Of what begins or ends as many more as are in the engine.
    most = FAR * max(told[-1][0] if told else 0.0, known.rate * seconds) + SLACK + now.held + before.held
    for figure in BESIDE:
        if increase[figure] > most * max(1.0, known.each[figure]):
            return figure
    return None


def _beyond_time(increase: Sequence[float], now: Sample, before: Sample, known: Usual, seconds: float) -> int | None:
    """The figure that says more work than there was time for."""
    if increase[TTFT_SUM] > DAY * (increase[TTFT_COUNT] + 1.0):
        return TTFT_SUM
    if increase[ITL_SUM] > PACE * seconds * max(LARGEST_BATCH, now.held, before.held):
        return ITL_SUM  # each request of a batch waits for one token at a time
    step = known.step()
    if step is None:
        return PROMPTS if increase[PROMPTS] > LONGEST_PROMPT * (increase[TTFT_COUNT] + 1.0) else None
    if increase[ITL_COUNT] * step.base > QUICKER * (increase[ITL_SUM] + seconds):
        return ITL_COUNT
    prefill = step.per_prefill_token * (increase[PROMPTS] - increase[CACHED])
    decode = step.per_request * increase[ITL_COUNT]
    if max(prefill, decode) <= PACE * seconds:
        return None
    return PROMPTS if prefill > decode else ITL_COUNT


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
    jumped = change_between(doubted, now) is Change.CONTINUED and damaged(now, doubted, known) is None
    return (doubted if jumped else before), None


def with_believed_gauges(
    metrics: ReplicaMetrics, before: Sample, others: Sequence[ReplicaMetrics], known: Usual
) -> ReplicaMetrics:
    """The sample of a replica, Unknown in place of a gauge that jumped further than its requests can have come.

    `others`: the samples of all replicas. A queue may be as long as eight of the longest of the others, which have the
    same clients, and as what eight times the usual rate brings.
    """
    running, waiting = metrics.running, metrics.waiting
    if not isinstance(running, Unknown) and running > FAR * SLACK and _far(running, before.held, known):
        running = _doubted("running", running, before.jumped[0])
    last = 0.0 if before.queue is None else before.queue.requests
    if not isinstance(waiting, Unknown) and waiting > last + FAR * SLACK:
        queues = (one.waiting for one in others if one is not metrics)
        longest = max((one for one in queues if not isinstance(one, Unknown)), default=0.0)
        arrivals = known.rate * max(0.0, metrics.scraped_at - before.at)
        if waiting > last + FAR * max(SLACK, longest, arrivals):
            waiting = _doubted("waiting", waiting, before.jumped[1])
    if running is metrics.running and waiting is metrics.waiting:
        return metrics
    return replace(metrics, running=running, waiting=waiting)


def _far(running: float, held: float, known: Usual) -> bool:
    return running > FAR * held and running > FAR * known.most_running()


def doubt_of(shown: ReplicaMetrics, believed: ReplicaMetrics) -> str:
    """Why a gauge that the sample has `shown` is not among the `believed` gauges."""
    pairs = ((shown.running, believed.running), (shown.waiting, believed.waiting))
    return "; ".join(new.reason for old, new in pairs if new is not old and isinstance(new, Unknown))


def _doubted(name: str, now: float, before: Reading) -> Reading:
    """A gauge that jumped; believed where the scrape before said so too."""
    if not isinstance(before, Unknown) and now >= 0.5 * before:
        return now
    return Unknown(f"{now:.3g} requests {name} after one scrape is more than can have come")
