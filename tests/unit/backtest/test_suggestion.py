from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from servingpool.api.serving_pool import ServingPool
from servingpool.decision.observation import Histogram, ReplicaMetrics
from servingpool.recording.format import Chunk
from servingpool.recording.suggestion import Attained, Facts, attained, manifest

HPA = {
    "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "llama-hpa", "namespace": "chat"},
    "spec": {
        "minReplicas": 2,
        "maxReplicas": 9,
        "metrics": [{"type": "Pods", "pods": {"metric": {"name": "vllm:num_requests_running"}}}],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 300}},
    },
}
SCALED_OBJECT = {
    "kind": "ScaledObject",
    "metadata": {"name": "llama", "namespace": "chat"},
    "spec": {"minReplicaCount": 0, "maxReplicaCount": 6, "triggers": [{"type": "prometheus"}, {"type": "cron"}]},
}
FACTS = Facts(
    namespace="chat",
    name="llama",
    replicas=3,
    gpus=4,
    engine="vllm",
    model="org/llama: 3",
    origin="From the metrics of 3 pods.",
    backend="default",
    attained={"ttft": Attained(0.75, 0.981, 12_345.0, 1.0), "tpot": Attained(0.05, 0.99, 12_345.0, None)},
    span="7d",
    autoscalers=(HPA,),
    starts=(80.0, 95.0, 130.0),
    price=(12.0, "From the node label servingpool.dev/dollars-per-gpu-hour, for 4 GPUs."),
    drain="There is no preStop sleep.",
    missing=("queueTime",),
)


def commented(text: str, field: str) -> str:
    """The comment above a field."""
    lines = text.splitlines()
    place = next(index for index, line in enumerate(lines) if line.strip().startswith(f"{field}:"))
    above: list[str] = []
    while lines[place - 1].strip().startswith("#"):
        place -= 1
        above.insert(0, lines[place].strip(" #"))
    return " ".join(above)


def test_each_line_says_where_it_comes_from() -> None:
    text = manifest(FACTS)
    pool = ServingPool.read(yaml.safe_load(text))
    target = pool.spec.targets[0]
    assert (pool.spec.model, pool.spec.mode, target.min, target.max) == ("org/llama: 3", "Recommend", 2, 9)
    assert (target.gpus_per_replica, target.cost_per_replica_hour) == (4, 12.0)
    assert (pool.spec.slo.time_to_first_token, pool.spec.slo.time_per_output_token) == (0.75, 0.05)
    assert pool.spec.behavior.cold_start == 130.0
    assert commented(text, "min") == commented(text, "max") == "From HorizontalPodAutoscaler llama-hpa."
    assert "98.1% of 12,345 requests in the last 7d" in commented(text, "timeToFirstToken")
    assert "The next bucket is 1s" in commented(text, "timeToFirstToken")
    assert "node label" in commented(text, "costPerReplicaHour")


def test_bounds_are_written_as_people_write_them() -> None:
    text = manifest(replace(FACTS, attained={"ttft": Attained(2.5, 0.98, 500.0, 7.5), "tpot": None}))
    assert "timeToFirstToken: 2500ms\n" in text
    assert "The next bucket is 7500ms" in commented(text, "timeToFirstToken")
    assert "timePerOutputToken: 100ms\n" in text


def test_it_says_what_is_lost_and_what_is_missing() -> None:
    text = manifest(FACTS)
    assert "`servingpool adopt` deletes it, and `servingpool release` gives it back" in " ".join(text.split("\n# "))
    assert "its metrics (vllm:num_requests_running) are replaced by the SLO" in text
    assert "its behavior (scaleDown) is lost" in text
    assert "Before a scale-down: There is no preStop sleep." in text
    assert "Prometheus lacks, and decisions need: queueTime" in text


def test_a_scaled_object_loses_zero_and_its_schedule() -> None:
    text = manifest(replace(FACTS, autoscalers=(SCALED_OBJECT,)))
    target = ServingPool.read(yaml.safe_load(text)).spec.targets[0]
    assert (target.min, target.max) == (1, 6)
    assert "scale to zero is lost; min is 1" in text
    assert "its schedule (cron) is not taken over; write it as spec.schedules" in text


def test_nothing_known_gives_a_valid_pool_that_says_so() -> None:
    bare = replace(FACTS, autoscalers=(), attained={}, starts=(), price=None, gpus=0, drain="", missing=())
    text = manifest(bare)
    pool = ServingPool.read(yaml.safe_load(text))
    assert (pool.spec.targets[0].min, pool.spec.targets[0].max) == (1, 6)
    assert commented(text, "timeToFirstToken").startswith("Assumed: Prometheus shows too few requests in 7d")
    assert "set costPerReplicaHour" in text


def scraped(at: float, within: tuple[float, ...], count: float, pod: str = "llama-1") -> ReplicaMetrics:
    histogram = Histogram((0.5, 1.0, 2.5), within, 0.0, count)
    return ReplicaMetrics(pod, at, time_to_first_token=histogram, time_per_output_token=histogram)


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        # 980 of 1,000 were within 1 s, 900 within half a second.
        ([scraped(0, (5, 9, 9), 10), scraped(3600, (905, 989, 1009), 1010)], (1.0, 0.98, 1000.0, 2.5)),
        # It restarted: what it counts anew is added.
        (
            [scraped(0, (0, 0, 0), 0), scraped(3600, (300, 300, 300), 300), scraped(7200, (100, 100, 100), 100)],
            (0.5, 1.0, 400.0, 1.0),
        ),
        ([scraped(0, (0, 0, 0), 0), scraped(3600, (9, 9, 9), 10)], None),
        ([scraped(0, (0, 0, 0), 0), scraped(3600, (100, 200, 300), 1000)], None),
    ],
)
def test_the_slo_is_the_lowest_bucket_that_held(samples: list[ReplicaMetrics], expected: Any) -> None:
    found = attained([Chunk.of(0.0, 7200.0, samples)])
    assert found["ttft"] == (None if expected is None else Attained(*expected))
