"""Pages that nobody here wrote, on a real Prometheus: labels of the engine's own, and series that nobody can read."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from typing import Any

from servingpool.adapters.prometheus.diagnosis import Cause
from servingpool.adapters.prometheus.promql import SCRAPING
from servingpool.adapters.prometheus.samples import FleetReading, ReadRequest, with_own_buckets
from servingpool.decision.observation import ReplicaMetrics, Unknown

from .backends import BACKENDS, Serve
from .scrapes import each_second, page_job, past_of, read_when, served

NAMESPACE = "foreign"
LE = ("0.5", "2.0", "+Inf")


def histogram(name: str, labels: str, late: int, count: int, seconds: float) -> str:
    lines = [f'{name}_bucket{{{labels},le="{le}"}} {count - late if le != "+Inf" else count}' for le in LE]
    return "\n".join([*lines, f"{name}_sum{{{labels}}} {seconds}", f"{name}_count{{{labels}}} {count}"]) + "\n"


def vllm(*tenants: tuple[str, int, int, float], gauges: str = "") -> str:
    """A page of vLLM whose request metrics have a label more: the tenant, its requests, those late for 2 s, seconds."""
    text = gauges or 'vllm:num_requests_running{model_name="m"} 30\nvllm:num_requests_waiting{model_name="m"} 12\n'
    for tenant, count, late, seconds in tenants:
        labels = f'model_name="m",tenant="{tenant}"' if tenant else 'model_name="m"'
        text += histogram("vllm:time_to_first_token_seconds", labels, late, count, seconds)
        text += histogram("vllm:inter_token_latency_seconds", labels, 0, 199 * count, 597.0)
        text += f"vllm:generation_tokens_total{{{labels}}} {200 * count}\nvllm:prompt_tokens_total{{{labels}}} {800 * count}\n"
    return text


def sglang(*tenants: tuple[str, int, int, float]) -> str:
    """The same of SGLang with `--tokenizer-metrics-allowed-custom-labels`: the scheduler's metrics have no such label."""
    of = 'engine_type="unified",model_name="m",tp_rank="0"'
    text = f"sglang:num_running_reqs{{{of}}} 30\nsglang:num_queue_reqs{{{of}}} 12\n"
    for mode, count in (("prefill_compute", 216_000), ("prefill_cache", 0), ("decode", 54_000)):
        text += f'sglang:realtime_tokens_total{{mode="{mode}",{of}}} {count}\n'
    for tenant, count, late, seconds in tenants:
        labels = f'model_name="m",tenant="{tenant}",is_streaming="true"'
        text += histogram("sglang:time_to_first_token_seconds", labels, late, count, seconds)
        text += histogram("sglang:inter_token_latency_seconds", labels, 0, 199 * count, 597.0)
    return text


THREE = (("a", 100, 0, 40.0), ("b", 90, 45, 243.0), ("c", 80, 80, 400.0))
PLAIN = vllm(("", 270, 125, 683.0))


def running(label: str, *values: str) -> str:
    """Gauges that have a label more."""
    each = (f'vllm:num_requests_running{{model_name="m",{label}="{value}"}} 30\n' for value in values)
    return "".join(each) + 'vllm:num_requests_waiting{model_name="m"} 12\n'


PAGES = {
    "plain": PLAIN,
    "tenants": vllm(*THREE),
    "gauges": vllm(*THREE, gauges=running("tenant", "a", "b")),
    "processes": vllm(("", 270, 125, 683.0), gauges=running("pid", "7", "8")),
    "sglang": sglang(*THREE),
    "twice": vllm(*THREE),
    "pair": vllm(*THREE),
    "services": vllm(*THREE),
    "shadowed": vllm(*THREE),
    "odd": PLAIN + 'vllm:time_to_first_token_seconds_bucket{model_name="m",le="abc"} 1\n'
    'vllm:time_to_first_token_seconds_bucket{model_name="m",vmrange="1.000e-01...1.136e-01"} 3\n',
    "hostile": PLAIN,
    "native": "".join(
        f"# TYPE vllm:{name} histogram\n" + "".join(line for line in PLAIN.splitlines(True) if name in line)
        for name in ("time_to_first_token_seconds", "inter_token_latency_seconds")
    )
    + "".join(line for line in PLAIN.splitlines(True) if "_seconds" not in line),
}
"""Pods of one namespace."""
READ = PAGES.keys() - {"gauges", "native", "hostile", "sglang"}
"""Those of which every figure is as on the plain page."""


ELSEWHERE = "elsewhere"
CROWDED = PLAIN + "".join(
    f'vllm:time_to_first_token_seconds_bucket{{model_name="m",le="{middle * (1 + step / 100):.4f}"}} 0\n'
    for middle in (1.7, 3.4, 0.85, 6.8, 0.425)
    for step in range(-4, 5)
)


FORGED = {
    ("forgers", f"forger-{label}"): PLAIN + f'vllm:num_requests_running{{model_name="x",{label}="z"}} 30\n'
    for label in (*SCRAPING, "tenant", "job", "instance")
}
"""Pages of another tenant, each with a label by which scraping tells targets apart."""


def configuration(target: str) -> dict[str, Any]:
    job = functools.partial(page_job, target, NAMESPACE)
    jobs = [job(pod) for pod in PAGES if pod not in {"pair", "services", "shadowed", "native", "hostile"}]
    jobs.append(job("twice", "again"))  # a ServiceMonitor and a PodMonitor that match the same pod
    # As after two Prometheus servers wrote to one store; as of two Services in front of a pod.
    for name, label in (("pair", "prometheus_replica"), ("services", "service")):
        one = job(name)
        one["static_configs"] = [
            {"targets": [target], "labels": one["static_configs"][0]["labels"] | {label: value}} for value in "ab"
        ]
        jobs.append(one)
    # Twins that differ in a label which is an engine's own elsewhere: whoever has them must not change those.
    one = job("hostile")
    one["static_configs"] = [
        {"targets": [target], "labels": one["static_configs"][0]["labels"] | {"tenant": value}} for value in "ab"
    ]
    jobs.append(one)
    jobs.append(job("shadowed", tenant="platform", model_name="gpu"))
    jobs += [page_job(target, *pod) for pod in [(ELSEWHERE, "crowded"), *FORGED]]
    lost = job("plain", "lost")  # a target without a namespace
    del lost["static_configs"][0]["labels"]["namespace"]
    native = {"convert_classic_histograms_to_nhcb": True, "scrape_native_histograms": True}
    jobs += [lost, job("native") | native]
    return each_second(jobs)


EXPOSED = {(NAMESPACE, pod): page for pod, page in PAGES.items()} | {(ELSEWHERE, "crowded"): CROWDED} | FORGED
url = served(NAMESPACE, EXPOSED, configuration)


async def read(url: str, engine: str = "vllm") -> FleetReading:
    """A reading with all pods of an engine, by a look-up that saw them all."""
    request = ReadRequest(engine, ttft_bounds=frozenset({2.0}))
    wanted = {"sglang"} if engine == "sglang" else {*(PAGES.keys() - {"sglang"}), "crowded"}
    # Of two targets with one page the second may not be scraped yet: `hostile` can be read until it is.
    read = {"sglang"} if engine == "sglang" else READ | {"native", "crowded"}

    def all_seen(one: FleetReading) -> bool:
        told = {pod for pod in one.samples if pod not in FORGED}
        return wanted <= {pod for _, pod in (*told, *one.causes)} and read == {pod for _, pod in told}

    return await read_when(url, request, all_seen)


def figures(metrics: ReplicaMetrics) -> dict[str, Any]:
    ttft, itl = metrics.time_to_first_token, metrics.inter_token_latency
    assert not isinstance(ttft, Unknown)
    assert not isinstance(itl, Unknown)
    return {
        "requests": ttft.count,
        "late": ttft.count - dict(zip(ttft.bounds, ttft.counts, strict=True))[2.0],
        "seconds": ttft.total,
        "between": itl.count,
        "tokens": (metrics.prompt_tokens, metrics.generation_tokens),
        "gauges": (metrics.running, metrics.waiting),
    }


async def test_a_label_of_the_engines_own_is_added_up_and_one_of_scraping_is_not(url: str) -> None:
    reading = await read(url)
    samples = {one.replica: one for one in reading.select(NAMESPACE, PAGES, "m").samples}
    assert samples.keys() == READ | {"native"}
    samples["sglang"] = (await read(url, "sglang")).samples[NAMESPACE, "sglang"]["m"]
    right = {
        "requests": 270.0,
        "late": 125.0,
        "seconds": 683.0,
        "between": 53_730.0,
        "tokens": (216_000.0, 54_000.0),
        "gauges": (30.0, 12.0),
    }
    pods = READ | {"sglang"}
    assert {pod: figures(samples[pod]) for pod in pods} == dict.fromkeys(pods, right)


async def test_a_gauge_with_a_label_that_nobody_named_is_unknown_and_told(url: str) -> None:
    missing = (await read(url)).select(NAMESPACE, PAGES.keys() - {"sglang"}, "m").missing
    assert {pod: one.cause for pod, one in missing.items()} == dict.fromkeys(("gauges", "hostile"), Cause.AMBIGUOUS)
    assert missing["gauges"].reason.startswith("Gauges have several series that differ in a label")


async def test_series_that_nobody_can_read_are_left_out_and_named(url: str) -> None:
    selection = (await read(url)).select(NAMESPACE, PAGES, "m")
    assert list(selection.unreadable) == ["odd"]
    assert "vllm:time_to_first_token_seconds_bucket has" in selection.unreadable["odd"]


async def test_histograms_that_are_stored_as_native_ones_are_told(serve: Serve, url: str) -> None:
    """VictoriaMetrics keeps none that is written to it: there they are as missing as those of an engine without any.

    It scrapes them as classic ones itself, and so all is read.
    """
    written, scraping = BACKENDS["victoria-metrics"], BACKENDS["victoria-metrics-scraping"]
    selection = (await read(url)).select(NAMESPACE, PAGES, "m")
    assert selection.native == (() if serve in {written, scraping} else ("native",))
    (sample,) = (one for one in selection.samples if one.replica == "native")
    ttft = sample.time_to_first_token
    assert (None if isinstance(ttft, Unknown) else ttft.count) == (270.0 if serve is scraping else None)
    assert sample.running == 30


def shows(namespaces: frozenset[str], reading: FleetReading) -> bool:
    return (NAMESPACE, "plain") in reading.samples and namespaces <= {namespace for namespace, _ in reading.samples}


async def test_buckets_of_another_namespace_push_none_out_and_its_pages_are_not_read(url: str) -> None:
    """Another tenant's page has its own buckets just around the bound and its multiples."""
    for namespaces in (frozenset({NAMESPACE, ELSEWHERE}), frozenset({NAMESPACE})):
        request = ReadRequest(ttft_bounds=frozenset({1.7}), namespaces=namespaces)
        reading = await read_when(url, request, functools.partial(shows, namespaces))
        assert {namespace for namespace, _ in reading.samples} == namespaces
        ttft = with_own_buckets(reading.samples[NAMESPACE, "plain"]["m"], 1.7, None).time_to_first_token
        assert not isinstance(ttft, Unknown)
        assert ttft.bounds == (0.5, 2.0)


async def test_the_past_is_read_as_the_present(url: str) -> None:
    await read(url)
    request = ReadRequest(ttft_bounds=frozenset({2.0}))
    last: Mapping[tuple[str, str], Mapping[str, ReplicaMetrics]] = {}
    # On a busy machine a scrape can take longer than its second, and Prometheus has no value of that page then.
    while not {(NAMESPACE, pod) for pod in READ} <= last.keys():
        end = time.time()
        # VictoriaMetrics repeats its value of 5 s ago for the last 5 s, so the range is longer than that.
        last = (await past_of(url, request, end - 8, end, NAMESPACE))[-1][1]
    assert {pod: figures(last[NAMESPACE, pod]["m"])["requests"] for pod in READ} == dict.fromkeys(READ, 270.0)
    assert (NAMESPACE, "gauges") not in last
