"""A course of a real engine under aiperf: what aiperf noted, what the status said meanwhile, both as a table."""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

from ..vllm import installation  # noqa: TID252, tests are no package of an installed name
from . import aiperf
from .aiperf import Aiperf, Record, quantile
from .cluster import Cluster, seconds_since
from .real_scene import RealScene
from .results import Results
from .scenes import Scene, percent
from .timeline import Answer, Recorder, Sample, attained, false_claim
from .waiting import eventually

CLAIM_BELOW = 5.0
"""Points below the SLO from which on SLOMet must not be True for long."""
GIVEN_BACK = 900.0
"""Seconds from the last answer until one replica is left. A window of two cold starts comes before each step down, and
where many requests were late a surge of some minutes ago is still provided for."""


@dataclass(frozen=True)
class Course:
    """What came of one."""

    records: Sequence[Record]
    summary: dict[str, float]
    """aiperf's own."""
    samples: Sequence[Sample]
    judged: float | None
    """Attainment by the status after the last answer, in percent."""
    points_apart: float
    """Most between status and clients, whenever the status was new."""
    claimed: float
    """Seconds for which SLOMet was True while clients were below the SLO by more than `CLAIM_BELOW`."""

    @property
    def good(self) -> float:
        """Percent of requests that met the SLO, by aiperf."""
        return 100.0 * self.summary["good_request_fraction"]

    @property
    def turns(self) -> list[int]:
        """Replicas asked for, in turn."""
        return steps(self.samples)


def aiperf_python() -> Path:
    """Of $AIPERF_PYTHON, or of an environment that is installed first.

    Raises:
        Unavailable: it cannot be installed here.
    """
    named = os.environ.get("AIPERF_PYTHON")
    return Path(named) if named else installation.environment("aiperf", aiperf.LOCK, "1.3 GB")


def prepare(cluster: Cluster, results: Results, scene: RealScene, build: Callable[[], None]) -> None:
    """Image, engines, pool and router, each with the time it took."""
    started = time.monotonic()
    build()
    results.add(scenario="image of engine, model and router built", seconds=seconds_since(started))
    started = time.monotonic()
    cluster.load([scene.image])
    results.add(scenario="that image on the node", seconds=seconds_since(started))
    started = time.monotonic()
    scene.create(cluster)
    scene.wait(cluster)
    results.add(scenario="the first engine answers through the router", seconds=seconds_since(started))


def run(cluster: Cluster, results: Results, scene: RealScene, tokenizer: Path) -> Course:
    """The load, and the wait until the fleet is as small as it was."""
    recorder = Recorder(cluster, scene.name)
    course = Aiperf(aiperf_python(), results.folder / "aiperf", scene, scene.url(cluster), tokenizer).start()
    course.wait(sum(seconds for _, seconds in scene.steps) + scene.patience + 120)
    judged = told(recorder.samples)
    with suppress(AssertionError):  # the table first
        eventually(lambda: recorder.samples[-1].replicas == scene.minimum, GIVEN_BACK, "the fleet", every=2.0)
    samples, records, summary = recorder.stop(), course.records(), course.summary()
    results.write("real-timeline.jsonl", recorder.lines())
    for name, part in phases(scene, records).items():
        results.add(scenario=f"aiperf, {name}", **figures(scene, part), **replicas(samples, part))
    results.add(
        scenario="aiperf's own summary",
        outcome=f"replicas {' -> '.join(map(str, steps(samples)))}",
        requests=int(summary["request_count"] + summary.get("error_request_count", 0)),
        lost=int(summary.get("error_request_count", 0)),
        attainment=percent(summary["good_request_fraction"]),
        slo=f"{scene.attainment:g}",
        ttft_mean=summary["time_to_first_token"] / 1e3,
        tpot_mean=summary["inter_token_latency"] / 1e3,
    )
    known = sorted((record.answer(scene.ttft, scene.tpot) for record in records), key=lambda one: one.known_at)
    apart, claim = furthest(samples, known), false_claim(samples, known, scene.attainment - CLAIM_BELOW)
    results.add(
        scenario="the pool's status", attainment=judged, points_apart_at_most_once_fresh=apart, slo_met_wrongly_s=claim
    )
    return Course(records, summary, samples, judged, apart, claim)


def told(samples: Sequence[Sample]) -> float | None:
    """Attainment by the status, in percent."""
    return samples[-1].status.get("attainment") if samples else None


def furthest(samples: Sequence[Sample], known: Sequence[Answer]) -> float:
    """Most points between the attainment of a status that has just changed and that of the clients then."""
    found = [(sample.at, sample.status.get("attainment")) for sample in samples]
    new = [(at, told) for (_, before), (at, told) in pairwise(found) if told is not None and told != before]
    return max((abs(told - (attained(known, at) or 0.0)) for at, told in new), default=0.0)


def steps(samples: Sequence[Sample]) -> list[int]:
    """Replicas asked for, in turn."""
    counts = [sample.replicas for sample in samples]
    return [count for number, count in enumerate(counts) if number == 0 or count != counts[number - 1]]


def phases(scene: Scene, records: Sequence[Record]) -> dict[str, list[Record]]:
    """Requests by the step in which they were sent."""
    ends = list(accumulate(seconds for _, seconds in scene.steps))
    names = [f"{number}. {rate:g}/s for {seconds:g} s" for number, (rate, seconds) in enumerate(scene.steps, 1)]
    found: dict[str, list[Record]] = {name: [] for name in names}
    for record in records:
        found[names[min(bisect_right(ends, record.sent - records[0].sent), len(ends) - 1)]].append(record)
    return found


def figures(scene: Scene, records: Sequence[Record]) -> dict[str, float | int | None]:
    """Columns of a result, as the client saw it."""
    ttft = [record.ttft for record in records if record.ttft is not None]
    tpot = [record.tpot for record in records if record.tpot is not None]
    good = sum(record.good(scene.ttft, scene.tpot) for record in records)
    return {
        "attainment": percent(good / len(records)),
        "requests": len(records),
        "lost": sum(record.failed for record in records),
        "ttft_p50": quantile(ttft, 0.5),
        "ttft_p90": quantile(ttft, 0.9),
        "tpot_p50": quantile(tpot, 0.5),
        "tpot_p90": quantile(tpot, 0.9),
    }


def replicas(samples: Sequence[Sample], records: Sequence[Record]) -> dict[str, str]:
    """Ready replicas while these were sent: the first, and each other number."""
    ready = [sample.ready for sample in samples if records[0].sent <= sample.at <= records[-1].sent]
    return {"ready": " -> ".join(str(n) for i, n in enumerate(ready) if i == 0 or n != ready[i - 1])}
