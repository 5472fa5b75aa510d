"""What a pool said and what stood while its traffic ran, sample by sample, to be held against what its clients saw."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from servingpool_lab.api_client import ApiError

from .cluster import Cluster
from .pools import status

EVERY = 2.0
"""Seconds between two samples."""
HOUR = 3600.0
"""Seconds that the status' attainment and SLOMet are about."""


@dataclass(frozen=True)
class Sample:
    """One look at a pool. Times are Unix seconds."""

    at: float
    replicas: int
    """Asked for."""
    ready: int
    status: dict[str, Any]

    @property
    def slo_met(self) -> str:
        """Status of the condition; empty before there is one."""
        return next((one["status"] for one in self.status.get("conditions", []) if one["type"] == "SLOMet"), "")


class Recorder:
    """Samples a pool in a thread from the moment it is made until `stop`."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster, self._name = cluster, name
        self._stopped = threading.Event()
        self.samples: list[Sample] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> list[Sample]:
        """No more samples; those there are."""
        self._stopped.set()
        self._thread.join(30)
        return self.samples

    def lines(self) -> str:
        """The samples as JSON lines, without the learned profile."""
        return "".join(json.dumps(asdict(sample)) + "\n" for sample in self.samples)

    def _run(self) -> None:
        while not self._stopped.wait(EVERY):
            try:
                self.samples.append(self._sample())
            except (ApiError, OSError, KeyError):  # an API server that is away, or a namespace that goes
                continue

    def _sample(self) -> Sample:
        deployment = self._cluster.deployment(self._name, self._name)
        found = status(self._cluster, self._name, self._name)
        found.pop("profile", None)
        ready = int(deployment["status"].get("readyReplicas", 0))
        return Sample(time.time(), int(deployment["spec"]["replicas"]), ready, found)


@dataclass(frozen=True)
class Answer:
    """What became of one request. Unix seconds."""

    known_at: float
    """From when on anybody could say whether it met the SLO."""
    good: bool


def answers(requests: Iterable[dict[str, Any]], begun_at: float, ttft: float, tpot: float) -> list[Answer]:
    """Those requests of a load generator that have ended, by the time at which their fate was known."""
    found = [_answer(one, begun_at, ttft, tpot) for one in requests if one["outcome"] is not None]
    return sorted(found, key=lambda answer: answer.known_at)


def _answer(one: dict[str, Any], begun_at: float, ttft: float, tpot: float) -> Answer:
    in_time = one["ttft"] is not None and one["ttft"] <= ttft
    good = one["outcome"] == "ok" and in_time and (one["tpot"] is None or one["tpot"] <= tpot)
    # Nobody has to wait for the last token to know that the first one is late.
    known = one["ended"] if in_time else min(one["ended"], one["scheduled"] + ttft)
    return Answer(begun_at + known, good)


def attained(known: Iterable[Answer], at: float, seconds: float = HOUR) -> float | None:
    """Percent of the requests that were good, of those whose fate became known in the `seconds` before `at`."""
    told = [answer.good for answer in known if at - seconds < answer.known_at <= at]
    return 100.0 * sum(told) / len(told) if told else None


def false_claim(samples: Sequence[Sample], known: Sequence[Answer], floor: float) -> float:
    """The longest time in seconds for which SLOMet was True while less than `floor` percent of the last hour was good."""
    longest, since = 0.0, None
    for sample in samples:
        share = attained(known, sample.at)
        if sample.slo_met == "True" and share is not None and share < floor:
            since = sample.at if since is None else since
            longest = max(longest, sample.at - since)
        else:
            since = None
    return longest


def over_ordered(samples: Sequence[Sample], cold_start: float) -> list[str]:
    """Orders of more than twice the replicas that were Ready within the cold start before, plus four; as text."""
    found = []
    for before, sample in pairwise(samples):
        stood = max(one.ready for one in samples if sample.at - cold_start <= one.at <= sample.at)
        if sample.replicas > before.replicas and sample.replicas > 2 * stood + 4:
            found.append(f"{before.replicas} -> {sample.replicas} where {stood} were ready")
    return found
