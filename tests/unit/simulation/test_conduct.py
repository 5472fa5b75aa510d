"""Eight sequences at a time, 60 ms a step: 24 requests of 100 tokens at once are served in three waves of 6 s."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from servingpool.adapters.prometheus.engines import profile_of
from servingpool.adapters.prometheus.engines.profile import Figure
from servingpool.decision.observation import NOT_EXPOSED, Histogram, ReplicaMetrics, Unknown
from servingpool.decision.pool import Slo
from servingpool_simulation import page, traces
from servingpool_simulation.conduct import CONDUCTS, LLAMACPP, LMDEPLOY, NIM, SGLANG, TENSORRT_LLM, TGI, VLLM, Conduct
from servingpool_simulation.fleet import Fleet
from servingpool_simulation.hardware import EngineProfile, engine_profile, flat_profile
from servingpool_simulation.scrape import ScrapeOptions, Scraper
from servingpool_simulation.traces import Trace

FIXTURES = Path(__file__).parents[2] / "fixtures" / "engines"
FLAT = flat_profile(0.06, max_num_seqs=8)
SLO = Slo(time_to_first_token=2.0, time_per_output_token=0.1)
OTHERS = [conduct for conduct in CONDUCTS.values() if conduct is not VLLM]


def served(profile: EngineProfile, conduct: Conduct, trace: Trace, looks: Iterable[float]) -> Fleet:
    fleet = Fleet(replace(profile, conduct=conduct), trace)
    fleet.start_ready(1)
    for at in looks:
        fleet.advance(at)
    return fleet


def crowd(requests: int, prompt: int = 500, output: int = 100) -> Trace:
    return Trace("crowd", np.zeros(requests), np.full(requests, prompt), np.full(requests, output), duration=60.0)


def seen(conduct: Conduct, at: float, trace: Trace | None = None, profile: EngineProfile = FLAT) -> ReplicaMetrics:
    fleet = served(profile, conduct, crowd(24) if trace is None else trace, [])
    watch = Scraper(fleet, SLO, ScrapeOptions(interval=0.001))
    watch.arm(at)
    fleet.advance(at)
    metrics = watch.observe().metrics
    assert not isinstance(metrics, Unknown)
    return metrics[0]


def counted(histogram: Histogram | Unknown) -> tuple[float, float]:
    assert isinstance(histogram, Histogram)
    return histogram.count, pytest.approx(histogram.total)  # type: ignore[return-value]


def test_vllm_counts_a_first_token_when_it_comes_and_a_queue_time_at_the_end() -> None:
    early, later = seen(VLLM, 3.03), seen(VLLM, 6.03)
    assert (early.running, early.waiting, early.generation_tokens, early.prompt_tokens) == (8, 16, 400, 4_000)
    assert counted(early.time_to_first_token) == (8, 0.48)
    assert counted(early.queue_time) == (0, 0.0)
    assert counted(later.queue_time) == (8, 0.0)
    assert (early.admission_rejections, early.begun, early.ttft_from_admission) == (0.0, NOT_EXPOSED, False)


def test_tensorrt_llm_tells_of_a_request_at_its_end_and_of_the_batch_at_once() -> None:
    early, later = seen(TENSORRT_LLM, 3.03), seen(TENSORRT_LLM, 6.03)
    assert (early.running, early.waiting, early.begun) == (8, 16, 8)
    assert (early.generation_tokens, early.prompt_tokens) == (0, 0)
    for histogram in (early.time_to_first_token, early.inter_token_latency, early.time_per_output_token):
        assert counted(histogram) == (0, 0.0)
    assert (later.running, later.waiting, later.begun) == (8, 8, 16)
    assert (later.generation_tokens, later.prompt_tokens) == (800, 4_000)
    assert counted(later.time_to_first_token) == (8, 0.48)
    assert counted(later.inter_token_latency) == (792, 8 * 5.94)
    assert counted(seen(TENSORRT_LLM, 13.0).time_to_first_token) == (16, 8 * (0.06 + 6.06))


def test_an_answer_of_one_token_has_no_time_per_output_token_with_tensorrt_llm() -> None:
    assert counted(seen(TENSORRT_LLM, 30.0, crowd(8, output=1)).time_per_output_token) == (0, 0.0)
    assert counted(seen(VLLM, 30.0, crowd(8, output=1)).time_per_output_token) == (8, 0.0)


def test_tgi_counts_prompts_at_arrival_and_a_prefill_for_all_that_begin_together() -> None:
    early, later = seen(TGI, 3.03), seen(TGI, 6.07)
    assert (early.begun, early.prompt_tokens, early.generation_tokens) == (8, 12_000, 400)
    assert early.ttft_from_admission
    assert counted(early.time_to_first_token) == (1, 0.06)
    assert (later.begun, later.waiting) == (16, 8)
    assert counted(later.time_to_first_token) == (2, 0.12)
    assert counted(early.time_per_output_token) == (0, 0.0)
    assert counted(later.time_per_output_token) == (8, 8 * 0.06)  # 6 s for 100 tokens, the prefill too
    assert counted(later.inter_token_latency) == (800, 48.0)


def test_llamacpp_tells_seconds_of_prefill_and_counts_no_request() -> None:
    early, later = seen(LLAMACPP, 3.03), seen(LLAMACPP, 6.07)
    assert early.time_to_first_token is early.time_per_output_token is early.begun is NOT_EXPOSED
    assert (early.prompt_tokens, early.generation_tokens, early.waiting) == (4_000, 0, 16)
    assert (later.generation_tokens, later.prefill_seconds) == (800, pytest.approx(8 * 0.06))


def test_sglang_sets_its_gauges_at_a_prefill_after_40_decode_steps_and_when_idle() -> None:
    at = {moment: seen(SGLANG, moment) for moment in (1.0, 2.5, 6.03, 30.0)}
    assert (at[1.0].running, at[1.0].waiting) == (0, 16)  # without those whose prompts are computed
    assert (at[2.5].running, at[2.5].waiting) == (8, 16)
    assert (at[6.03].running, at[6.03].waiting) == (0, 8)
    assert (at[30.0].running, at[30.0].waiting) == (0, 0)


def test_sglang_does_not_count_first_tokens_as_decoded_and_counts_queue_time_at_the_start() -> None:
    early = seen(SGLANG, 3.03)
    assert early.generation_tokens == 400 - 8
    assert counted(early.queue_time) == (8, 0.0)
    assert counted(seen(SGLANG, 7.0).queue_time) == (16, 8 * 6.0)


def test_lmdeploy_sets_its_gauges_every_ten_seconds() -> None:
    at = {moment: seen(LMDEPLOY, moment) for moment in (7.0, 11.0, 19.0, 21.0)}
    assert (at[7.0].running, at[7.0].waiting) == (8, 16)
    assert (at[11.0].running, at[11.0].waiting) == (8, 8)
    assert (at[19.0].running, at[19.0].waiting) == (8, 8)
    assert (at[21.0].running, at[21.0].waiting) == (0, 0)


def test_lmdeploy_counts_ttft_from_its_handle_so_a_wait_for_kv_cache_is_in_it_and_one_for_a_handle_is_not() -> None:
    by_handles = seen(LMDEPLOY, 30.0)
    assert not by_handles.ttft_from_admission, "the profile says unknown, for a wait for KV cache is in it"
    assert counted(by_handles.time_to_first_token) == (24, 24 * 0.06)
    assert counted(by_handles.queue_time) == (24, 0.0)
    room_for_four = replace(FLAT, kv_tokens=2_048, max_model_len=1_024)
    by_cache = seen(LMDEPLOY, 30.0, crowd(8, output=12), room_for_four)
    assert counted(by_cache.time_to_first_token) == (8, 4 * 0.06 + 4 * (0.72 + 0.06))
    assert counted(by_cache.queue_time) == (8, 4 * 0.72)


def test_nim_has_no_queue_time_and_counts_time_per_output_token_by_token() -> None:
    metrics = seen(NIM, 6.03)
    assert metrics.queue_time == metrics.cached_prompt_tokens == NOT_EXPOSED
    assert metrics.time_per_output_token == metrics.inter_token_latency
    assert counted(metrics.time_per_output_token) == (792, 792 * 0.06)


@pytest.mark.parametrize("conduct", OTHERS, ids=lambda conduct: conduct.name)
def test_a_page_changes_nothing_of_what_users_experience_and_no_look_changes_the_page(conduct: Conduct) -> None:
    small = replace(
        engine_profile("h100-8b-tp1"), kv_tokens=4_096, max_model_len=2_048, max_num_batched_tokens=256, max_num_seqs=12
    )
    trace = traces.poisson("busy", [30.0, 1.0], 20.0, prompt=300, output=80, seed=1)
    usual = served(small, VLLM, trace, [300.0])
    often, once = (served(small, conduct, trace, looks) for looks in (np.arange(0.5, 100.0, 0.5), [99.5]))
    assert often.state.page[0] == pytest.approx(once.state.page[0])
    often.advance(300.0)
    for column in ("first", "finished", "preemptions"):
        assert (often.requests[column] == usual.requests[column]).all()
    assert usual.requests.preemptions.sum() > 0


@pytest.mark.parametrize(
    ("conduct", "version"),
    [(SGLANG, "0.5.23"), (LMDEPLOY, "0.18.0"), (NIM, "1.0.0"), (TENSORRT_LLM, "050f80de"), (TGI, "3.3.7")],
    ids=lambda given: getattr(given, "name", None),
)
def test_buckets_are_those_of_the_engines_own_page(conduct: Conduct, version: str) -> None:
    printed = (FIXTURES / f"{conduct.name}-{version}.txt").read_text()
    matrix = page.bounds_matrix(FLAT.max_model_len, conduct.bounds)
    figures = profile_of(conduct.name).figures
    compared = 0
    for one in (
        Figure.TIME_TO_FIRST_TOKEN,
        Figure.INTER_TOKEN_LATENCY,
        Figure.TIME_PER_OUTPUT_TOKEN,
        Figure.QUEUE_TIME,
    ):
        for series in figures.get(one, ()):
            found = re.findall(rf'^{series.name}_bucket\{{.*?le="([^"+]+)"', printed, re.MULTILINE)
            if found:
                bounds = matrix[getattr(conduct, one.name.lower())]
                assert sorted(set(map(float, found))) == pytest.approx(bounds[np.isfinite(bounds)].tolist()), one
                compared += 1
    assert compared >= 2
