"""Real llama-server pods behind a real router under another's load generator: its table, beside what the status says.

llama-server counts no requests and has no histogram, so arrivals are the router's, and TTFT in the status an estimate.
"""

from __future__ import annotations

import os

import pytest

from ..vllm.installation import Unavailable  # noqa: TID252, tests are no package of an installed name
from . import llama_server, real_course
from .cluster import Cluster
from .images import ROOT, build_real_llamacpp
from .pools import message
from .prometheus import PrometheusRelease
from .real_course import aiperf_python
from .real_llamacpp import IMAGE, LlamaScene
from .results import Results

pytestmark = pytest.mark.llamacpp
ALONE = True
SCENE = LlamaScene(
    "llama",
    os.environ.get("E2E_LLAMACPP_RATES", "0.4x90,2.2x180,0.4x90"),
    maximum=3,
    ttft=1.0,
    tpot=0.2,
    attainment=90.0,
    patience=120.0,
    prompt=128,
    output=80,
    # power_of_two counts no request while there is one engine.
    policy="round_robin",
    behavior={"calibration": "60s", "coldStart": "20s", "scaleDownWindow": "40s"},
)
NAMESPACES = (SCENE.name,)
COUNTED = 0.99
"""Requests of aiperf that the router's counter has at least: of 443 the last scrape had 442."""
TPOT_APART = 0.02
"""Seconds between the means of aiperf and of the engines' counters."""
APART = 10.0
"""Points between attainment in the status and the client's: each request's wait is estimated from queues seen every
5 s, and its prefill is taken for the mean."""
APART_MEANWHILE = 20.0
"""The same at each status that is new: it is up to two scrapes and a turn of the operator older than what clients know."""
CLAIM_SECONDS = 60.0
"""SLOMet must not be True for so long while clients are below the SLO by more points than `CLAIM_BELOW`."""


def require() -> None:
    """The engine, built where it is not there; skips with the reason where it cannot be."""
    try:
        llama_server.binary()
        aiperf_python()
    except Unavailable as lacking:
        pytest.skip(f"no real llama-server under aiperf: {lacking}")


@pytest.mark.timeout(1800)
def test_real_llama_server_is_scaled_and_judged_as_aiperf_saw_it(
    cluster: Cluster, prometheus: PrometheusRelease, results: Results
) -> None:
    real_course.prepare(
        cluster, results, SCENE, lambda: build_real_llamacpp(IMAGE, llama_server.binary(), aiperf_python())
    )
    course = real_course.run(cluster, results, SCENE, ROOT / "build" / "e2e" / "real-llamacpp" / "model")
    engine, summary, turns = engines(prometheus), course.summary, course.turns
    results.add(scenario="the engines' and the router's counters", **engine)
    assert (turns[0], max(turns), turns[-1]) == (SCENE.minimum, SCENE.maximum, SCENE.minimum)
    assert not any(record.failed for record in course.records)
    assert engine["requests"] >= COUNTED * len(course.records)
    assert abs(summary["inter_token_latency"] / 1e3 - engine["tpot_mean"]) < TPOT_APART
    assert course.judged is not None
    assert abs(course.judged - course.good) < APART
    assert course.points_apart < APART_MEANWHILE
    assert course.claimed < CLAIM_SECONDS
    assert "time to first token" in message(cluster, SCENE.name, SCENE.name, "SLOMet")


def engines(prometheus: PrometheusRelease) -> dict[str, float]:
    """Of all pods that there were, from their last pages; requests as the router counted them, each try."""

    def total(metric: str) -> float:
        value = prometheus.value(f'sum(max_over_time({metric}{{namespace="{SCENE.name}"}}[1h]))')
        assert value is not None, metric
        return value

    return {
        "requests": total("vllm_router_processed_requests_total"),
        "tpot_mean": total("llamacpp:tokens_predicted_seconds_total") / total("llamacpp:tokens_predicted_total"),
    }
