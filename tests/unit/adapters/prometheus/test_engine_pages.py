"""Each profile on its engine's own page: all pages are printed after the same requests, so the truth is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from servingpool.adapters.prometheus import page
from servingpool.adapters.prometheus.engines import EngineMetrics, profile_of, shipped
from servingpool.adapters.prometheus.engines.profile import HISTOGRAMS, Figure
from servingpool.adapters.prometheus.gateways import shipped_gateways
from servingpool.adapters.prometheus.plan import FIELDS
from servingpool.adapters.prometheus.promql import Queries, Scope
from servingpool.adapters.prometheus.samples import ReadRequest, lost_parts, with_own_buckets
from servingpool.decision.observation import NOT_EXPOSED, Histogram, ReplicaMetrics

FIXTURES = Path(__file__).parents[3] / "fixtures"
ENGINES = FIXTURES / "engines"
REQUEST = ReadRequest(ttft_bounds=frozenset({2.0}), tpot_bounds=frozenset({0.1}))
MODEL = {"tensorrt-llm": "", "tgi": "", "llamacpp": ""}
"""What the engine calls the model; nothing where it has no label for it."""

SMOOTH = {"generation_tokens": 703, "prompt_tokens": 6824, "time_to_first_token": 10}
"""Ten requests have their first token; 703 tokens have come out, of those under way too."""
ENDED = {"generation_tokens": 433, "prompt_tokens": 3288}
"""Six requests have ended, and one was aborted, which these engines leave out."""
WARMED = {"generation_tokens": 707, "prompt_tokens": 6830, "cached_prompt_tokens": 768, "queue_time": 12}
"""SGLang's warm-up is in it: two requests of four tokens for three."""
BUSY: dict[str, dict[str, int | None]] = {
    "lmdeploy-0.18.0": {**SMOOTH, "cached_prompt_tokens": 768, "inter_token_latency": 693, "queue_time": 6},
    "nim-1.0.0": {**SMOOTH, "inter_token_latency": 693, "time_per_output_token": 693},
    "sglang-0.5.6.post2": {"generation_tokens": 459, "prompt_tokens": 3806, "time_to_first_token": 12},
    "sglang-0.5.10": {**WARMED, "time_to_first_token": 12, "time_per_output_token": 516},
    "sglang-0.5.23": {**WARMED, "begun": 12, "time_to_first_token": 7, "time_per_output_token": 3},
    "tensorrt-llm-050f80de": {**ENDED, "time_to_first_token": 6, "inter_token_latency": 427, "begun": 9},
    "tgi-3.3.7": {"generation_tokens": 703, "prompt_tokens": 7336, "time_to_first_token": 10, "begun": 10},
}
"""Counts by page, three requests running and one queued; None where the engine does not tell."""


def engine_of(name: str) -> str:
    return next(engine for engine in sorted(shipped(), key=len, reverse=True) if name.startswith(engine))


def text_of(name: str) -> str:
    return (ENGINES / f"{name}.txt").read_text()


def read(name: str) -> ReplicaMetrics:
    engine = engine_of(name)
    samples = page.parse(text_of(name))
    return page.read(profile_of(engine), samples, REQUEST)[MODEL.get(engine, "org/model")]


def count(figure: object) -> object:
    return None if figure is NOT_EXPOSED else figure.count if isinstance(figure, Histogram) else figure


@pytest.mark.parametrize("name", BUSY)
def test_a_busy_engine_is_read_as_it_was(name):
    metrics = read(name)
    assert {field: count(getattr(metrics, field)) for field in BUSY[name]} == BUSY[name]
    assert (metrics.running, metrics.waiting) == (3, 1)
    itl = metrics.inter_token_latency
    # Each token came 20 ms after the one before; of TGI's mean the prefill is a part.
    assert itl.total / itl.count == pytest.approx(0.0209 if name.startswith("tgi") else 0.02, rel=1e-3)


@pytest.mark.parametrize("name", ["lmdeploy-0.18.0", "nim-1.0.0", "sglang-0.5.23", "tensorrt-llm-050f80de"])
def test_the_slos_are_judged_by_the_buckets_that_the_page_has(name):
    metrics = with_own_buckets(read(name), 2.0, 0.1)
    ttft, tpot = metrics.time_to_first_token, metrics.time_per_output_token
    assert max(bound for bound in ttft.bounds if bound <= 2.0) >= 1.0
    assert 0.1 in tpot.bounds
    assert tpot.counts[tpot.bounds.index(0.1)] == tpot.count  # all tokens were on time


def test_two_data_parallel_ranks_are_added_and_two_tensor_parallel_ones_are_not():
    """With metrics for all schedulers, each tensor-parallel rank tells the same figure."""
    assert read("sglang-0.5.23-tp2").running == read("sglang-0.5.23").running == 3
    assert read("sglang-0.5.23-tp2").waiting == 1


def test_a_request_without_streaming_is_not_judged():
    text = text_of("sglang-0.5.23")
    assert 'sglang:time_to_first_token_seconds_count{engine_type="unified",is_streaming="false"' in text
    assert read("sglang-0.5.23").time_to_first_token.total == pytest.approx(7 * 0.286)


def test_an_engine_that_has_only_warmed_up_has_served_nobody():
    metrics = with_own_buckets(read("sglang-0.5.23-idle"), 2.0, 0.1)
    assert metrics.time_to_first_token == Histogram((), (), 0.0, 0.0)
    assert metrics.running == 0


def test_requests_without_streaming_are_begun_though_none_is_judged():
    """Else a pool without streaming would shrink under full load."""
    metrics = read("sglang-0.5.23-idle")
    assert metrics.begun == 2
    assert metrics.time_to_first_token.count == 0


def test_priorities_twins_are_left_out_and_their_requests_added():
    plain = text_of("sglang-0.5.23")
    twins = []
    for line in plain.splitlines():
        if line.startswith(("sglang:num_running_reqs{", "sglang:num_queue_reqs{")):
            twins.append(line.replace("{", '{priority="1",', 1))
        elif line.startswith("sglang:time_to_first_token_seconds") and 'is_streaming="true"' in line:
            twins.append(line.replace("{", '{priority="2",', 1))
    metrics = page.read(profile_of("sglang"), page.parse("\n".join([plain, *twins, ""])), REQUEST)["org/model"]
    assert (metrics.running, metrics.waiting) == (3, 1)
    assert metrics.time_to_first_token.count == 14


def test_a_prompt_that_was_transferred_is_computed_by_the_prefill_engine_alone():
    """Pages of two real engines joined by NIXL, after the same requests; a part of their prompts began alike."""
    prefill, decode = (
        page.read(profile_of("vllm"), page.parse((FIXTURES / f"vllm-0.32.0-{role}-metrics.txt").read_text()))["tiny"]
        for role in ("prefill", "decode")
    )
    assert decode.prompt_tokens == decode.cached_prompt_tokens == prefill.prompt_tokens
    assert prefill.prompt_tokens > prefill.cached_prompt_tokens > 0
    requests = prefill.time_to_first_token.count
    assert prefill.generation_tokens == decode.time_to_first_token.count == requests
    assert prefill.inter_token_latency.count == 0
    assert decode.inter_token_latency.count == decode.generation_tokens - requests > 0


def test_a_label_that_is_called_group_can_choose_among_series():
    """Prometheus refused the query of all pools of such an engine: its rows had lost that label."""
    tokens = "acme_tokens_total"
    acme = EngineMetrics.model_validate(
        {
            "figures": {
                "running": ["acme_busy"],
                "generationTokens": [{"name": tokens, "labels": {"group": "output"}}],
                "promptTokens": [{"name": tokens, "labels": {"group": ["input", "cached"]}}],
            }
        }
    )
    values = {"output": 1, "input": 20, "cached": 300}
    text = "".join(f'{tokens}{{group="{group}"}} {value}\n' for group, value in values.items())
    metrics = page.read(acme, page.parse(f"acme_busy 4\n{text}"))[""]
    assert (metrics.running, metrics.generation_tokens, metrics.prompt_tokens) == (4, 1, 320)
    assert '"group"' not in Queries(acme).samples({}, Scope())


def test_what_waits_in_lmdeploys_api_server_waits():
    found = {one.figure: one for one in page.find(profile_of("lmdeploy"), page.parse(text_of("lmdeploy-0.18.0")))}
    assert {one.name: one.value for one in found[Figure.WAITING].samples} == {
        "lmdeploy:num_requests_waiting": 0,
        "lmdeploy:num_api_requests_waiting": 1,
    }


@pytest.mark.parametrize("name", [*BUSY, "llamacpp-b0c1e570", "llamacpp-0.3.32"])
def test_no_engine_that_can_be_used_lacks_a_figure(name):
    """Of llama.cpp the prefill stands for the first token."""
    assert page.lacking(page.find(profile_of(engine_of(name)), page.parse(text_of(name))), tpot=True) == []


@pytest.mark.parametrize("name", BUSY)
def test_any_part_of_a_histogram_that_a_monitor_drops_is_named(name):
    """An engine exports all parts, so a sentence that says to update it would be a guess, and wrong."""
    whole, profile = page.parse(text_of(name)), profile_of(engine_of(name))
    for figure in HISTOGRAMS[:3]:
        names = [one.name for one in profile.figures.get(figure, ()) if count(getattr(read(name), figure.field))]
        for part, ending in {"buckets": "_bucket", "sum": "_sum", "count": "_count"}.items() if all(names) else ():
            left = [one for one in whole if one.name not in {f"{each}{ending}" for each in names}]
            (metrics,) = page.read(profile, left, REQUEST).values()
            lost = f"the {part} of {figure.field.replace('_', ' ')}"
            needed = bool(names) and (part != "buckets" or figure is not Figure.INTER_TOKEN_LATENCY)
            assert (lost in lost_parts([with_own_buckets(metrics, 2.0, 0.1)])) is needed


def test_a_prefill_stands_for_a_ttft_that_begins_at_admission():
    metrics = read("tgi-3.3.7")
    assert metrics.ttft_from_admission
    assert metrics.time_to_first_token.total == pytest.approx(1.11)  # all prefills, and no decode step
    assert not read("sglang-0.5.23").ttft_from_admission


def test_llamacpp_tells_tokens_and_their_seconds():
    metrics = read("llamacpp-b0c1e570")
    itl = metrics.inter_token_latency
    assert itl.count == metrics.generation_tokens == 7200
    assert 0.0005 < itl.total / itl.count < 0.005
    assert (metrics.prompt_tokens, metrics.cached_prompt_tokens, metrics.prefill_seconds) == (200, 96, 0.015234)


def test_llamacpp_before_it_counted_cached_tokens_tells_those_it_computed():
    name = "llamacpp-0.3.32"
    metrics = read(name)
    assert (metrics.prompt_tokens, metrics.cached_prompt_tokens) == (6886.0, NOT_EXPOSED)


def test_no_profile_reads_another_engines_page():
    for name in (*BUSY, "llamacpp-b0c1e570", "llamacpp-0.3.32"):
        samples = page.parse(text_of(name))
        readers = [engine for engine, profile in shipped().items() if page.read(profile, samples)]
        assert readers == [engine_of(name)]


def test_a_page_that_is_html_is_refused():
    with pytest.raises(ValueError, match="invalid metric name"):
        page.parse("<html><body>Sign in</body></html>")
    with pytest.raises(ValueError, match="it has no sample"):
        page.parse("# nothing\n")


@pytest.mark.parametrize("path", sorted(ENGINES.glob("*.txt")), ids=lambda path: path.stem)
def test_a_label_of_the_engines_own_changes_no_figure(path: Path) -> None:
    """Such as the tenant, which several engines and gateways add by a switch: each has a part of every count."""
    gateway = path.stem.removeprefix("gateway-")
    known = {name: one.metrics for name, one in shipped_gateways().items()} if gateway != path.stem else shipped()
    profile = known[max((name for name in known if gateway.startswith(name)), key=len)]
    plain = page.parse(path.read_text())
    parts = [
        page.Sample(one.name, {**one.labels, "tenant": tenant}, one.value * share)
        for one in plain
        for tenant, share in ((("a", 0.25), ("b", 0.75)) if one.name not in profile.gauges else (("", 1.0),))
    ]
    whole, divided = (page.read(profile, samples, REQUEST) for samples in (plain, parts))
    assert whole
    assert divided.keys() == whole.keys()
    for model, metrics in whole.items():
        for name in FIELDS:
            one, other = getattr(metrics, name), getattr(divided[model], name)
            assert other == (pytest.approx(one) if isinstance(one, float) else one)
    assert page.ambiguous(profile, parts) == []
