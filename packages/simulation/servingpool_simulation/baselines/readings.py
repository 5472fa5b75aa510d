"""What a baseline's queries would return."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from servingpool.decision.increase import risen
from servingpool.decision.observation import Histogram, Observation, Reading, ReplicaMetrics, Unknown

Pages = dict[str, ReplicaMetrics]
"""By the replica's name; those without a fresh scrape are not in it."""


def pages(observation: Observation) -> Pages:
    """None where the whole reading failed: a query over series that are not there returns nothing."""
    return {} if isinstance(observation.metrics, Unknown) else {m.replica: m for m in observation.metrics}


def gauges(observation: Observation, name: str) -> dict[str, float]:
    """The gauge of each replica that shows it."""
    found = {replica: getattr(metrics, name) for replica, metrics in pages(observation).items()}
    return {replica: value for replica, value in found.items() if not isinstance(value, Unknown)}


def total(observation: Observation, name: str) -> Reading:
    """`sum(...)` of a gauge: what Prometheus has, a missing pod is not made up for."""
    if isinstance(observation.metrics, Unknown):
        return observation.metrics
    values = gauges(observation, name)
    return math.fsum(values.values()) if values else Unknown(f"no replica exposes {name}")


def or_zero(reading: Reading) -> float:
    """`or vector(0)`, and KEDA's `ignoreNullValues`: nothing reads as idle."""
    return 0.0 if isinstance(reading, Unknown) else reading


@dataclass(slots=True)
class History:
    """Pages of the last `seconds`: what `increase()` and `rate()` over that range work on."""

    seconds: float
    kept: deque[tuple[float, Pages]] = field(default_factory=deque)
    _born: dict[str, float] = field(default_factory=dict, init=False)
    """When each of the ready replicas became so, Unix seconds."""

    def add(self, now: float, observation: Observation) -> None:
        """One look."""
        self._born = {replica.name: now - (replica.ready_for or 0.0) for replica in observation.ready}
        self.kept.append((now, pages(observation)))
        while self.kept[0][0] < now - self.seconds:
            self.kept.popleft()

    def increases(self, counter: str) -> dict[str, float]:
        """How much the counter of each replica grew over the range."""
        found = {}
        for replica, metrics in self.newest.items():
            new, old = getattr(metrics, counter), getattr(self._first(replica), counter)
            if not isinstance(new, Unknown) and not isinstance(old, Unknown):
                found[replica] = (old, new)
        before, now = np.array(list(found.values())).reshape(-1, 2).T[:, :, None]
        return dict(zip(found, risen(before, now)[0][:, 0].tolist(), strict=True))

    def increase(self, counter: str) -> float:
        """The fleet's; 0 of nothing."""
        return math.fsum(self.increases(counter).values())

    def rates(self, counter: str) -> dict[str, float]:
        """A second, between the first and the last scrape of each replica that the range holds."""
        found = {}
        for replica, increase in self.increases(counter).items():
            span = self.newest[replica].scraped_at - self._first(replica).scraped_at
            if span > 0:
                found[replica] = increase / span
        return found

    def observed(self, name: str) -> Histogram:
        """What a histogram counted over the range, the fleet's sum; empty without anything."""
        return added(self.observed_each(name).values())

    def observed_each(self, name: str) -> dict[str, Histogram]:
        """The same of each replica that shows it."""
        found = {}
        for replica, metrics in self.newest.items():
            new: Histogram | Unknown = getattr(metrics, name)
            old: Histogram | Unknown = getattr(self._first(replica), name)
            if not isinstance(new, Unknown) and not isinstance(old, Unknown):
                before, now = (np.array([[one.total, one.count, *one.counts]]) for one in (old, new))
                seconds, count, *counts = risen(before, now)[0][0].tolist()
                found[replica] = Histogram(new.bounds, tuple(counts), seconds, count)
        return found

    def mean_prompt(self) -> float:
        """Tokens, of the requests with their first token in the range; 0 without any."""
        requests = self.observed("time_to_first_token").count
        return self.increase("prompt_tokens") / requests if requests > 0 else 0.0

    def mean_output(self) -> float:
        """Tokens for each request that finished in the range; 0 without any."""
        finished = self.observed("time_per_output_token").count
        return self.increase("generation_tokens") / finished if finished > 0 else 0.0

    @property
    def newest(self) -> Pages:
        """The last look."""
        return self.kept[-1][1] if self.kept else {}

    def _first(self, replica: str) -> ReplicaMetrics:
        """Its oldest page in the range. An engine that became ready within it counted from 0 then."""
        born = self._born.get(replica, -math.inf)
        if born >= self.kept[0][0]:
            return _newborn(self.newest[replica], born)
        return next(looked[replica] for _, looked in self.kept if replica in looked)


def _newborn(page: ReplicaMetrics, at: float) -> ReplicaMetrics:
    """The page as it was when the engine became ready: the same series, all at 0."""
    zeros: dict[str, Any] = {}
    for each in fields(page):
        match getattr(page, each.name):
            case float() | int():
                zeros[each.name] = 0.0
            case Histogram() as histogram:
                zeros[each.name] = Histogram(histogram.bounds, (0.0,) * len(histogram.bounds), 0.0, 0.0)
    return replace(page, **(zeros | {"scraped_at": at}))


def added(histograms: Iterable[Histogram]) -> Histogram:
    """Their sum; empty of none. All have the same bounds."""
    each = list(histograms)
    bounds = each[-1].bounds if each else ()
    counts = [0.0] * len(bounds)
    for one in each:
        counts = [sofar + more for sofar, more in zip(counts, one.counts, strict=True)]
    return Histogram(bounds, tuple(counts), sum(one.total for one in each), sum(one.count for one in each))


def histogram_quantile(quantile: float, histogram: Histogram) -> float:
    """As PromQL's: linear within a bucket, the largest finite bound beyond; 0 without observations."""
    if histogram.count <= 0:
        return 0.0
    rank = quantile * histogram.count
    lower, below = 0.0, 0.0
    for bound, count in zip(histogram.bounds, histogram.counts, strict=True):
        if count >= rank:
            return lower + (bound - lower) * (rank - below) / (count - below)
        lower, below = bound, count
    return histogram.bounds[-1]
