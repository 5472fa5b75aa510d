from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import orjson
import pytest

from .engine_pods import MODEL, Pod, engine_pod, eventually, samples


@pytest.fixture
async def pod() -> AsyncIterator[Pod]:
    async with engine_pod() as made:
        yield made


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as made:
        yield made


def completion(**more: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": "one two three", "max_tokens": 4, "ignore_eos": True, **more}


def events(body: str) -> list[Any]:
    datas = [part.removeprefix("data: ") for part in body.split("\n\n") if part]
    assert datas.pop() == "[DONE]"
    return [orjson.loads(data) for data in datas]


async def test_a_stream_has_an_event_for_each_token_then_why_it_ended_then_the_usage(
    pod: Pod, http: aiohttp.ClientSession
) -> None:
    asked = completion(stream=True, stream_options={"include_usage": True})
    async with http.post(f"{pod.url}/v1/completions", json=asked) as answer:
        assert (answer.status, answer.content_type) == (200, "text/event-stream")
        *tokens, end, usage = events(await answer.text())
    assert [(t["choices"][0]["text"], t["choices"][0]["finish_reason"]) for t in tokens] == [(" token", None)] * 4
    assert end["choices"][0]["finish_reason"] == "length"
    assert usage["choices"] == []
    assert usage["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    assert {event["id"] for event in (*tokens, end, usage)} == {usage["id"]}


async def test_a_chat_in_one_piece(pod: Pod, http: aiohttp.ClientSession) -> None:
    messages = [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": [{"type": "text", "text": "a b"}]},
    ]
    async with http.post(
        f"{pod.url}/v1/chat/completions", json={"model": "alias", "messages": messages, "max_completion_tokens": 2}
    ) as answer:
        body = await answer.json()
    assert body["choices"][0]["message"] == {"role": "assistant", "content": " token token"}
    assert body["usage"]["prompt_tokens"] == 4
    assert body["model"] == "alias"


async def test_a_list_of_token_ids_is_a_prompt_of_that_length(pod: Pod, http: aiohttp.ClientSession) -> None:
    async with http.post(f"{pod.url}/v1/completions", json=completion(prompt=list(range(77)))) as answer:
        assert (await answer.json())["usage"]["prompt_tokens"] == 77


@pytest.mark.parametrize(
    ("wrong", "status", "kind", "says"),
    [
        ({"model": "other"}, 404, "NotFoundError", "The model `other` does not exist."),
        ({"prompt": "w " * 4096}, 400, "BadRequestError", "maximum context length is 4096 tokens"),
        ({"prompt": None}, 400, "BadRequestError", "prompt"),
        ({"max_tokens": 0.5}, 400, "BadRequestError", "max_tokens"),
        ({"n": 2}, 400, "BadRequestError", "n must be 1"),
    ],
)
async def test_what_cannot_be_answered_is_refused_in_openais_form(
    pod: Pod, http: aiohttp.ClientSession, wrong: dict[str, Any], status: int, kind: str, says: str
) -> None:
    async with http.post(f"{pod.url}/v1/completions", json=completion(**wrong)) as answer:
        error = (await answer.json())["error"]
        assert answer.status == status
    assert (error["type"], error["code"]) == (kind, status)
    assert says in error["message"]
    assert (await samples(pod.url))["vllm:time_to_first_token_seconds_count"] == 0


async def test_models_health_and_version(pod: Pod, http: aiohttp.ClientSession) -> None:
    async with http.get(f"{pod.url}/v1/models") as answer:
        models = (await answer.json())["data"]
    assert [(model["id"], model["max_model_len"]) for model in models] == [(MODEL, 4096), ("alias", 4096)]
    async with http.get(f"{pod.url}/health") as answer:
        assert answer.status == 200


async def test_an_answer_that_has_the_length_asked_for_counts_as_length(pod: Pod, http: aiohttp.ClientSession) -> None:
    async with http.post(f"{pod.url}/v1/completions", json=completion()) as answer:
        await answer.read()
    async with http.get(f"{pod.url}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    counted = {line.split('"')[3]: line.split()[-1] for line in lines if line.startswith("vllm:request_success_total")}
    assert counted == {"length": "1.0", "stop": "0.0", "abort": "0.0", "error": "0.0", "repetition": "0.0"}


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_hangs_up_frees_its_place_and_is_counted_nowhere(
    pod: Pod, http: aiohttp.ClientSession, *, stream: bool
) -> None:
    asked = completion(stream=stream, max_tokens=4000)
    call = asyncio.create_task(http.post(f"{pod.url}/v1/completions", json=asked))
    await eventually(lambda: pod.replica.in_flight == 1)
    if stream:
        answer = await call
        await answer.content.readany()
        answer.close()
    else:
        call.cancel()
    await eventually(lambda: pod.replica.in_flight == 0)
    await asyncio.sleep(0.05)
    page = await samples(pod.url)
    assert (page["vllm:num_requests_running"], page["vllm:kv_cache_usage_perc"]) == (0, 0)
    assert (page["vllm:request_success_total"], page["vllm:e2e_request_latency_seconds_count"]) == (0, 0)


CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "a b"}], "max_completion_tokens": 4}


@pytest.mark.parametrize(("path", "asked"), [("completions", completion()), ("chat/completions", CHAT)])
async def test_while_it_drains_a_new_request_gets_http_200_and_no_token(
    pod: Pod, http: aiohttp.ClientSession, path: str, asked: dict[str, Any]
) -> None:
    pod.server.draining = True
    async with http.post(f"{pod.url}/v1/{path}", json={**asked, "stream": True}) as answer:
        assert (answer.status, answer.content_type) == (200, "text/event-stream")
        assert await answer.text() == "data: [DONE]\n\n"
    with_usage = {**asked, "stream": True, "stream_options": {"include_usage": True}}
    async with http.post(f"{pod.url}/v1/{path}", json=with_usage) as answer:
        [usage] = events(await answer.text())
        assert (usage["choices"], usage["usage"]["completion_tokens"]) == ([], 0)
    async with http.post(f"{pod.url}/v1/{path}", json=asked) as answer:
        body = await answer.json()
        assert answer.status == 200
    [choice] = body["choices"]
    assert choice["finish_reason"] is None
    assert (choice["message"]["content"] if "message" in choice else choice["text"]) == ""
    assert body["usage"]["completion_tokens"] == 0
    assert pod.replica.in_flight == 0
    assert (await samples(pod.url))["vllm:prompt_tokens_total"] == 0


async def test_a_request_whose_body_ends_after_sigterm_is_a_new_one(pod: Pod, http: aiohttp.ClientSession) -> None:
    body = orjson.dumps(completion(stream=True))

    async def halting() -> AsyncIterator[bytes]:
        yield body[:10]
        await asyncio.sleep(0.1)
        pod.server.draining = True
        yield body[10:]

    async with http.post(f"{pod.url}/v1/completions", data=halting()) as answer:
        assert (answer.status, await answer.text()) == (200, "data: [DONE]\n\n")
