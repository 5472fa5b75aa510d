"""What a tick costs: CPU of this process by part, wall time, memory, traffic, writes."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ParamSpec, TypeVar

import psutil

P = ParamSpec("P")
T = TypeVar("T")
MIB = 2**20


@dataclass(frozen=True, slots=True)
class Sample:
    """One tick."""

    cpu: float
    """Seconds of CPU of this process, all threads."""
    wall: float
    parts: Mapping[str, float]
    """Seconds of CPU by part; `other` is the rest."""
    rss: float
    """MiB after it."""
    queries: int
    received: int
    """Bytes of replies, decompressed."""
    compressed: int
    """Bytes of replies on the wire."""
    writes: Mapping[str, int]
    decided: int
    scaled: int
    pods: int


@dataclass(slots=True)
class Meter:
    """CPU seconds by part. Where parts overlap, as coroutines that wait do, the one that began last is charged."""

    spent: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    _open: list[str] = field(default_factory=list)
    _charged: float = 0.0
    """CPU seconds of this process up to which all is charged."""

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        self._charge()
        self._open.append(name)
        try:
            yield
        finally:
            self._charge()
            self._open.remove(name)

    def _charge(self) -> None:
        now = time.process_time()
        if self._open:
            self.spent[self._open[-1]] += now - self._charged
        self._charged = now

    def timed(self, name: str, function: Callable[P, T]) -> Callable[P, T]:
        def measured(*args: P.args, **kwargs: P.kwargs) -> T:
            with self.part(name):
                return function(*args, **kwargs)

        return measured

    def take(self, total: float) -> dict[str, float]:
        """What was spent since the last take, of `total` seconds."""
        parts = dict(self.spent)
        self.spent.clear()
        return parts | {"other": total - sum(parts.values())}


def rss() -> float:
    """MiB."""
    return psutil.Process().memory_info().rss / MIB


def summary(samples: Sequence[Sample]) -> dict[str, Any]:
    """Medians of what is spent, means of what is counted."""

    def mean(read: Callable[[Sample], float]) -> float:
        return round(statistics.fmean(read(sample) for sample in samples), 2)

    def median(read: Callable[[Sample], float]) -> float:
        return round(statistics.median(read(sample) for sample in samples), 4)

    names = sorted({name for sample in samples for name in sample.parts})
    decided = mean(lambda s: s.decided)
    cpu = median(lambda s: s.cpu)
    return {
        "ticks": len(samples),
        "pods": samples[-1].pods,
        "cpu_seconds": cpu,
        "cpu_seconds_worst": round(max(sample.cpu for sample in samples), 4),
        "wall_seconds": median(lambda s: s.wall),
        "cpu_seconds_by_part": {name: median(lambda s, n=name: s.parts.get(n, 0.0)) for name in names},  # type: ignore[misc]
        "cpu_milliseconds_per_pool": round(1000 * cpu / decided, 3) if decided else None,
        "decisions_per_second": round(decided / cpu) if cpu else None,
        "rss_mib": round(max(sample.rss for sample in samples), 1),
        "queries": mean(lambda s: s.queries),
        "received_mib": round(mean(lambda s: s.received) / MIB, 2),
        "received_compressed_mib": round(mean(lambda s: s.compressed) / MIB, 2),
        **{f"{kind}_writes": mean(lambda s, k=kind: s.writes[k]) for kind in samples[0].writes},  # type: ignore[misc]
    }


def plain(sample: Sample) -> dict[str, Any]:
    return asdict(sample)
