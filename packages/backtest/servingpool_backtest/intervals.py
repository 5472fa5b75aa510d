"""From cumulative columns to what happened between two scrapes of a pod: one row an interval, as arrays."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from servingpool.decision.increase import change
from servingpool.decision.params import LONGEST_GAP
from servingpool.decision.pool import Slo
from servingpool.recording.format import Buckets, Chunk, Floats, RecordingError, Scrapes

MOST_SCRAPES = 20_000_000
"""In a recording, over all pods: 250 pods for two weeks. Each takes 128 bytes."""
MOST_OF_FIRST = 2.0
"""A pod's first scrape over its busiest interval, in requests, up to which it is taken for a new pod's."""
COLUMNS = (
    *("waiting", "running", "generated", "prompt", "cached", "begun"),
    *("ttft_count", "ttft_sum", "ttft_lower", "ttft_upper", "itl_count", "itl_sum"),
    *("tpot_count", "tpot_sum", "tpot_lower", "tpot_upper"),
)
"""Of one scrape; `lower` and `upper` are the counts in the buckets at or below and above the SLO's bound."""
GAUGES = ("waiting", "running")
COUNTERS = tuple(COLUMNS.index(name) for name in ("ttft_count", "itl_count", "generated", "prompt"))
"""Columns that only a restart lowers."""
_NAMES = ("waiting", "running", "generation_tokens", "prompt_tokens", "cached_prompt_tokens", "begun")
_FIGURES = dict(zip(COLUMNS, _NAMES, strict=False))

Bracket = tuple[float, float]
"""Ends of the bucket that a bound lies in, in seconds."""


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """All intervals of all pods, in order of their end."""

    begin: Floats
    """Unix seconds of the earlier scrape."""
    end: Floats
    increase: dict[str, Floats]
    """By column: how much a counter rose, how much a gauge changed."""
    running: Floats
    """At the end."""
    waiting: Floats
    """At the end."""
    waited: Floats
    """Requests in the queue at the begin."""
    ttft_bucket: Bracket
    tpot_bucket: Bracket
    pods: tuple[tuple[str, float, float], ...]
    """(name, first and last scrape)."""
    ttft_from_admission: bool
    requested: tuple[tuple[float, float], ...]
    """(Unix seconds, spec.replicas), where known."""
    backlog: tuple[tuple[float, float], ...]
    """(Unix seconds, what waits in a broker), where known."""

    @property
    def seconds(self) -> Floats:
        """Length of each."""
        return self.end - self.begin

    @property
    def first_tokens(self) -> Floats:
        """Requests that began in each."""
        return np.maximum(self.increase["begun"], self.increase["ttft_count"])

    @property
    def scrape_interval(self) -> float:
        """Seconds between two scrapes, as is usual."""
        return float(np.median(self.seconds)) if len(self.end) else 15.0


@dataclass(slots=True)
class Gathering:
    """Takes chunks in order and keeps of each only what an SLO needs."""

    slo: Slo
    _rows: defaultdict[str, list[tuple[Floats, Floats]]] = field(default_factory=lambda: defaultdict(list))
    _requested: list[tuple[float, float]] = field(default_factory=list)
    _backlog: list[tuple[float, float]] = field(default_factory=list)
    _brackets: dict[str, Bracket] = field(default_factory=dict)
    _from_admission: bool = False
    _scrapes: int = 0

    def add(self, chunk: Chunk) -> None:
        """One further chunk."""
        self._requested.extend(chunk.requested)
        self._backlog.extend(chunk.backlog)
        self._scrapes += sum(len(one.at) for one in chunk.scrapes)
        if self._scrapes > MOST_SCRAPES:
            raise RecordingError(f"has more than {MOST_SCRAPES:,} scrapes: record fewer days at a time")
        for scrapes in chunk.scrapes:
            self._rows[scrapes.pod].append((scrapes.at, self._table(scrapes)))
            self._from_admission |= scrapes.ttft_from_admission

    def intervals(self, begin: float) -> Intervals:
        """All of it; `begin` is when the recording does, in Unix seconds."""
        found, pods = [], []
        for pod, parts in sorted(self._rows.items()):
            at = np.concatenate([each[0] for each in parts])
            table = np.concatenate([each[1] for each in parts])
            at, first = np.unique(at, return_index=True)
            found.append(_differences(at, table[first], began_before=begin))
            pods.append((pod, float(at[0]), float(at[-1])))
        table = np.concatenate(found) if found else np.zeros((0, len(COLUMNS) + 4))
        table = table[np.argsort(table[:, 1], kind="stable")]
        increase = {name: table[:, 4 + column] for column, name in enumerate(COLUMNS)}
        return Intervals(
            begin=table[:, 0],
            end=table[:, 1],
            increase=increase,
            running=table[:, 2],
            waiting=table[:, 3],
            waited=np.maximum(0.0, table[:, 3] - increase["waiting"]),
            ttft_bucket=self._brackets.get("ttft", (0.0, np.inf)),
            tpot_bucket=self._brackets.get("tpot", (0.0, np.inf)),
            pods=tuple(pods),
            ttft_from_admission=self._from_admission,
            requested=tuple(self._requested),
            backlog=tuple(self._backlog),
        )

    def _table(self, scrapes: Scrapes) -> Floats:
        """[scrape, column]; NaN where a figure is not exposed, or was not read."""
        table = np.full((len(scrapes.at), len(COLUMNS)), np.nan)
        for name, figure in _FIGURES.items():
            if figure in scrapes.figures:
                table[:, COLUMNS.index(name)] = scrapes.figures[figure]
        bounds = {"ttft": self.slo.time_to_first_token, "itl": None, "tpot": self.slo.time_per_output_token}
        histograms = {"ttft": "time_to_first_token", "itl": "inter_token_latency", "tpot": "time_per_output_token"}
        for short, name in histograms.items():
            one = scrapes.histograms.get(name)
            if one is None:
                continue
            table[:, COLUMNS.index(f"{short}_count")] = one.count
            table[:, COLUMNS.index(f"{short}_sum")] = one.total
            bound = bounds[short]
            if bound is not None:
                bracket, lower, upper = _around(one, bound)
                self._brackets.setdefault(short, bracket)
                table[:, COLUMNS.index(f"{short}_lower")] = lower
                table[:, COLUMNS.index(f"{short}_upper")] = upper
        return table


def gather(chunks: Iterable[Chunk], slo: Slo, begin: float) -> Intervals:
    """All intervals of a recording."""
    gathering = Gathering(slo)
    for chunk in chunks:
        gathering.add(chunk)
    return gathering.intervals(begin)


def _around(buckets: Buckets, bound: float) -> tuple[Bracket, Floats, Floats]:
    """Ends of the bucket with the bound, and the counts up to each."""
    above = int(np.searchsorted(buckets.bounds, bound * (1 + 1e-9), side="right"))
    lower = buckets.counts[:, above - 1] if above else np.zeros(len(buckets.count))
    upper = buckets.counts[:, above] if above < len(buckets.bounds) else buckets.count
    ends = (0.0, *buckets.bounds, np.inf)
    return (ends[above], ends[above + 1]), lower, upper


def _is_new(first: Floats, increase: Floats) -> bool:
    """Whether a pod's first scrape may hold one interval's work: else it was there before, and was not scraped."""
    count = COLUMNS.index("ttft_count")
    return bool(first[count] <= MOST_OF_FIRST * max(1.0, float(np.max(increase[:, count], initial=0.0))))


def _differences(at: Floats, table: Floats, *, began_before: float) -> Floats:
    """[interval, (begin, end, running, waiting, *COLUMNS)] of one pod.

    Before a figure's first value a pod that started within the recording has counted nothing, and any other has counted
    what it shows then. A figure that is never there is 0.
    """
    usual = float(np.median(np.diff(at))) if len(at) > 1 else 15.0
    # Its first scrape comes late enough in the recording that it may have started there.
    unknown, starts = np.isnan(table), at[0] > began_before + 2.0 * usual
    leading = 0.0 if starts else table[unknown.argmin(axis=0), np.arange(table.shape[1])]
    table = np.where(np.logical_and.accumulate(unknown, axis=0), leading, table)
    gauges = [COLUMNS.index(name) for name in GAUGES]
    pairs, begin, counts = [], 0, table[0, COUNTERS].tolist()
    for row, now in enumerate(table[1:, COUNTERS].tolist(), 1):
        reset, damaged = change(counts, now)
        if damaged and at[row] - at[begin] <= LONGEST_GAP:
            table[row] = np.nan  # left out, as by `increase.follow`
            continue
        if not damaged:
            pairs.append((begin, row, reset))
        if reset:
            table[row], counts = np.nan_to_num(table[row]), [0.0] * len(counts)
        begin, counts = row, [old if math.isnan(new) else new for new, old in zip(now, counts, strict=True)]
    start, ends, restarted = np.array(pairs, np.intp).reshape(-1, 3).T
    last = np.maximum.accumulate(np.where(np.isnan(table), 0, np.arange(len(table))[:, None]), axis=0)
    filled = np.nan_to_num(table[last, np.arange(table.shape[1])])
    begins, shown = at[start], filled[:, gauges]
    rises = filled[ends] - np.where(restarted[:, None] > 0, 0.0, filled[start])
    rises[:, len(GAUGES) :] = np.maximum(0.0, rises[:, len(GAUGES) :])
    if starts and _is_new(table[0], rises):
        # It started within the recording: all that it counts came since.
        rises = np.concatenate((table[:1], rises))
        begins, ends = np.append(at[0] - usual, begins), np.append(0, ends)
    waiting, running = shown[ends].T
    return np.column_stack((begins, at[ends], running, waiting, rises))
