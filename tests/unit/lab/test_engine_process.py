"""How an engine pod's process begins and ends, as a kubelet and the clients see it."""

from __future__ import annotations

import contextlib

import aiohttp
import orjson
import pytest

from .engine_pods import MODEL, PodProcess, engine_process

LONG = {"model": MODEL, "prompt": "one two", "max_tokens": 300, "stream": True}
"""3 s: still under way when the signal has come."""
QUICK = ("--slower=0.4", "--load-seconds=0")


async def stream_through_shutdown(pod: PodProcess, http: aiohttp.ClientSession) -> tuple[int, str]:
    """Status and body of a stream whose server is told to stop at its first token."""
    async with http.post(f"{pod.url}/v1/completions", json=LONG) as answer:
        body = await answer.content.readany()
        pod.terminate()
        with contextlib.suppress(aiohttp.ClientError):
            body += await answer.content.read()
        return answer.status, body.decode()


async def test_while_it_loads_connections_are_refused() -> None:
    async with engine_process("--load-seconds=600") as pod, aiohttp.ClientSession() as http:
        await pod.says("loading")
        with pytest.raises(aiohttp.ClientConnectorError):
            await http.get(f"{pod.url}/health")


async def test_loading_ends_at_once_when_the_pod_is_deleted() -> None:
    async with engine_process("--load-seconds=600") as pod:
        await pod.says("loading")
        pod.terminate()
        assert await pod.exit_code() == 0


async def test_by_default_the_end_cuts_streams_with_an_error_inside_http_200() -> None:
    async with engine_process(*QUICK) as pod, aiohttp.ClientSession() as http:
        await pod.loaded()
        status, body = await stream_through_shutdown(pod, http)
        assert status == 200
        events = [orjson.loads(part[6:]) for part in body.split("\n\n") if part and "[DONE]" not in part]
        assert events[-1]["error"]["code"] == 500
        assert len(events) < 300
        assert await pod.exit_code() == 0
        with pytest.raises(aiohttp.ClientConnectorError):
            await http.get(f"{pod.url}/health")


async def test_with_a_shutdown_timeout_what_is_in_flight_is_finished_and_nothing_new_is_taken() -> None:
    async with (
        engine_process(*QUICK, "--shutdown-timeout=20", "--max-num-seqs=1") as pod,
        aiohttp.ClientSession() as http,
    ):
        await pod.loaded()
        async with (
            http.post(f"{pod.url}/v1/completions", json=LONG) as running,
            http.post(f"{pod.url}/v1/completions", json={**LONG, "max_tokens": 5}) as waiting,
        ):
            pod.terminate()
            await pod.says("draining")
            async with http.post(f"{pod.url}/v1/completions", json=LONG) as new:
                assert (new.status, await new.text()) == (200, "data: [DONE]\n\n")
            async with http.get(f"{pod.url}/health") as health:
                assert health.status == 200
            for answer, tokens in ((running, 300), (waiting, 5)):
                body = await answer.text()
                assert (answer.status, body.count(" token"), "error" in body) == (200, tokens, False)
                assert body.endswith("data: [DONE]\n\n")
        assert await pod.exit_code() == 0


async def test_a_wrong_command_line_is_told_what_is_wrong() -> None:
    async with engine_process("--max-num-seqs=0") as pod:
        assert await pod.exit_code() == 2
