"""A replica's `/metrics` page: the one recorded from an idle vLLM 0.32.0, with the figures of the engine model in it.

What the engine model does not move (multimodal cache, KV transfer, FLOPs, the HTTP layer) is as the idle server printed
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from servingpool_lab.emulator import engine_pages
from servingpool_lab.emulator.quirks import AS_VLLM, PageQuirks
from servingpool_simulation.engine import Buckets, EngineMetrics
from servingpool_simulation.hardware import BLOCK_TOKENS, EngineProfile

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "vllm:"
OF_EACH = ("reason", "source", "finished_reason")
"""Labels that tell the series of a family apart, but for `le`."""
# The bounds of this one histogram are not in `simulation.page`: nothing in the model depends on `n`.
_COMPLETIONS = (1.0, 2.0, 5.0, 10.0, 20.0)


@dataclass(frozen=True, slots=True)
class Server:
    """One vLLM server process, as far as its page tells."""

    model: str
    """The first `--served-model-name`."""
    profile: EngineProfile
    started_at: float
    """Unix time in seconds: the value of every `_created` series."""
    quirks: PageQuirks = AS_VLLM


def render(server: Server, metrics: EngineMetrics) -> bytes:
    """The page in Prometheus' text format: vLLM's, or that of the profile's other engine."""
    conduct = server.profile.conduct
    if conduct.name in engine_pages.PAGES:
        return engine_pages.render(conduct, server.model, metrics.row, metrics.edges)
    figures = _figures(metrics)
    page = [_filled(one, server, figures, _histogram(one, metrics)) for one in _recorded()]
    engine = server.quirks.applied(one for one in page if one.name.startswith(PREFIX))
    first = next(place for place, one in enumerate(page) if one.name.startswith(PREFIX))
    others = [one for one in page if not one.name.startswith(PREFIX)]
    return generate_latest(_Page([*others[:first], *engine, *others[first:]]))


@dataclass(frozen=True, slots=True)
class _Page(Collector):
    families: list[Metric]

    def collect(self) -> Iterable[Metric]:
        return self.families


@cache
def _recorded() -> tuple[Metric, ...]:
    """The recorded families, each with its `_created` series, which stand as a family of their own on the page."""
    text = files(__package__).joinpath("vllm-0.32.0-metrics.txt").read_text()
    found = {family.name: family for family in text_string_to_metric_families(text)}
    for name, family in found.items():
        if (created := found.get(f"{name}_created")) is not None:
            family.samples += created.samples
    return tuple(family for family in found.values() if not family.name.endswith("_created"))


def _filled(
    recorded: Metric, server: Server, figures: Mapping[tuple[str, str], float], buckets: Buckets | None
) -> Metric:
    """The family with the model's figures in place of those recorded, where it has some."""
    family = Metric(recorded.name, recorded.documentation, recorded.type)
    if buckets is not None:
        _add_buckets(family, server.model, buckets)
    for sample in recorded.samples:
        labels = {**sample.labels, **({"model_name": server.model} if "model_name" in sample.labels else {})}
        if sample.name == "vllm:cache_config_info":
            labels |= _cache_config(server.profile)
        each = next((labels[label] for label in OF_EACH if label in labels), "")
        if sample.name.endswith(("_created", "process_start_time_seconds")):
            family.add_sample(sample.name, labels, server.started_at)
        elif buckets is None:
            family.add_sample(sample.name, labels, figures.get((recorded.name, each), sample.value))
    return family


def _figures(metrics: EngineMetrics) -> Mapping[tuple[str, str], float]:
    """Gauges and counters by the family's name and what tells the series apart."""
    gauges, counters = metrics.gauges, metrics.counters
    hits = counters["prompt_tokens_local_cache_hit"]
    return {(f"{PREFIX}{name}", ""): value for name, value in (*gauges.items(), *counters.items())} | {
        ("vllm:num_requests_waiting_by_reason", "capacity"): gauges["num_requests_waiting"],
        ("vllm:prompt_tokens_by_source", "local_compute"): counters["prompt_tokens_local_compute"],
        ("vllm:prompt_tokens_by_source", "local_cache_hit"): hits,
        ("vllm:prompt_tokens_cached", ""): hits,
        ("vllm:prompt_tokens_cached_by_source", "device"): counters["prefix_cache_hits"],
        ("vllm:request_success", "stop"): counters["request_success_stop"],
        ("vllm:request_success", "length"): counters["request_success_length"],
    }


def _histogram(recorded: Metric, metrics: EngineMetrics) -> Buckets | None:
    """The engine's histogram of that name; None for what the model does not move."""
    if recorded.type != "histogram" or not recorded.name.startswith(PREFIX):
        return None
    # A client that replays a trace asks for exactly the tokens that the trace recorded.
    asked = metrics.histograms["request_generation_tokens"]
    if recorded.name == "vllm:request_params_n":
        return Buckets(_COMPLETIONS, (asked.count,) * len(_COMPLETIONS), total=asked.count, count=asked.count)
    return metrics.histograms.get(recorded.name.removeprefix(PREFIX), asked)


def _add_buckets(family: Metric, model: str, buckets: Buckets) -> None:
    name, labels = family.name, {"engine": "0", "model_name": model}
    counts = zip((*buckets.bounds, float("inf")), (*buckets.counts, buckets.count), strict=True)
    for bound, count in counts:
        family.add_sample(f"{name}_bucket", {**labels, "le": floatToGoString(bound)}, count)  # type: ignore[no-untyped-call]
    family.add_sample(f"{name}_count", labels, buckets.count)
    family.add_sample(f"{name}_sum", labels, buckets.total)


def _cache_config(profile: EngineProfile) -> dict[str, str]:
    """What differs between the recorded CPU and a GPU."""
    blocks = str(BLOCK_TOKENS)
    return {
        "block_size": blocks,
        "effective_attention_block_size": blocks,
        "kv_cache_max_concurrency": str(profile.kv_tokens / profile.max_model_len),
        "kv_cache_memory_bytes": "None",
        "kv_cache_size_tokens": str(profile.kv_blocks * BLOCK_TOKENS),
        "num_gpu_blocks": str(profile.kv_blocks),
    }
