"""A batch's queue of a history, and what the operator's rule would have ordered for it.

What came is what waited more, and what replicas took. It is served again as a fluid: a replica is as fast as those of
the history were around that time while work waited.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from servingpool.api.duration import brief
from servingpool.decision.params import HOUR
from servingpool.decision.pool import Batch
from servingpool.recording.format import Chunk, Floats, Header, RecordingError
from servingpool.recording.verdict import History
from servingpool_backtest.arrival_rate import around
from servingpool_backtest.intervals import gather
from servingpool_backtest.observed import requested, serving
from servingpool_backtest.result import COLD_START, Question
from servingpool_simulation.fluid import STEP, Job, Mix, ours, play
from servingpool_simulation.report.figures import more_or_less, percent

GAP = 60.0
"""Seconds between two known backlogs, beyond which it is unknown."""
SPEED = 20
"""Steps over which a replica's speed is taken."""
FIGURES = {"gpu_hours": "GPU-hours", "most_replicas": "most replicas", "cold_starts": "cold starts"}


@dataclass(frozen=True, slots=True)
class Backlogged:
    """The history's fleet beside the operator's."""

    target: str
    unit: str
    due: float
    """Requests or tokens that were due within the history."""
    doubts: tuple[str, ...]
    """Why this is no verdict; empty where it is one."""
    unknowns: tuple[str, ...]
    """Assumptions where the history tells nothing."""
    was: dict[str, float]
    """By the figure's name, as `auto`."""
    auto: dict[str, float]
    series: dict[str, Sequence[float]]
    """By step."""

    def sentence(self) -> str:
        """The answer; without a verdict, why."""
        was, auto = self.was["gpu_hours"], self.auto["gpu_hours"]
        no = f"No verdict yet. {' '.join(self.doubts)} " if self.doubts else ""
        done = f"{no}Auto would have done {percent(self.auto['in_time'])} of {self.due:,.0f} {self.unit} in time"
        return f"{done}, with {auto:,.1f} GPU-hours where {was:,.1f} were used ({more_or_less(auto, was)})"

    def rows(self) -> Iterator[tuple[str, ...]]:
        """A line of each figure."""
        yield "", "as it was", "Auto"
        yield "in time", percent(self.was["in_time"]), percent(self.auto["in_time"])
        for name, said in FIGURES.items():
            yield said, *(f"{one[name]:,.1f}".removesuffix(".0") for one in (self.was, self.auto))


def backlogged(header: Header, chunks: Iterable[Chunk], question: Question, batch: Batch) -> Backlogged:
    """Raises RecordingError where the history has no backlog, or shows no replica at work."""
    begin, end, pool = header.begin, header.end - header.begin, question.pool
    intervals = gather(chunks, pool.slo, begin)
    if not intervals.backlog:
        raise RecordingError("holds no backlog: record another file, with --backlog QUERY")
    at = STEP * np.arange(1.0, (size := int(end // STEP)) + 1.0)
    known, told = (np.array(intervals.backlog) - (begin, 0.0)).T
    silent = tuple((a, b) for a, b in pairwise((0.0, *known.tolist(), end)) if b - a > GAP)
    tokens, began = intervals.increase["prompt"] + intervals.increase["generated"], intervals.first_tokens
    each, taken = (tokens.sum() / max(1.0, began.sum()), tokens) if batch.unit == "tokens" else (1.0, began)
    first, last = np.clip((np.stack((intervals.begin, intervals.end)) - begin) / STEP, 0, size - 1).astype(np.int64)
    done = np.bincount(last, taken, size)
    waits = np.interp(at, known, told, left=0.0) + (queued := each * around(first, last, intervals.waiting, size))
    total = np.maximum.accumulate(told + np.interp(known, at, queued + np.cumsum(done)))
    came = np.interp(at, known, total, left=0.0)
    stood = serving(intervals, begin, size, STEP)
    busy = (waits > 0.0) & (stood > 0.0)
    spent, did = (np.convolve(busy * one, np.ones(SPEED), "same")[:size] for one in (STEP * stood, done))
    if not (seen := did > 0.0).any():
        raise RecordingError("shows no time in which work waited while a replica served: record more days")
    cost, mean = np.interp(at, at[seen], spent[seen] / did[seen]), float(spent[seen].sum() / did[seen].sum())
    own = replace(batch, ends=tuple(one - begin for one in batch.ends), tariffs=())
    more = np.diff(came, prepend=0.0).tolist()
    jobs = [Job(now, one, 1.0, own.due(now - STEP)) for now, one in zip(at.tolist(), more, strict=True) if one > 0.0]
    start = question.cold_start or (statistics.median(header.starts) if header.starts else COLD_START)
    mix = Mix(tuple(jobs), own, start, mean, lambda now: mean / float(np.interp(now, at, cost)), silent)
    mix = mix._replace(most=pool.max_replicas, least=pool.min_replicas, ready=round(float(stood[0])))
    course = play(mix, ours(mix, None), end)
    asked = requested(intervals, begin, size, STEP)
    ordered, counted = stood if asked is None else np.maximum(stood, asked), np.array(course.ordered, dtype=np.float64)
    amounts, dues = np.array([(one.requests, one.due) for one in jobs]).T
    undone = np.cumsum(amounts) - np.interp(dues, at, np.maximum.accumulate(came - waits))
    late = float(np.clip(undone, 0.0, amounts)[dues < end].sum())
    due = float(amounts[dues < end].sum())

    def figures(late: float, counts: Floats, rest: float) -> dict[str, float]:
        return {
            "in_time": 1.0 - late / max(1.0, due),
            "gpu_hours": (float(counts.sum()) * STEP + rest * mean) / HOUR * header.gpus,
            "most_replicas": float(np.rint(counts.max())),
            "cold_starts": float(np.maximum(0.0, np.diff(np.rint(counts))).sum()),
        }

    unknown = sum(b - a for a, b in silent)
    return Backlogged(
        f"{header.namespace}/{header.target}",
        batch.unit,
        due,
        tuple(History(end, unknown).doubts()),
        tuple(_taken(unknown, f"{1.0 / mean:,.2f} {batch.unit}/s", start, blind=asked is None)),
        figures(late, ordered, float(waits[-1])),
        figures(course.late, counted, course.left),
        {"time": (begin + at).tolist(), "waits": waits.tolist(), "was": ordered.tolist(), "auto": course.ordered},
    )


def _taken(unknown: float, speed: str, start: float, *, blind: bool) -> Iterator[str]:
    """The assumptions, in sentences."""
    if unknown:
        yield f"The backlog is unknown for {brief(unknown)}: what came then is spread evenly, and Auto is told nothing."
    yield f"A replica did {speed} while work waited. With Auto it does so too, from {brief(start)} after its order on."
    if blind:
        yield "Prometheus has no spec.replicas: the history's GPU-hours leave out pods while they loaded."
    yield "No replica is lost, and no schedule is in force. What waits at the end counts as GPU-hours."
