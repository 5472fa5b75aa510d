from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from typing import Any

import pytest
import yaml

from servingpool.adapters.cluster.objects import TargetKey
from servingpool.api.serving_pool import ServingPool
from servingpool.cli.suggest import _past
from servingpool.decision.observation import Histogram, ReplicaMetrics
from servingpool.recording.format import Chunk
from servingpool.recording.suggestion import Attained, Facts, Past, attained, manifest, past

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
    past=Past({"ttft": Attained(0.75, 0.981, 12_345.0, 1.0), "tpot": Attained(0.05, 0.99, 12_345.0, None)}),
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


@pytest.mark.parametrize("name", ["123", "true", "null", "0x1f", "2026-01-01", "llama"])
def test_a_name_stays_a_text(name: str) -> None:
    """Kubernetes allows all of these, and YAML reads most as something else."""
    pool = yaml.safe_load(manifest(replace(FACTS, name=name, namespace=name)))
    assert [pool["metadata"]["name"], pool["metadata"]["namespace"], pool["spec"]["targets"][0]["name"]] == [name] * 3


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
    assert "its schedule (cron) is not taken over; write it as spec.schedules" in text


REDIS = {"type": "redis", "metadata": {"listName": "nightly"}}
WAITS = 'sum(redis_key_size{key="nightly"}) or (0 * max(redis_up == 1))'
KAFKA = {"type": "kafka", "metadata": {"topic": "t", "consumerGroup": "g"}}
LAG = 'sum(kafka_consumergroup_lag{consumergroup="g", topic="t"})'
VLLM = {"type": "prometheus", "metadata": {"query": "sum(vllm:num_requests_waiting)"}}


@pytest.mark.parametrize(
    ("triggers", "query"),
    [
        ([REDIS, {"type": "cron"}], WAITS),
        ([REDIS, KAFKA], f"({WAITS}) + ({LAG})"),
        ([{"type": "prometheus", "metadata": {"query": "sum(my_backlog)"}}], "sum(my_backlog)"),
        ([VLLM], None),
        ([REDIS, VLLM], None),
    ],
)
def test_triggers_on_a_brokers_backlog_make_a_batch_pool_unless_another_tells_that_people_wait(
    triggers: list[dict[str, Any]], query: str | None
) -> None:
    spec = {"maxReplicaCount": 6, "triggers": triggers}
    text = manifest(replace(FACTS, autoscalers=({**SCALED_OBJECT, "spec": spec},)))
    batch, target = (pool := ServingPool.read(yaml.safe_load(text)).spec).batch, pool.targets[0]
    assert (None if batch is None else batch.backlog.query, target.min) == (query, 0 if query else 1)
    assert ("scale to zero is lost" in text) == (query is None)
    assert ("If nobody waits," in " ".join(text.split("\n# "))) == (triggers == [REDIS, VLLM])


def test_nothing_known_gives_a_valid_pool_that_says_so() -> None:
    bare = replace(FACTS, autoscalers=(), past=Past({}), starts=(), price=None, gpus=0, drain="", missing=())
    text = manifest(bare)
    pool = ServingPool.read(yaml.safe_load(text))
    assert (pool.spec.targets[0].min, pool.spec.targets[0].max) == (1, 6)
    assert commented(text, "timeToFirstToken").startswith("Assumed. Prometheus shows too few requests in 7d")
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


def looks(hours: list[float], waiting: list[float]) -> Chunk:
    """A pod that serves 1,000 requests an hour, within half a second unless requests queue."""
    samples, fast, all_ = [], 0.0, 0.0
    for hour, queue in zip(hours, waiting, strict=True):
        histogram = Histogram((0.5, 1.0, 5.0), (fast, fast, all_), 0.0, all_)
        samples.append(
            ReplicaMetrics(
                "llama-1",
                3600.0 * hour,
                running=100.0,
                waiting=queue,
                time_to_first_token=histogram,
                time_per_output_token=histogram,
            )
        )
        all_ += 1000.0
        fast += 0.0 if queue > 10.0 else 1000.0
    return Chunk.of(0.0, 3600.0 * hours[-1], samples)


def test_an_overloaded_fleet_makes_no_slo() -> None:
    """What it attains, 5 s here, is what the overload made, and not what users need."""
    calm = past(looks([*range(11)], [0.0] * 11), 3600.0)
    assert calm.overloaded == 0.0
    assert calm.attained["ttft"] == Attained(0.5, 1.0, 10_000.0, 1.0)
    assert not calm.doubts
    once = past(looks([*range(30)], [0.0] * 28 + [50.0, 0.0]), 3600.0)
    assert once.attained["ttft"] == Attained(0.5, 1.0, 27_000.0, 1.0), "an hour under overload is left out"
    text = manifest(replace(FACTS, past=once))
    assert "Requests queued at 3% of the scrapes, which are left out." in commented(text, "timeToFirstToken")
    always = past(looks([*range(11)], [0.0, 0.0, 0.0] + [90.0] * 8), 3600.0)
    text = manifest(replace(FACTS, past=always))
    assert "timeToFirstToken: 2500ms\n" in text, "an assumption, and not the 5 s of the overload"
    assert commented(text, "timeToFirstToken").startswith("Assumed. Requests queued at 73% of the scrapes")
    assert "Ask again after a day in which hardly a request queued." in commented(text, "timeToFirstToken")


WEEK = 604_800.0


class Young:
    """A Prometheus with so many seconds of a pod's scrapes, and a gap in them; it shows the newest of five minutes."""

    def __init__(self, length: float, gap: range = range(0)) -> None:
        self.times = [at for at in range(int(WEEK - length), int(WEEK) + 1, 15) if int(WEEK) - at not in gap]

    async def history(self, _: Any, *, start: float, end: float, step: float, **__: Any) -> list[tuple[float, Any]]:
        seen = [
            (start + step * n, bisect_right(self.times, start + step * n) - 1) for n in range(round(WEEK / step) + 1)
        ]
        seen = [(at, self.times[n]) for at, n in seen if at <= end and n >= 0 and at - self.times[n] < 300.0]
        return [(at, {("chat", "llama-1"): {"m": scraped(of, (0.0, of, of), of)}}) for at, of in seen]


@pytest.mark.parametrize(
    ("prometheus", "said"),
    [
        (Young(720.0), "The history is 12m long, and a verdict needs 2h: ask again in 1h48m."),
        (Young(36_000.0, range(7200, 18_000)), "Data are missing for 2h"),
    ],
)
async def test_too_little_history_gives_a_band_and_when_to_ask_again(prometheus: Any, said: str) -> None:
    """Of 12 minutes "3.06s" was told: the looks were an hour apart."""
    found = await _past(TargetKey("chat", "llama"), ("vllm", "m"), prometheus, WEEK, WEEK)
    text = manifest(replace(FACTS, past=found))
    assert "timeToFirstToken: 2500ms\n" in text
    comment = commented(text, "timeToFirstToken")
    assert said in comment
    assert "So far the bound seems to lie between 1s and 2500ms." in comment
