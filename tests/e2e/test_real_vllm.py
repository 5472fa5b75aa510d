"""Real engines behind a real router under another's load generator: what its table says, beside what the status says."""

from __future__ import annotations

import ctypes
import os

import pytest

from ..vllm import installation  # noqa: TID252, tests are no package of an installed name
from . import real_course
from .cluster import Cluster
from .images import NUMA, ROOT, build_real_vllm
from .prometheus import PrometheusRelease
from .real_course import aiperf_python
from .real_vllm import IMAGE, VllmScene
from .results import Results

pytestmark = pytest.mark.vllm
ALONE = True
SCENE = VllmScene(
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
CLAIM_SECONDS = 60.0
"""SLOMet must not be True for so long while clients are below the SLO by more points than `CLAIM_BELOW`."""


def require() -> None:
    """Both environments, installed where they are not there; skips with the reason where one cannot be."""
    try:
        installation.python()
        aiperf_python()
        ctypes.CDLL(NUMA)
    except (installation.Unavailable, OSError) as lacking:
        pytest.skip(f"no real vLLM under aiperf: {lacking}")


@pytest.mark.timeout(3600)
def test_real_vllm_is_scaled_and_judged_as_aiperf_saw_it(
    cluster: Cluster, prometheus: PrometheusRelease, results: Results
) -> None:
    real_course.prepare(cluster, results, SCENE, lambda: build_real_vllm(IMAGE, installation.python(), aiperf_python()))
    course = real_course.run(cluster, results, SCENE, ROOT / "build" / "e2e" / "real-vllm" / "model")
    engine, summary, turns = engines(prometheus), course.summary, course.turns
    results.add(scenario="the engines' counters", **engine)
    assert (turns[0], max(turns), turns[-1]) == (SCENE.minimum, SCENE.maximum, SCENE.minimum)
    assert not any(record.failed for record in course.records)
    assert TTFT_APART[0] < summary["time_to_first_token"] / 1e3 - engine["ttft_mean"] < TTFT_APART[1]
    assert abs(summary["inter_token_latency"] / 1e3 - engine["tpot_mean"]) < TPOT_APART
    assert course.judged is not None
    assert abs(course.judged - course.good) < APART
    assert course.points_apart < APART_MEANWHILE
    assert course.claimed < CLAIM_SECONDS


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
