"""Real engines behind a real router under another's load generator: what its table says, beside what the status says."""

from __future__ import annotations

import ctypes
import os
import time
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate, pairwise
from pathlib import Path

import pytest

from ..vllm import installation  # noqa: TID252, tests are no package of an installed name
from . import aiperf
from .aiperf import Aiperf, Record, quantile
from .cluster import Cluster, seconds_since
from .images import NUMA, ROOT, build_real_vllm
from .prometheus import PrometheusRelease
from .real_vllm import IMAGE, RealScene
from .results import Results
from .scenes import percent
from .timeline import Answer, Recorder, Sample, attained, false_claim
from .waiting import eventually

pytestmark = pytest.mark.vllm
ALONE = True
SCENE = RealScene(
    "real",
    os.environ.get("E2E_REAL_RATES", "0.5x120,1.3x180,2.4x240,0.5x240"),
    maximum=3,
    ttft=1.0,
    tpot=0.1,
    attainment=90.0,
    load_seconds=90.0,
    patience=300.0,
    prompt=128,
    output=80,
    behavior={"calibration": "60s", "coldStart": "90s", "scaleDownWindow": "60s"},
)
NAMESPACES = (SCENE.name,)
TTFT_APART = (-0.005, 0.25)
"""Seconds that the client's mean may be above the engines': the router, and three programs that share two cores."""
TPOT_APART = 0.01
"""Seconds between the means."""
APART = 5.0
"""Points between the attainment in the status and the client's: the bounds are buckets' bounds of the engine, and what
lies within `TTFT_APART` of one is on time for the engine and late for the client."""
APART_MEANWHILE = 10.0
"""The same at each status that is new: it is up to two scrapes and a turn of the operator older than what clients know."""
CLAIM_BELOW, CLAIM_SECONDS = 5.0, 60.0
"""SLOMet must not be True for so long while clients are below the SLO by more points than that."""
GIVEN_BACK = 900.0
"""Seconds from the last answer until one replica is left. A window of two cold starts comes before each step down, and
where many requests were late a surge of some minutes ago is still provided for."""


def require() -> None:
    """Both environments, installed where they are not there; skips with the reason where one cannot be."""
    try:
        installation.python()
        aiperf_python()
        ctypes.CDLL(NUMA)
    except (installation.Unavailable, OSError) as lacking:
        pytest.skip(f"no real vLLM under aiperf: {lacking}")


def aiperf_python() -> Path:
    named = os.environ.get("AIPERF_PYTHON")
    return Path(named) if named else installation.environment("aiperf", aiperf.LOCK, "1.3 GB")


@pytest.mark.timeout(3600)
def test_real_vllm_is_scaled_and_judged_as_aiperf_saw_it(
    cluster: Cluster, prometheus: PrometheusRelease, results: Results
) -> None:
    started = time.monotonic()
    build_real_vllm(IMAGE, installation.python(), aiperf_python())
    results.add(scenario="image of vLLM, model and router built", seconds=seconds_since(started))
    started = time.monotonic()
    cluster.load([IMAGE])
    results.add(scenario="that image on the node", seconds=seconds_since(started))
    started = time.monotonic()
    SCENE.create(cluster)
    SCENE.wait(cluster)
    results.add(scenario="first engine serves behind the router", seconds=seconds_since(started))
    recorder = Recorder(cluster, SCENE.name)
    folder = results.folder / "aiperf"
    tokenizer = ROOT / "build" / "e2e" / "real-vllm" / "model"
    run = Aiperf(aiperf_python(), folder, SCENE, SCENE.url(cluster), tokenizer).start()
    run.wait(sum(seconds for _, seconds in SCENE.steps) + SCENE.patience + 120)
    judged = told(recorder.samples)
    with suppress(AssertionError):  # the table first
        eventually(lambda: recorder.samples[-1].replicas == SCENE.minimum, GIVEN_BACK, "the fleet", every=2.0)
    samples, records, summary = recorder.stop(), run.records(), run.summary()
    results.write("real-timeline.jsonl", recorder.lines())
    for name, part in phases(records).items():
        results.add(scenario=f"aiperf, {name}", **figures(part), **replicas(samples, part))
    engine, turns = engines(prometheus), steps(samples)
    results.add(
        scenario="aiperf's own summary",
        outcome=f"replicas {' -> '.join(map(str, turns))}",
        requests=int(summary["request_count"] + summary.get("error_request_count", 0)),
        lost=int(summary.get("error_request_count", 0)),
        attainment=percent(summary["good_request_fraction"]),
        slo=f"{SCENE.attainment:g}",
        ttft_mean=summary["time_to_first_token"] / 1e3,
        tpot_mean=summary["inter_token_latency"] / 1e3,
    )
    results.add(scenario="the engines' counters", **engine)
    known = sorted((record.answer(SCENE.ttft, SCENE.tpot) for record in records), key=lambda one: one.known_at)
    apart, claim = furthest(samples, known), false_claim(samples, known, SCENE.attainment - CLAIM_BELOW)
    results.add(
        scenario="the pool's status",
        attainment=judged,
        points_apart_at_most_once_fresh=apart,
        slo_met_wrongly_s=claim,
    )
    assert (turns[0], max(turns), turns[-1]) == (SCENE.minimum, SCENE.maximum, SCENE.minimum)
    assert not any(record.failed for record in records)
    assert TTFT_APART[0] < summary["time_to_first_token"] / 1e3 - engine["ttft_mean"] < TTFT_APART[1]
    assert abs(summary["inter_token_latency"] / 1e3 - engine["tpot_mean"]) < TPOT_APART
    assert judged is not None
    assert abs(judged - 100 * summary["good_request_fraction"]) < APART
    assert apart < APART_MEANWHILE
    assert claim < CLAIM_SECONDS


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


def phases(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Requests by the step in which they were sent."""
    ends = list(accumulate(seconds for _, seconds in SCENE.steps))
    names = [f"{number}. {rate:g}/s for {seconds:g} s" for number, (rate, seconds) in enumerate(SCENE.steps, 1)]
    found: dict[str, list[Record]] = {name: [] for name in names}
    for record in records:
        found[names[min(bisect_right(ends, record.sent - records[0].sent), len(ends) - 1)]].append(record)
    return found


def figures(records: Sequence[Record]) -> dict[str, float | int | None]:
    """Columns of a result, as the client saw it."""
    ttft = [record.ttft for record in records if record.ttft is not None]
    tpot = [record.tpot for record in records if record.tpot is not None]
    good = sum(record.good(SCENE.ttft, SCENE.tpot) for record in records)
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


def engines(prometheus: PrometheusRelease) -> dict[str, float]:
    """Of all pods that there were, from their last pages."""

    def total(metric: str) -> float:
        value = prometheus.value(f'sum(max_over_time(vllm:{metric}{{namespace="{SCENE.name}"}}[1h]))')
        assert value is not None, metric
        return value

    def mean(metric: str) -> float:
        return total(f"{metric}_sum") / total(f"{metric}_count")

    return {
        "requests": total("request_success_total"),
        "ttft_mean": mean("time_to_first_token_seconds"),
        "tpot_mean": mean("request_time_per_output_token_seconds"),
    }
