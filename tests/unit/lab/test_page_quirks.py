"""Pages that are unlike vLLM 0.32's, and the engine pod's command line for them."""

from __future__ import annotations

import asyncio

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from servingpool_lab.emulator.exposition import Server, render
from servingpool_lab.emulator.quirks import AS_VLLM, PageQuirks
from servingpool_lab.engine_pod.options import Options
from servingpool_simulation.engine import Engine
from servingpool_simulation.hardware import engine_profile

from .engine_pods import MODEL, engine_process, samples

PROFILE = engine_profile("l40s-8b-tp1", max_model_len=2048)
ALL = PageQuirks(no_engine_label=True, old_names=True, absent_until_used=True)


def page(quirks: PageQuirks, requests: int = 0, seconds: float = 60.0) -> dict[str, dict[tuple[str, ...], float]]:
    """Samples of the engine's own families: name to values of the labels to value."""
    engine = Engine(PROFILE, 0.0)
    for number in range(requests):
        engine.submit(0.1 * number, 100, 40)
    engine.advance(seconds)
    text = render(Server("tiny", PROFILE, 1.795e9, quirks), engine.metrics()).decode()
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("vllm:"):
                labels = tuple(f"{name}={value}" for name, value in sample.labels.items())
                found.setdefault(sample.name, {})[labels] = sample.value
    return found


def test_a_series_appears_when_it_is_first_used() -> None:
    begun = page(PageQuirks(absent_until_used=True), requests=1, seconds=0.5)
    assert begun["vllm:time_to_first_token_seconds_count"] == {("engine=0", "model_name=tiny"): 1.0}
    assert "vllm:request_time_per_output_token_seconds_count" not in begun  # nothing has finished yet
    assert "vllm:request_success_total" not in begun
    ended = page(PageQuirks(absent_until_used=True), requests=1)
    assert list(ended["vllm:request_success_total"].values()) == [1.0]
    plain = page(AS_VLLM, requests=1)
    for name in ("time_to_first_token_seconds_bucket", "generation_tokens_total", "request_queue_time_seconds_bucket"):
        assert ended[f"vllm:{name}"] == plain[f"vllm:{name}"]


def test_no_series_has_the_label_engine_where_it_is_left_out() -> None:
    odd = page(PageQuirks(no_engine_label=True), requests=3)
    assert not [labels for values in odd.values() for labels in values if "engine=0" in labels]
    assert odd.keys() == page(AS_VLLM, requests=3).keys()


def test_one_option_turns_all_quirks_on() -> None:
    odd = Options.parse(["serve", MODEL, "--max-num-seqs=8", "--ttft-from-admission", "--page-quirks"])
    assert odd.quirks == ALL
    assert (odd.profile.max_num_seqs, odd.profile.ttft_from_admission) == (8, True)
    plain = Options.parse(["serve", MODEL])
    assert plain.quirks == AS_VLLM
    assert not plain.profile.ttft_from_admission
    assert Options.parse(["serve", MODEL, "--old-metric-names"]).quirks == PageQuirks(old_names=True)


def test_a_flat_step_takes_the_place_of_the_gpus_step_times() -> None:
    flat = Options.parse(["serve", MODEL, "--flat-step=0.04", "--max-num-seqs=8", "--ttft-from-admission"]).profile
    assert {float(seconds) for seconds in flat.dense_table()[[1, 8, 8192]]} == {0.04}
    assert flat.ttft_from_admission


async def test_an_engine_pod_with_eight_sequences_counts_ttft_from_admission_and_makes_the_others_wait() -> None:
    options = ("--load-seconds=0", "--flat-step=0.02", "--max-num-seqs=8", "--ttft-from-admission", "--page-quirks")
    async with engine_process(*options) as pod, aiohttp.ClientSession() as http:
        await pod.loaded()
        idle = await samples(pod.url)
        assert "vllm:time_to_first_token_seconds_count" not in idle
        assert "vllm:generation_tokens_total" not in idle
        assert idle["vllm:num_requests_waiting"] == 0

        async def ask() -> None:
            body = {"model": MODEL, "prompt": "one two", "max_tokens": 50}
            async with http.post(f"{pod.url}/v1/completions", json=body) as answer:
                assert answer.status == 200
                await answer.read()

        asked = [asyncio.create_task(ask()) for _ in range(16)]
        async with asyncio.timeout(30):
            while (full := await samples(pod.url))["vllm:num_requests_waiting"] < 8:  # noqa: ASYNC110, another process
                await asyncio.sleep(0.05)
        assert (full["vllm:num_requests_running"], full["vllm:num_requests_waiting"]) == (8, 8)
        await asyncio.gather(*asked)
        found = await samples(pod.url)
        assert found["vllm:generation_tokens_total"] == 16 * 50
        assert found["vllm:request_queue_time_seconds_sum"] > 8 * 50 * 0.02 * 0.9
        assert found["vllm:time_to_first_token_seconds_sum"] < 0.25 * found["vllm:request_queue_time_seconds_sum"]
        assert found["vllm:inter_token_latency_seconds_count"] == found["vllm:time_per_output_token_seconds_count"]
