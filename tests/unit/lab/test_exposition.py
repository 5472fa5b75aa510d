from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from servingpool_lab.emulator.exposition import Server, render
from servingpool_simulation.engine import Engine, EngineMetrics
from servingpool_simulation.hardware import EngineProfile, engine_profile

RECORDED = Path(__file__).parents[2] / "fixtures" / "vllm-0.32.0-metrics.txt"
FREE_LABELS = {"block_size", "effective_attention_block_size", "kv_cache_max_concurrency", "kv_cache_memory_bytes"} | {
    "kv_cache_size_tokens",
    "num_gpu_blocks",
}
"""Labels of cache_config_info that depend on the hardware, so they differ between the recorded CPU and a GPU."""


def profile() -> EngineProfile:
    # The recorded server ran a tiny model with max_model_len 2048: its token buckets end at 2000.
    return engine_profile("a100-70b-tp4", max_model_len=2048)


def page(metrics: EngineMetrics | None = None, model: str = "tiny") -> str:
    idle = Engine(profile(), start=0.0).metrics()
    return render(Server(model, profile(), started_at=1.795e9), metrics or idle).decode()


def busy_engine() -> Engine:
    engine = Engine(profile(), start=0.0)
    for number in range(40):
        engine.submit(number * 0.1, prompt_tokens=300, output_tokens=20)
    engine.advance(3.0)
    return engine


def masked(text: str) -> list[str]:
    """The page's lines without their values and ends, and without the labels that depend on the hardware."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            line = line.rpartition(" ")[0]  # noqa: PLW2901
            for label in FREE_LABELS:
                line = re.sub(rf'([{{,]){label}="[^"]*"', rf'\1{label}=""', line)  # noqa: PLW2901
        lines.append(line.rstrip())
    return lines


def test_a_busy_page_has_the_same_lines_as_an_idle_one() -> None:
    assert masked(page(busy_engine().metrics())) == masked(RECORDED.read_text())


def test_an_idle_engine_says_what_the_recorded_idle_server_said() -> None:
    def values(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        return {
            (s.name, tuple(sorted(s.labels.items()))): s.value
            for family in text_string_to_metric_families(text)
            for s in family.samples
            if s.name.startswith("vllm:") and not s.name.endswith("_created") and "cache_config" not in s.name
        }

    assert values(page()) == values(RECORDED.read_text())


def test_a_busy_page_carries_the_engines_figures() -> None:
    engine = busy_engine()
    samples = {
        (s.name, s.labels.get("le") or s.labels.get("finished_reason") or s.labels.get("source") or ""): s.value
        for family in text_string_to_metric_families(page(engine.metrics()))
        for s in family.samples
    }
    metrics = engine.metrics()
    ttft = metrics.histograms["time_to_first_token_seconds"]
    assert samples["vllm:num_requests_running", ""] == engine.running > 0
    assert samples["vllm:generation_tokens_total", ""] == metrics.counters["generation_tokens"] > 0
    assert samples["vllm:time_to_first_token_seconds_bucket", "+Inf"] == ttft.count > 0
    assert samples["vllm:time_to_first_token_seconds_bucket", "1.0"] == ttft.counts[ttft.bounds.index(1.0)]
    assert samples["vllm:time_to_first_token_seconds_sum", ""] == pytest.approx(ttft.total)
    assert samples["vllm:request_success_total", "stop"] == metrics.counters["request_success_stop"] > 0
    assert samples["vllm:request_params_n_bucket", "1.0"] == samples["vllm:request_success_total", "stop"]
    assert samples["vllm:prompt_tokens_by_source_total", "local_compute"] == metrics.counters["prompt_tokens"]


def test_a_model_name_with_quotes_cannot_break_the_page() -> None:
    names = {
        s.labels["model_name"]
        for family in text_string_to_metric_families(page(model='a"b\\c'))
        for s in family.samples
        if "model_name" in s.labels
    }
    assert names == {'a"b\\c'}
