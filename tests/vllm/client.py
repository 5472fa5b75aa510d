"""A client that streams completions and notes when each token came."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import pairwise
from types import MappingProxyType
from typing import Any, TypeVar

import aiohttp

from .engine import MODEL

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to be sent, whatever became of those before it."""

    at: float
    """Seconds from the start of the traffic."""
    prompt: Sequence[int]
    output: int
    leave_after: int | None = None
    """Tokens after which the client hangs up."""


class End(Enum):
    """What became of a request."""

    WHOLE = auto()
    LEFT = auto()
    """The client hung up."""
    CUT = auto()
    """The engine broke the stream off."""
    REFUSED = auto()
    """The engine did not take it in."""


@dataclass(slots=True)
class Answer:
    """One request as its client saw it; times are Unix seconds."""

    sent: float
    status: int = 0
    """Of the reply, or of the error that ended its stream."""
    ended: float = 0.0
    end: End = End.CUT
    times: list[float] = field(default_factory=list)
    """When each output token was there."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    complaint: str = ""
    """The engine's, where it refused or cut."""

    @property
    def first_token(self) -> float:
        """TTFT, seconds."""
        return self.times[0] - self.sent

    @property
    def per_token(self) -> float:
        """TPOT, seconds: the mean time between two output tokens."""
        return self.decoding / (len(self.times) - 1)

    @property
    def decoding(self) -> float:
        """Seconds from the first output token to the last."""
        return self.times[-1] - self.times[0]

    @property
    def gaps(self) -> list[float]:
        """Inter-token latencies, seconds."""
        return [later - earlier for earlier, later in pairwise(self.times)]


async def replay(url: str, asks: Sequence[Ask]) -> list[Answer]:
    """Send each at its time, open loop, and wait for all."""

    async def one(session: aiohttp.ClientSession, ask: Ask) -> Answer:
        return await complete(session, url, ask)

    return await replay_by(one, asks)


def client_session() -> aiohttp.ClientSession:
    """A session that sends each request at once, for the queue is to be in the engine, on a connection of its own.

    On a connection that the server closes as idle at that moment, the request would be lost.
    """
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=600), connector=connector)


async def replay_by(serve: Callable[[aiohttp.ClientSession, Ask], Awaitable[T]], asks: Sequence[Ask]) -> list[T]:
    """What became of each, which `serve` sends at its time."""
    async with client_session() as session:
        begin = time.monotonic()

        async def one(ask: Ask) -> T:
            await asyncio.sleep(max(0.0, begin + ask.at - time.monotonic()))
            return await serve(session, ask)

        return list(await asyncio.gather(*map(one, asks)))


async def complete(
    session: aiohttp.ClientSession, url: str, ask: Ask, more: Mapping[str, Any] = MappingProxyType({})
) -> Answer:
    """Send one request, with `more` in it, and follow its stream to the end."""
    body = {
        "model": MODEL,
        "prompt": list(ask.prompt),
        "max_tokens": ask.output,
        "ignore_eos": True,
        "stream": True,
        # The number of tokens so far comes with each event: an event is not always one token.
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        **more,
    }
    answer = Answer(sent=time.time())
    try:
        async with session.post(f"{url}/v1/completions", json=body) as response:
            answer.status = response.status
            if response.status != 200:
                answer.end, answer.complaint = End.REFUSED, await response.text()
            else:
                await _follow(response, answer, ask)
    except aiohttp.ClientError as error:
        answer.complaint = repr(error)
    answer.ended = time.time()
    return answer


async def _follow(response: aiohttp.ClientResponse, answer: Answer, ask: Ask) -> None:
    async for event in _events(response):
        if "error" in event:
            # The status is sent before the engine is asked, so that a stream is refused inside of HTTP 200.
            answer.complaint, answer.status = event["error"]["message"], event["error"]["code"]
            answer.end = End.CUT if answer.times else End.REFUSED
            return
        usage = event["usage"]
        new = usage["completion_tokens"] - len(answer.times)
        answer.times += [time.time()] * new
        if ask.leave_after is not None and len(answer.times) >= ask.leave_after:
            answer.end = End.LEFT
            response.close()
            return
        if not event["choices"]:
            # A draining engine ends a new stream in good order, without a token and without a reason.
            answer.end = End.WHOLE if len(answer.times) == ask.output else End.CUT if answer.times else End.REFUSED
            answer.prompt_tokens = usage["prompt_tokens"]
            answer.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    async for line in response.content:
        data = line.strip().removeprefix(b"data: ")
        if data and data != b"[DONE]":
            yield json.loads(data)
