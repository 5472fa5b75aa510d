"""One request: sent over a connection of its own, read token by token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import aiohttp
import orjson

from servingpool_lab.load_generator.record import CUT, OK, REFUSED, TIMEOUT, Record
from servingpool_lab.load_generator.traffic import Traffic

_DETAIL = 200
_TIMES_HEALTHY = 5
_BETWEEN = 0.2
_LONGEST_HEALTH = 2.0


class StreamBrokenError(Exception):
    """The stream ended before the answer did, or with an error inside."""


def session() -> aiohttp.ClientSession:
    """Makes a connection for each request, so that a Service balances requests, and has no limit of its own."""
    connector = aiohttp.TCPConnector(force_close=True, limit=0, ttl_dns_cache=300)
    return aiohttp.ClientSession(connector=connector, trust_env=False, auto_decompress=False)


async def healthy(http: aiohttp.ClientSession, url: str, within: float) -> bool:
    """Whether the service at `url` answers within so many seconds: some times in a row, each by a new connection."""
    answered = 0
    try:
        async with asyncio.timeout(within):
            while answered < _TIMES_HEALTHY:
                answered = answered + 1 if await _answers(http, url) else 0
                await asyncio.sleep(_BETWEEN)
    except TimeoutError:
        return False
    return True


async def _answers(http: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with http.get(f"{url}/health", timeout=aiohttp.ClientTimeout(total=_LONGEST_HEALTH)) as response:
            return response.status == 200
    except (aiohttp.ClientError, OSError):
        return False


async def ask(http: aiohttp.ClientSession, traffic: Traffic, record: Record, now: Callable[[], float]) -> None:
    """Sends the request and writes down what comes of it; does not raise what the other side causes."""
    record.sent = now()
    try:
        async with asyncio.timeout(traffic.timeout):
            await _exchange(http, traffic, record, now)
    except TimeoutError:
        record.outcome = TIMEOUT
    except aiohttp.ClientConnectorError as error:
        record.outcome, record.detail = REFUSED, str(error)[:_DETAIL]
    except Exception as error:  # whatever the other side says: a request that it breaks is lost, not forgotten
        record.outcome, record.detail = CUT, f"{type(error).__name__}: {error}"[:_DETAIL]
    record.ended = now()


async def _exchange(http: aiohttp.ClientSession, traffic: Traffic, record: Record, now: Callable[[], float]) -> None:
    timeout = aiohttp.ClientTimeout(total=None)
    async with http.post(traffic.url + traffic.endpoint, json=_body(traffic, record), timeout=timeout) as response:
        if response.status != 200:
            record.outcome, record.detail = f"http_{response.status}", (await response.text())[:_DETAIL]
            return
        reason: str | None = None
        async for event in _events(response.content):
            if "error" in event:
                raise StreamBrokenError(str(event["error"]))
            if any(_text(choice) for choice in event["choices"]):
                record.last_token = now()
                if record.first_token is None:
                    record.first_token = record.last_token
                record.tokens += 1
            reason = next((why for choice in event["choices"] if (why := choice.get("finish_reason"))), reason)
    # A vLLM that drains answers so: HTTP 200, and the end mark alone.
    if reason is None or record.first_token is None:
        raise StreamBrokenError(f"the stream ended with {record.tokens} tokens and finish_reason {reason}")
    record.outcome = OK


async def _events(content: aiohttp.StreamReader) -> AsyncIterator[dict[str, list[dict[str, str]]]]:
    """The data of each event up to the end mark. Raises StreamBrokenError where there is none."""
    rest = b""
    async for some in content.iter_any():
        *events, rest = (rest + some).split(b"\n\n")
        for event in events:
            data = event.removeprefix(b"data: ")
            if data == b"[DONE]":
                return
            yield orjson.loads(data)
    raise StreamBrokenError("the stream ended without [DONE]")


def _text(choice: dict[str, str]) -> str:
    delta: dict[str, str] = choice.get("delta", choice)  # type: ignore[assignment]
    return delta.get("text") or delta.get("content") or ""


def _body(traffic: Traffic, record: Record) -> dict[str, object]:
    words = "w " * record.prompt_tokens
    asked = {"prompt": words} if traffic.endpoint == "/v1/completions" else {"messages": _message(words)}
    return {
        "model": traffic.model,
        **asked,
        "max_tokens": record.output_tokens,
        "ignore_eos": True,
        "stream": True,
    }


def _message(words: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": words}]
