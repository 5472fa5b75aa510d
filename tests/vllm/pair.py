"""A prefill engine and a decode engine, joined by NIXL, and what a proxy in front of them does with a request."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from servingpool.decision.roles import DECODE, PREFILL
from servingpool_lab.control_plane import free_ports

from .client import Answer, Ask, End, complete, replay_by
from .engine import MODEL, Vllm, write_model

KV_ROLES = {PREFILL: "kv_producer", DECODE: "kv_consumer"}
PODS = {PREFILL: "prefill-7f9c6d5b4-x2x4z", DECODE: "decode-6b8d5c7f9-k9w2m"}
"""Each role's pod. Its Deployment is called as the role."""
TO_DECODE = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    **dict.fromkeys(("remote_engine_id", "remote_block_ids", "remote_host", "remote_port")),
}
"""What vLLM's own proxy asks a prefill engine for."""


@dataclass(frozen=True, slots=True)
class Handed:
    """One request on its way through both engines, as the proxy saw it."""

    prefill: Answer
    """The one token came when the whole reply was there."""
    decode: Answer
    """Sent when that reply was there; its tokens are the client's."""

    @property
    def first_token(self) -> float:
        """The client's TTFT, seconds."""
        return self.decode.times[0] - self.prefill.sent


@dataclass(frozen=True, slots=True)
class Pair:
    """One engine of each role."""

    prefill: Vllm
    decode: Vllm

    @property
    def pods(self) -> Mapping[str, Vllm]:
        """By the names of their pods."""
        return {PODS[PREFILL]: self.prefill, PODS[DECODE]: self.decode}

    async def replay(self, asks: Sequence[Ask]) -> list[Handed]:
        """Send each at its time, open loop, through both engines, and wait for all."""
        return await replay_by(self.hand_over, asks)

    async def hand_over(self, session: aiohttp.ClientSession, ask: Ask) -> Handed:
        """As vLLM's proxy does: a request of one token, then the client's own with what that says of its KV cache."""
        begun = Answer(sent=time.time())
        reply = await _post(session, self.prefill.url, ask, {"max_tokens": 1, "kv_transfer_params": TO_DECODE}, begun)
        begun.times, begun.end = [begun.ended], End.WHOLE
        begun.prompt_tokens = reply["usage"]["prompt_tokens"]
        begun.cached_tokens = (reply["usage"]["prompt_tokens_details"] or {}).get("cached_tokens", 0)
        transfer = {"kv_transfer_params": reply["kv_transfer_params"]}
        return Handed(begun, await complete(session, self.decode.url, ask, transfer))

    async def texts(self, asks: Sequence[Ask]) -> list[tuple[str, str]]:
        """The answers to greedy requests, each through both engines and from one of them alone."""
        greedy = {"temperature": 0.0}

        async def one(session: aiohttp.ClientSession, ask: Ask) -> tuple[str, str]:
            first = {**greedy, "max_tokens": 1, "kv_transfer_params": TO_DECODE}
            begun = await _post(session, self.prefill.url, ask, first)
            after = {**greedy, "kv_transfer_params": begun["kv_transfer_params"]}
            through = await _post(session, self.decode.url, ask, after)
            alone = await _post(session, self.prefill.url, ask, greedy)
            return through["choices"][0]["text"], alone["choices"][0]["text"]

        return await replay_by(one, asks)


@contextmanager
def joined(python: Path, directory: Path) -> Iterator[Pair]:
    """Both engines, started side by side, and stopped at the end."""
    model = directory / "model"
    write_model(model)
    engines = [_engine(python, directory / role, role, model) for role in (PREFILL, DECODE)]
    with ExitStack() as stack:
        for one in engines:
            stack.callback(one.stop)
            one.process.start()
        for one in engines:
            one.process.wait_ready()
        yield Pair(*engines)


def _engine(python: Path, directory: Path, role: str, model: Path) -> Vllm:
    transfer = {"kv_connector": "NixlConnector", "kv_role": KV_ROLES[role], "kv_buffer_device": "cpu"}
    side_channel = {"VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1", "VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_ports(1)[0])}
    # The same path for both: NIXL refuses an engine of another model, and tells models apart by it.
    options = ("--model", str(model), "--kv-transfer-config", json.dumps(transfer))
    # Neither turns a request away, however slow this machine is.
    return Vllm(python, directory, *options, "--max-num-queued-reqs", "1000", environment=side_channel)


async def _post(
    session: aiohttp.ClientSession, url: str, ask: Ask, more: Mapping[str, Any], noted: Answer | None = None
) -> dict[str, Any]:
    """The reply to a request that is not streamed, with `more` in it; when it was there is `noted`."""
    body = {"model": MODEL, "prompt": list(ask.prompt), "max_tokens": ask.output, "ignore_eos": True, **more}
    async with session.post(f"{url}/v1/completions", json=body) as response:
        reply: dict[str, Any] = await response.json()
        assert response.status == 200, reply
    if noted is not None:
        noted.status, noted.ended = response.status, time.time()
    return reply
