"""What the engines of all pods count under a traffic that moves: Poisson arrivals on slow and fast waves."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from servingpool_simulation.page import bounds

Floats = NDArray[np.float64]

BASE, PER_REQUEST, PER_PREFILL_TOKEN = 0.016, 0.00008, 0.00007
PROMPT, OUTPUT = 1000, 200
WORK = PER_REQUEST * OUTPUT + PER_PREFILL_TOKEN * PROMPT
"""Replica-seconds of a request."""
LOADS = (0.2, 0.45)
"""Mean load of a pool's replicas at its first size, least and most: an SLO of 95% holds there."""
SCRAPE = 15.0
REMEMBERED = 3600.0
REMEMBERED_STEP = 60.0
HISTOGRAMS = ("time_to_first_token_seconds", "inter_token_latency_seconds", "request_time_per_output_token_seconds")
BOUNDS = {name: np.array(bounds(32768)[name]) for name in HISTOGRAMS}
GAUGES = ("vllm:num_requests_running", "vllm:num_requests_waiting")
STEEPNESS = 5.0
"""Of the log-logistic latencies: a replica at load 0.45 has 0.2% of first tokens beyond 1 s."""


class Series(NamedTuple):
    """One column of all pages: a name, the bucket's bound where it is one, and one value a replica."""

    name: str
    le: str | None
    values: Floats


class Traffic:
    """Cumulative figures per replica. A pool has `slots` places for replicas, taken or not."""

    def __init__(self, pools: int, replicas: int, slots: int, *, seed: int, begin: float) -> None:
        """An hour of it has gone by at `begin` (Unix seconds)."""
        self._random = np.random.default_rng(seed)
        self._shape = (pools, slots)
        self._usual = self._random.uniform(*LOADS, pools) / WORK * replicas
        self._phase = self._random.uniform(0.0, 2 * np.pi, (2, pools))
        self.scrape_lag: Floats = np.repeat(self._random.uniform(0.0, SCRAPE, pools * slots), 1)
        self.serving = np.zeros(self._shape, bool)
        self.serving[:, :replicas] = True
        self.share = 1.0
        """Of the usual traffic."""
        self._sums = {
            name: np.zeros(self._shape) for name in ("requests", "ttft_seconds", "itl_seconds", "tpot_seconds")
        }
        self._buckets = {name: np.zeros((*self._shape, len(BOUNDS[name]))) for name in (HISTOGRAMS[0], HISTOGRAMS[2])}
        self._gauges = {name: np.zeros(self._shape) for name in ("running", "waiting")}
        self.past: deque[tuple[float, list[Series]]] = deque(maxlen=int(REMEMBERED / REMEMBERED_STEP) + 1)
        self.now = begin - REMEMBERED - REMEMBERED_STEP
        while self.now < begin:
            self.advance(min(begin, self.now + REMEMBERED_STEP))

    def replace(self, slot: tuple[int, int]) -> None:
        """A new replica takes a place: its engine has counted nothing."""
        for figures in (*self._sums.values(), *self._buckets.values(), *self._gauges.values()):
            figures[slot] = 0.0

    def advance(self, to: float) -> None:
        """Let requests come until `to` (Unix seconds)."""
        elapsed, self.now = to - self.now, to
        waves = (
            1.0
            + 0.2 * np.sin(2 * np.pi * to / 3600 + self._phase[0])
            + 0.1 * np.sin(2 * np.pi * to / 300 + self._phase[1])
        )
        each = (self._usual * waves * self.share / np.maximum(self.serving.sum(axis=1), 1))[:, None] * self.serving
        load = np.minimum(each * WORK, 0.9)
        came = self._random.poisson(each * elapsed).astype(float)
        step, first = BASE / (1.0 - load), 0.15 / (1.0 - load)
        self._sums["requests"] += came
        self._sums["ttft_seconds"] += came * first
        self._sums["itl_seconds"] += came * OUTPUT * step
        self._sums["tpot_seconds"] += came * step
        for name, median in ((HISTOGRAMS[0], first), (HISTOGRAMS[2], step)):
            within = 1.0 / (1.0 + (median[..., None] / BOUNDS[name]) ** STEEPNESS)
            self._buckets[name] += came[..., None] * within
        self._gauges["running"] = np.floor(each * OUTPUT * step)
        self._gauges["waiting"] = self._random.poisson(load * 0.1).astype(float)
        if not self.past or to - self.past[-1][0] >= REMEMBERED_STEP:
            self.past.append((to, self.series()))

    def series(self) -> list[Series]:
        """Every column as of now, with a value for each place."""
        requests = self._sums["requests"]
        plain = {
            "num_requests_running": self._gauges["running"],
            "num_requests_waiting": self._gauges["waiting"],
            "generation_tokens_total": requests * OUTPUT,
            "prompt_tokens_total": requests * PROMPT,
            "prompt_tokens_by_source_total": np.zeros(self._shape),
            "request_success_total": requests,
            "admission_rejections_total": np.zeros(self._shape),
            "num_preemptions_total": np.zeros(self._shape),
        }
        counts = (requests, requests * OUTPUT, requests)
        totals = (self._sums["ttft_seconds"], self._sums["itl_seconds"], self._sums["tpot_seconds"])
        for name, count, total in zip(HISTOGRAMS, counts, totals, strict=True):
            plain |= {f"{name}_count": count, f"{name}_sum": total}
        found = [Series(f"vllm:{name}", None, values.ravel().copy()) for name, values in plain.items()]
        for name, counted in self._buckets.items():
            found += [
                Series(f"vllm:{name}_bucket", repr(bound), np.floor(counted[..., index]).ravel())
                for index, bound in enumerate(BOUNDS[name].tolist())
            ]
        return found

    def at(self, when: float) -> list[Series]:
        """The columns as they were: counters between two minutes in proportion, gauges as of the minute before.

        To the minute alone, the scrapes of 15 s would show engines that hang for 45 s of each minute.
        """
        earlier = [one for one in self.past if one[0] <= when + 1e-6]
        if not earlier:
            return []
        begin, before = earlier[-1]
        if len(earlier) == len(self.past):
            return before
        end, after = self.past[len(earlier)]
        share = (when - begin) / (end - begin)
        return [
            old if old.name in GAUGES else old._replace(values=old.values + share * (new.values - old.values))
            for old, new in zip(before, after, strict=True)
        ]
