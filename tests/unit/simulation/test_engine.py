from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servingpool_simulation.engine import Engine, Outcome
from servingpool_simulation.hardware import EngineProfile, engine_profile, kernel_profile

from . import step_by_step

H100 = engine_profile("h100-8b-tp1")
SMALL = replace(H100, kv_tokens=4096, max_model_len=2048, max_num_batched_tokens=256, max_num_seqs=12)
"""A replica whose every limit is soon reached."""
ODD = replace(SMALL, async_scheduling=True, bend=2.0, tokens_per_step=3, pause_every=1.0, ttft_from_admission=True)


def served(profile: EngineProfile, requests: list[tuple[float, int, int]]) -> tuple[Engine, list[Outcome]]:
    engine = Engine(profile, 0.0)
    for at, prompt, output in requests:
        engine.advance(at)
        engine.submit(at, prompt, output)
    engine.drain()
    return engine, engine.take_outcomes()


def jobs_as_requests(jobs: list[step_by_step.Job]) -> list[tuple[float, int, int]]:
    return [(job.arrival, job.prompt, job.output) for job in jobs]


@pytest.mark.parametrize(
    ("profile", "rate", "longest_prompt", "longest_output"),
    [
        pytest.param(H100, 8.0, 3000, 300, id="moderate load"),
        pytest.param(H100, 60.0, 6000, 200, id="overload, prompts in chunks"),
        pytest.param(SMALL, 30.0, 900, 400, id="KV cache full, preemptions"),
        pytest.param(replace(SMALL, kv_tokens=2048), 5.0, 1500, 500, id="KV cache of one request"),
        pytest.param(replace(SMALL, bend=3.0), 30.0, 900, 400, id="a step time that bends"),
        pytest.param(replace(H100, async_scheduling=True), 8.0, 3000, 300, id="steps scheduled ahead"),
        pytest.param(replace(SMALL, async_scheduling=True), 30.0, 900, 400, id="scheduled ahead, KV cache full"),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_closed_form_equals_one_step_at_a_time(
    profile: EngineProfile, rate: float, longest_prompt: int, longest_output: int, seed: int
) -> None:
    jobs = step_by_step.random_jobs(seed, 120, rate, longest_prompt, longest_output)
    _, outcomes = served(profile, jobs_as_requests(jobs))
    step_by_step.run(profile, jobs)
    assert [o.preemptions for o in outcomes] == [job.preemptions for job in jobs]
    assert [o.arrival + o.ttft for o in outcomes if o.ttft] == pytest.approx([job.first for job in jobs], rel=1e-9)
    assert [o.finished_at for o in outcomes] == pytest.approx([job.finished for job in jobs], rel=1e-9)


REFERENCE = {
    "h100-8b-tp1": ([6.6, 8.3, 10.2, 13.1, 19.6], [12, 45, 204], 429e3),
    "h200-8b-tp1": ([5.3, 6.2, 7.6, 9.8, 15.2], [12, 45, 200], 879e3),
    "a100-8b-tp1": ([12.2, 14.9, 17.5, 24.7, 41.0], [34, 123, 559], 429e3),
    "l40s-8b-tp1": ([24.1, 32.6, 38.5, 52.0, 79.4], [38, 151, 688], 193e3),
    "h100-70b-tp4": ([15.6, 18.4, 20.5, 24.7, 33.7], [43, 152, 638], 452e3),
    "h200-70b-tp4": ([12.4, 14.5, 16.5, 19.9, 30.9], [44, 151, 657], 1.17e6),
    "a100-70b-tp4": ([27.7, 34.1, 37.7, 47.7, 83.9], [115, 378, 1520], 452e3),
}
"""Measured kernel times: decode ms at 1k context for the batches below, prefill ms, KV tokens."""


@pytest.mark.parametrize("name", REFERENCE)
def test_step_times_are_those_measured_on_the_gpu(name: str) -> None:
    decode, prefill, kv_tokens = REFERENCE[name]
    kernel = kernel_profile(name, max_num_batched_tokens=262_144)
    assert kernel.kv_tokens == pytest.approx(kv_tokens, rel=0.01)
    for batch, expected in zip((1, 32, 64, 128, 256), decode, strict=True):
        if batch * 1024 > kernel.kv_tokens:
            continue  # 256 requests of 1k do not fit an L40S
        _, outcomes = served(kernel, [(0.0, 1014, 20)] * batch)
        tpot = outcomes[-1].tpot
        assert tpot is not None
        assert tpot * 1e3 == pytest.approx(expected, rel=0.1)
    for prompt, expected in zip((512, 2048, 8192), prefill, strict=True):
        _, (only,) = served(replace(kernel, max_num_batched_tokens=8192), [(0.0, prompt, 1)])
        assert only.ttft is not None
        assert only.ttft * 1e3 == pytest.approx(expected, rel=0.1)


def test_inter_token_latency_of_one_stream_is_the_published_7_ms() -> None:
    # Llama-3.1-8B on an H100, 128 tokens in and out: 7.0 ms alone, 8.7 ms at 64.
    _, (alone,) = served(H100, [(0.0, 128, 128)])
    assert alone.tpot == pytest.approx(0.0070, rel=0.1)
    _, many = served(H100, [(0.0, 128, 128)] * 64)
    assert many[-1].tpot == pytest.approx(0.0087, rel=0.1)


def test_a_prompt_beyond_max_model_len_is_turned_away_and_counted() -> None:
    engine, (fits, too_long) = served(replace(H100, max_model_len=8000), [(0.0, 7999, 50), (0.0, 8000, 1)])
    assert (fits.rejected, fits.output_tokens) == (False, 1)
    assert (too_long.rejected, too_long.ttft, too_long.output_tokens) == (True, None, 0)
    counters = engine.metrics().counters
    assert (counters["rejected"], counters["request_success_length"], counters["prompt_tokens"]) == (1, 1, 7999)


def test_the_prefix_cache_shortens_the_prefill_and_is_counted_by_source() -> None:
    cold, (slow,) = served(H100, [(0.0, 4000, 10)])
    warm, (fast,) = served(replace(H100, prefix_cache_hit_rate=0.5), [(0.0, 4000, 10)])
    assert slow.ttft is not None
    assert fast.ttft is not None
    assert fast.ttft < 0.65 * slow.ttft
    assert cold.metrics().counters["prefix_cache_hits"] == 0
    counters = warm.metrics().counters
    assert counters["prefix_cache_queries"] == counters["prompt_tokens"] == 4000
    assert counters["prefix_cache_hits"] == counters["prompt_tokens_local_cache_hit"] == 2000
    assert counters["prompt_tokens_local_compute"] == 2000


requests = st.lists(st.tuples(st.floats(0, 3), st.integers(1, 2500), st.integers(1, 400)), min_size=1, max_size=40).map(
    sorted
)


@pytest.mark.parametrize("profile", [SMALL, ODD], ids=["an engine as usual", "every oddity at once"])
@settings(max_examples=40)
@given(requests=requests, looks=st.lists(st.floats(0, 20), max_size=30))
def test_nothing_is_lost_and_looking_changes_nothing(
    profile: EngineProfile, requests: list[tuple[float, int, int]], looks: list[float]
) -> None:
    engine, outcomes = served(profile, requests)
    assert [o.request for o in outcomes] == list(range(len(requests)))
    assert [o.rejected for o in outcomes] == [prompt >= 2048 for _, prompt, _ in requests]
    metrics = engine.metrics()
    assert metrics.counters["generation_tokens"] == sum(o.output_tokens for o in outcomes)
    assert (engine.running, engine.waiting, engine.kv_cache_usage, engine.in_flight) == (0, 0, 0, 0)

    watched, tokens = Engine(profile, 0.0), [0.0]
    for at, submission in sorted([(at, None) for at in looks] + [(r[0], r) for r in requests], key=lambda e: e[0]):
        if submission:
            watched.submit(*submission)
        else:
            watched.advance(at)
            tokens.append(watched.metrics().counters["generation_tokens"])
    assert tokens == sorted(tokens), "counters never fall"
    watched.drain()
    assert watched.take_outcomes() == outcomes


def test_histograms_agree_with_the_outcomes() -> None:
    jobs = step_by_step.random_jobs(5, 400, 20.0, 4000, 300)
    engine, outcomes = served(H100, jobs_as_requests(jobs))
    histograms = engine.metrics().histograms
    truth: dict[str, list[Any]] = {
        "time_to_first_token_seconds": [o.ttft for o in outcomes],
        "request_time_per_output_token_seconds": [o.tpot or 0.0 for o in outcomes],
        "e2e_request_latency_seconds": [o.finished_at - o.arrival for o in outcomes],
        "request_prompt_tokens": [o.prompt_tokens for o in outcomes],
        "request_generation_tokens": [o.output_tokens for o in outcomes],
    }
    for name, values in truth.items():
        found = histograms[name]
        assert found.count == len(values), name
        assert found.total == pytest.approx(np.sum(values)), name
        assert found.counts == tuple(np.searchsorted(np.sort(values), found.bounds, side="right")), name
    between = histograms["inter_token_latency_seconds"]
    assert between.count == sum(o.output_tokens - 1 for o in outcomes)
    assert between.total == pytest.approx(sum((o.tpot or 0.0) * (o.output_tokens - 1) for o in outcomes))
    parts = [histograms[f"request_{part}_time_seconds"].total for part in ("queue", "prefill", "decode")]
    assert sum(parts) == pytest.approx(histograms["e2e_request_latency_seconds"].total)


def test_a_growing_step_falls_into_the_right_latency_buckets() -> None:
    # One long answer whose steps grow past a bound: as many below it as the closed form of the step says.
    slow = replace(H100, host_overhead=0.0175, decode_per_kv_token=1e-5)
    engine, (only,) = served(slow, [(0.0, 10, 400)])
    first_decode = slow.dense_table()[1] + slow.decode_base + slow.host_overhead
    below = sum(first_decode + 1e-5 * (11 + k) <= 0.025 for k in range(399))
    found = engine.metrics().histograms["inter_token_latency_seconds"]
    assert 0 < below < 399
    assert found.counts[found.bounds.index(0.025)] == below
    assert only.tpot == pytest.approx(found.total / found.count)


def test_records_of_finished_requests_are_used_again() -> None:
    engine = Engine(H100, 0.0)
    numbers = []
    for k in range(2000):
        numbers.append(engine.submit(float(k), 10, 2))
        engine.advance(k + 0.5)
        assert [o.request for o in engine.take_outcomes()] == [k]
    assert numbers == list(range(2000))
    assert len(engine._requests) == 256


INTERPRETED = """
import json, sys
sys.modules["numba"] = None
sys.path.insert(0, sys.argv[1])
from dataclasses import asdict, replace
from servingpool_simulation.compiled import COMPILED
from servingpool_simulation.engine import Engine
from servingpool_simulation.hardware import engine_profile
assert not COMPILED
limits = dict(kv_tokens=4096, max_model_len=2048, max_num_batched_tokens=256, max_num_seqs=12)
odd, requests = json.loads(sys.stdin.read())
engine = Engine(replace(engine_profile("h100-8b-tp1"), **limits, **odd), 0.0)
for request in requests:
    engine.submit(*request)
engine.drain()
print(json.dumps([[asdict(o) for o in engine.take_outcomes()], engine._state.page.tolist()]))
"""


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param({}, id="an engine as usual"),
        pytest.param(
            {
                "ttft_from_admission": True,
                "async_scheduling": True,
                "bend": 2.0,
                "tokens_per_step": 3,
                "pause_every": 2.0,
                "pause_shortest": 0.1,
            },
            id="every oddity at once",
        ),
    ],
)
def test_without_numba_the_model_says_the_same_to_the_last_bit(odd: dict[str, float]) -> None:
    pytest.importorskip("numba")
    jobs = step_by_step.random_jobs(7, 60, 30.0, 900, 200)
    engine = Engine(replace(SMALL, **odd), 0.0)  # type: ignore[arg-type]
    for request in jobs_as_requests(jobs):
        engine.submit(*request)
    engine.drain()
    interpreted = subprocess.run(
        [sys.executable, "-c", INTERPRETED, sys.path[0]],
        input=json.dumps([odd, jobs_as_requests(jobs)]),
        capture_output=True,
        text=True,
        check=True,
    )
    outcomes, page = json.loads(interpreted.stdout)
    assert [Outcome(**each) for each in outcomes] == engine.take_outcomes()
    assert page == engine._state.page.tolist()
    assert sum(o["preemptions"] for o in outcomes) > 0
