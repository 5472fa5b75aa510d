"""Pages of gateways that run in a cluster alone, written from their sources; the story's requests, one of them held."""

from engine_pages import story
from engine_pages.writer import Writer

SOURCES = {
    "gateway-envoy-ai-gateway-0.5": "by hand from internal/metrics of Envoy AI Gateway 0.5",
    "gateway-inference-extension-1.0": "by hand from pkg/epp/metrics of the Gateway API inference extension 1.0.0",
    "gateway-inference-extension-1.2": "by hand from pkg/epp/metrics of the Gateway API inference extension 1.2.0",
    "gateway-inference-extension-1.5": "by hand from pkg/epp/metrics of the Gateway API inference extension 1.5.0",
    "gateway-llm-d-epp-0.10.0": "by hand from pkg/epp/metrics of llm-d-router 0.10.0",
    "gateway-production-stack-0.1.12": "by hand from src/vllm_router of vLLM's production-stack 0.1.12",
}
TTFT = (
    *(0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0),
    *(30.0, 45.0, 60.0, 120.0),
)
TPOT = (
    *(0.0005, 0.00205, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.125, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 2.0),
)
HELD = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
DURATION = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
ENVOY_TTFT = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 15.0, 20.0),
    *(30.0, 45.0, 60.0),
)
ENVOY_TPOT = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)


def _go(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    return str(int(value)) if value == int(value) else repr(value)


def llm_d_epp(now: float) -> str:
    """EPP with flow control: it holds the story's queue, and counts a request when it has left that queue.

    Deprecated twins of `request_total` and `flow_control_queue_size` are on the page, as in 0.10.
    """
    model = {"model_name": story.MODEL, "target_model_name": story.MODEL}
    of_request = {**model, "fairness_id": "default-flow", "priority": "0"}
    page = Writer({}, _go)
    sent = [request for request in story.REQUESTS if request.starts <= now]
    answered = [request for request in sent if request.generated(now)]
    over = [request for request in sent if request.ends <= now]
    page.counter("llm_d_epp_request_total", "[ALPHA] Total number of processed requests.", (len(sent), of_request))
    text = "[ALPHA] [Deprecated: Use llm_d_epp_request_total] Counter of inference objective requests."
    page.counter("inference_objective_request_total", text, (len(sent), {**model, "priority": "0"}))
    text = "[ALPHA] Current number of active running requests."
    page.gauge("llm_d_epp_request_running", text, len(story.running(now)), **of_request)
    page.head("histogram", "llm_d_epp_request_ttft_seconds", "[ALPHA] Time to first token in seconds.")
    for streaming in (False, True):
        first = [r.token_time(1 if streaming else r.output) - r.arrives for r in sent if r.streaming == streaming]
        seen = [
            s for s, r in zip(first, [r for r in sent if r.streaming == streaming], strict=True) if r.arrives + s <= now
        ]
        page.buckets("llm_d_epp_request_ttft_seconds", TTFT, seen, **of_request, streaming=str(streaming).lower())
    text = "[ALPHA] Average time per output token in seconds for streaming requests."
    page.head("histogram", "llm_d_epp_request_streaming_tpot_seconds", text)
    tpot = [request.tpot for request in over if request.streaming and request.output > 1]
    page.buckets("llm_d_epp_request_streaming_tpot_seconds", TPOT, tpot, **of_request)
    text = "[ALPHA] Number of requests held in the Flow Control queue."
    queue = {**of_request, "inference_pool": "pool"}
    for prefix in ("llm_d_epp", "inference_extension"):
        page.gauge(f"{prefix}_flow_control_queue_size", text, len(story.waiting(now)), **queue)
    text = "[ALPHA] Total time requests spend in the Flow Control layer."
    page.head("histogram", "llm_d_epp_flow_control_request_queue_duration_seconds", text)
    waits = [request.waits for request in sent]
    page.buckets("llm_d_epp_flow_control_request_queue_duration_seconds", HELD, waits, **queue, outcome="Dispatched")
    text = "[ALPHA] Pool saturation signal gating Flow Control dispatch."
    page.gauge("llm_d_epp_flow_control_pool_saturation", text, 1.0, inference_pool="pool")
    for name, text, value in (
        ("average_kv_cache_utilization", "The average kv cache utilization for an inference server pool.", 0.16),
        ("average_queue_size", "The average number of requests pending in the model server queue.", 0.0),
        ("average_running_requests", "The average number of running requests in the pool.", len(answered) - len(over)),
        ("ready_endpoints", "The number of ready endpoints in the inference server pool.", 1.0),
    ):
        page.gauge(f"llm_d_epp_{name}", f"[ALPHA] {text}", value, name="pool")
    return page.page


def production_stack(now: float) -> str:
    """The router, whose gauges have vLLM's names with a label `server`, and whose own counters have `model`."""
    page = Writer({})
    server = {"server": "http://10.0.0.1:8000"}
    model = {"model": story.MODEL}
    arrived = [request for request in story.REQUESTS if request.arrives <= now]
    over = [request for request in story.REQUESTS if request.ends <= now and not request.aborted]
    in_flight = len(story.running(now)) + len(story.waiting(now))
    page.gauge("vllm:num_requests_running", "Number of running requests", in_flight, **server)
    page.gauge("vllm:current_qps", "Current Queries Per Second", round(len(arrived) / 60, 3), **server)
    page.gauge("vllm:num_prefill_requests", "Number of Prefill Requests", len(story.waiting(now)), **server)
    page.gauge("vllm:num_decoding_requests", "Number of Decoding Requests", len(story.running(now)), **server)
    text = "Total valid incoming requests to router (including when no backends available)."
    page.counter("vllm:num_incoming_requests_total", text, (len(arrived), model), (3, {"model": "org/asleep"}))
    page.gauge("vllm:healthy_pods_total", "Number of healthy vLLM pods", 1, **server)
    both = {**server, **model}
    page.counter("vllm:input_tokens_total", "Total input tokens processed", (sum(r.prompt for r in over), both))
    page.counter("vllm:output_tokens_total", "Total output tokens generated", (sum(r.output for r in over), both))
    bounds = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
    page.head("histogram", "vllm:request_latency_seconds", "End-to-end request latency observed at the router")
    latencies = [round(request.ends - request.arrives, 6) for request in over]
    page.buckets("vllm:request_latency_seconds", bounds, latencies, **both, status="success")
    return page.page


def _inference_extension(now: float, requests: str, own: dict[str, str], queue: dict[str, str] | None) -> str:
    """The endpoint picker before it moved to llm-d, which has no TTFT.

    `requests`: first part of the names. `own`: further labels of its counter. `queue`: labels of the gauge of what it
    holds, which is the story's queue; None where it has none, and sends all on at once.
    """
    model = {"model_name": story.MODEL, "target_model_name": story.MODEL}
    page = Writer({}, _go)
    sent = [request for request in story.REQUESTS if (request.arrives if queue is None else request.starts) <= now]
    said = requests.replace("_", " ")
    text = f"[ALPHA] Counter of {said} requests broken out for each model and target model."
    page.counter(f"{requests}_request_total", text, (len(sent), {**model, **own}))
    text = f"[ALPHA] {said.capitalize()} number of running requests in each model."
    page.gauge(f"{requests}_running_requests", text, len(story.running(now)), model_name=story.MODEL)
    if queue is not None:
        text = "[ALPHA] Current number of requests being actively managed by the EPP flow control layer."
        page.gauge("inference_extension_flow_control_queue_size", text, len(story.waiting(now)), **queue)
    text = "[ALPHA] The number of ready pods in the inference server pool."
    page.gauge("inference_pool_ready_pods", text, 1.0, name="pool")
    return page.page


def inference_extension_1_0(now: float) -> str:
    """No flow control, and the names of before the objective."""
    return _inference_extension(now, "inference_model", {}, None)


def inference_extension_1_2(now: float) -> str:
    """As 1.1: the queue names no model."""
    return _inference_extension(now, "inference_objective", {}, {"fairness_id": "default-flow", "priority": "0"})


def inference_extension_1_5(now: float) -> str:
    """The queue has named its model since 1.3; the counter has a priority since 1.5."""
    model = {"model_name": story.MODEL, "target_model_name": story.MODEL}
    queue = {**model, "fairness_id": "default-flow", "priority": "0", "inference_pool": "pool"}
    return _inference_extension(now, "inference_objective", {"priority": "0"}, queue)


def envoy_ai_gateway(now: float) -> str:
    """Its external processor, as OpenTelemetry exports it: requests at their end, TTFT of the streaming ones."""
    page = Writer({})
    model = dict.fromkeys(("gen_ai_original_model", "gen_ai_request_model", "gen_ai_response_model"), story.MODEL)
    own = {**model, "gen_ai_operation_name": "chat", "gen_ai_provider_name": "openai", "otel_scope_version": ""}
    own["otel_scope_name"] = "envoyproxy/ai-gateway"
    sent = [request for request in story.REQUESTS if request.starts <= now]
    over = [request for request in sent if request.ends <= now and not request.aborted]
    text = "Generative AI server request duration such as time-to-last byte or last output token."
    page.head("histogram", "gen_ai_server_request_duration_seconds", text)
    latencies = [request.ends - request.arrives for request in over]
    page.buckets("gen_ai_server_request_duration_seconds", DURATION, latencies, **own)
    text = "Time to receive first token in streaming responses."
    page.head("histogram", "gen_ai_server_time_to_first_token_seconds", text)
    first = [
        request.token_time(1) - request.arrives for request in sent if request.streaming and request.generated(now)
    ]
    page.buckets("gen_ai_server_time_to_first_token_seconds", ENVOY_TTFT, first, **own)
    text = "Time per output token generated after the first token for successful responses."
    page.head("histogram", "gen_ai_server_time_per_output_token_seconds", text)
    tpot = [request.tpot for request in over if request.streaming and request.output > 1]
    page.buckets("gen_ai_server_time_per_output_token_seconds", ENVOY_TPOT, tpot, **own)
    return page.page


PAGES = {
    "gateway-envoy-ai-gateway-0.5": envoy_ai_gateway,
    "gateway-inference-extension-1.0": inference_extension_1_0,
    "gateway-inference-extension-1.2": inference_extension_1_2,
    "gateway-inference-extension-1.5": inference_extension_1_5,
    "gateway-llm-d-epp-0.10.0": llm_d_epp,
    "gateway-production-stack-0.1.12": production_stack,
}
