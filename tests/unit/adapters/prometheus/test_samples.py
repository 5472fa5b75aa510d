"""What pods expose, and what of it is known."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest

from servingpool.adapters.prometheus import http_client
from servingpool.adapters.prometheus.backend_config import SeriesLabels
from servingpool.adapters.prometheus.diagnosis import Cause
from servingpool.adapters.prometheus.engines import profile_of
from servingpool.adapters.prometheus.plan import FIELDS, FIGURES, HISTOGRAMS
from servingpool.adapters.prometheus.samples import ReadRequest
from servingpool.decision.observation import Histogram, ReplicaMetrics, Unknown

NOW = 1_790_000_000.0
RECORDED = Path(__file__).parents[3] / "fixtures" / "vllm-0.32.0-metrics.txt"


async def test_every_figure_of_a_sample_is_read(prometheus, backend, request_2s_100ms):
    prometheus.expose("llama-0")
    reading = await backend.read(request_2s_100ms, NOW)
    assert reading.samples == {
        ("chat", "llama-0"): {
            "llama": ReplicaMetrics(
                replica="llama-0",
                scraped_at=NOW - 5,
                running=3,
                waiting=1,
                generation_tokens=9_000,
                prompt_tokens=40_000,
                cached_prompt_tokens=8_000,
                admission_rejections=2,
                time_to_first_token=Histogram((1.0, 2.5), (30, 45), 60.0, 50),
                inter_token_latency=Histogram((), (), 270.0, 9_000),
                time_per_output_token=Histogram((0.1, 0.15), (44, 45), 1.5, 45),
            )
        }
    }
    assert reading.at == NOW


async def test_a_scrape_time_without_a_figure_is_no_sample(prometheus, backend, request_2s_100ms):
    """VictoriaMetrics goes on telling when series were scraped that are no more."""
    prometheus.expose("gone", {})
    prometheus.expose("llama-0")
    assert list((await backend.read(request_2s_100ms, NOW)).samples) == [("chat", "llama-0")]


HOSTILE = 'a","pod":"b"},"value":[1,"2"]},{"metric":{"'


@pytest.mark.parametrize("piece", [1, 1_000, 2**20])
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
async def test_a_long_reply_is_read_in_pieces(
    prometheus, backend, request_2s_100ms, page, monkeypatch, piece, separators
):
    monkeypatch.setattr(http_client, "PIECE", piece)
    prometheus.separators = separators
    for index in range(20):
        prometheus.expose(f"llama-{index}", page | {"vllm:num_requests_running": index}, model_name=HOSTILE)
    reading = await backend.read(request_2s_100ms, NOW)
    assert list(reading.samples) == [("chat", f"llama-{index}") for index in range(20)]
    assert [models[HOSTILE].running for models in reading.samples.values()] == list(range(20))
    assert {models[HOSTILE].time_per_output_token for models in reading.samples.values()} == {
        Histogram((0.1, 0.15), (44, 45), 1.5, 45)
    }


async def test_a_gauge_that_is_nan_is_unknown_not_zero(prometheus, backend, request_2s_100ms, page):
    prometheus.expose("llama-0", page | {"vllm:num_requests_waiting": "NaN"})
    read = await backend.read(request_2s_100ms, NOW)
    waiting = read.samples["chat", "llama-0"]["llama"].waiting
    assert isinstance(waiting, Unknown)
    assert "vllm:num_requests_waiting is nan" in waiting.reason


@pytest.mark.parametrize(
    "broken",
    [
        {"vllm:time_to_first_token_seconds_sum": "NaN"},
        {"vllm:time_to_first_token_seconds_bucket": {"1.0": "NaN", "2.5": 4}},
        {"vllm:time_to_first_token_seconds_count": "+Inf"},
    ],
)
async def test_a_histogram_with_nan_in_it_is_unknown(prometheus, backend, request_2s_100ms, page, broken):
    prometheus.expose("llama-0", page | broken)
    read = await backend.read(request_2s_100ms, NOW)
    assert isinstance(read.samples["chat", "llama-0"]["llama"].time_to_first_token, Unknown)


async def test_vllm_0_9_is_read_by_its_old_names(prometheus, backend, request_2s_100ms, page):
    old = "vllm:time_per_output_token_seconds"
    modern = ("by_source", "rejections", "inter_token", "request_time_per_output")
    page = {name: figure for name, figure in page.items() if not any(part in name for part in modern)}
    page |= {"vllm:prefix_cache_hits_total": 700}
    page |= {f"{old}_sum": 270.0, f"{old}_count": 9_000, f"{old}_bucket": {"0.1": 8_900, "0.15": 8_990}}
    prometheus.layout[old] = prometheus.layout.pop("vllm:request_time_per_output_token_seconds")
    prometheus.expose("llama-0", page)
    metrics = (await backend.read(request_2s_100ms, NOW)).samples["chat", "llama-0"]["llama"]
    assert metrics.cached_prompt_tokens == 700
    per_token = Histogram((0.1, 0.15), (8_900, 8_990), 270.0, 9_000)
    assert metrics.inter_token_latency == metrics.time_per_output_token == per_token


async def test_where_old_and_new_names_are_both_exposed_the_new_one_counts(prometheus, backend, request_2s_100ms, page):
    old = "vllm:time_per_output_token_seconds"
    page |= {f"{old}_sum": 99.0, f"{old}_count": 99, f"{old}_bucket": {"0.1": 99}}
    page |= {"vllm:prefix_cache_hits_total": 99}
    prometheus.layout[old] = {"0.1": 1, "+Inf": 1}
    prometheus.expose("llama-0", page)
    metrics = (await backend.read(request_2s_100ms, NOW)).samples["chat", "llama-0"]["llama"]
    assert metrics.cached_prompt_tokens == 8_000
    assert metrics.inter_token_latency.count == 9_000
    assert metrics.time_per_output_token.count == 45


FEDERATED = {
    "namespace": "monitoring",
    "model_name": "gpu-job",
    "exported_namespace": "chat",
    "exported_pod": "llama-0",
    "exported_model_name": "llama",
}


async def test_a_sample_may_name_its_model_but_not_its_pod(prometheus, backend, request_2s_100ms):
    prometheus.expose("collector-0", **FEDERATED)
    read = await backend.read(request_2s_100ms, NOW)
    assert {key: list(models) for key, models in read.samples.items()} == {("monitoring", "collector-0"): ["llama"]}


async def test_with_federation_the_pod_is_the_one_that_the_sample_names(prometheus, open_backend, request_2s_100ms):
    prometheus.expose("collector-0", **FEDERATED)
    read = await open_backend(labels=SeriesLabels(exported=True)).read(request_2s_100ms, NOW)
    assert {key: list(models) for key, models in read.samples.items()} == {("chat", "llama-0"): ["llama"]}


async def test_a_stale_sample_is_dropped_and_reported(prometheus, backend, request_2s_100ms):
    prometheus.expose("fresh")
    prometheus.expose("lost", scraped_at=NOW - 93)
    selection = (await backend.read(request_2s_100ms, NOW)).select("chat", ["fresh", "lost"], "llama")
    assert [page.replica for page in selection.samples] == ["fresh"]
    assert selection.missing["lost"].cause is Cause.STALE
    assert selection.explain() == "Last scraped 93 s ago (pod lost)"


async def test_a_clock_that_is_wrong_here_makes_nothing_stale(prometheus, backend, request_2s_100ms):
    prometheus.expose("llama-0")
    reading = await backend.read(request_2s_100ms, NOW + 3_600)
    assert ("chat", "llama-0") in reading.samples


async def test_a_sample_without_a_scrape_time_is_dropped(prometheus, backend, request_2s_100ms):
    prometheus.expose("llama-0", scraped_at=None)
    reading = await backend.read(request_2s_100ms, NOW)
    assert reading.samples == {}


async def test_a_pod_that_vanished_is_missing_not_idle(prometheus, backend, request_2s_100ms):
    prometheus.expose("llama-0")
    await backend.read(request_2s_100ms, NOW)
    prometheus.rows.clear()
    selection = (await backend.read(request_2s_100ms, NOW + 15)).select("chat", ["llama-0"], "llama")
    assert selection.samples == ()
    assert selection.missing["llama-0"].cause is Cause.UNKNOWN
    assert "--disable-log-stats" in selection.explain()


async def test_a_wrong_model_name_is_distinguished_from_an_idle_pool(prometheus, backend, request_2s_100ms):
    for pod in "abcde":
        prometheus.expose(pod, model_name="meta-llama/Llama-3.1-8B")
    prometheus.expose("other-tenants", namespace="elsewhere")
    selection = (await backend.read(request_2s_100ms, NOW)).select("chat", list("abcdez"), "llama")
    assert selection.samples == ()
    assert selection.missing["a"].cause is Cause.OTHER_MODEL
    assert selection.explain() == (
        "The pods export model_name 'meta-llama/Llama-3.1-8B', and spec.model is 'llama': "
        "set spec.model to 'meta-llama/Llama-3.1-8B' (5 pods: a, b, c and 2 more). "
        "Not scraped, or vLLM runs with --disable-log-stats (pod z)"
    )


async def test_without_a_bound_a_histogram_needs_no_buckets(prometheus, backend, request_2s_100ms, page):
    del page["vllm:time_to_first_token_seconds_bucket"]
    prometheus.expose("llama-0", page)
    reading = await backend.read(replace(request_2s_100ms, ttft_bounds=frozenset()), NOW)
    assert reading.samples["chat", "llama-0"]["llama"].time_to_first_token == Histogram((), (), 60.0, 50)


async def test_an_engine_without_a_profile_is_refused_by_name(backend):
    with pytest.raises(ValueError, match=r"engine 'unheard-of' is not supported; use .*vllm"):
        await backend.read(ReadRequest(engine="unheard-of"), NOW)


UNREAD = {"replica", "scraped_at", "kv_cache_usage", "ttft_from_admission", "sources"}


def test_every_field_but_the_kv_cache_which_no_decision_needs_is_read():
    assert {*FIELDS} == {field.name for field in fields(ReplicaMetrics)} - UNREAD


def test_the_profile_fills_every_field():
    profile = profile_of("vllm")
    assert {figure.field for figure in profile.figures} == {*FIGURES, *HISTOGRAMS} - {"begun", "prefill_seconds"}


def test_the_newest_name_of_every_figure_is_in_the_recorded_metrics():
    profile = profile_of("vllm")
    exposed = {line.split("{")[0] for line in RECORDED.read_text().splitlines()}
    newest = {figure.field: series[0].name for figure, series in profile.figures.items()}
    plain = {newest[field] for field in FIGURES if field in newest}
    parts = {f"{newest[field]}_{part}" for field in HISTOGRAMS for part in ("bucket", "sum", "count")}
    assert plain | parts <= exposed
