"""A client that streams chat completions through LiteLLM, open loop, and notes when each token came."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import aiohttp

from ..vllm.client import client_session  # noqa: TID252, tests are no package of an installed name


@dataclass(slots=True)
class Answer:
    """One request as its client saw it; times are Unix seconds."""

    sent: float
    status: int = 0
    first: float = 0.0
    """When the first token was there."""
    ended: float = 0.0
    prompt_tokens: int = 0
    output_tokens: int = 0
    complaint: str = ""

    @property
    def failed(self) -> bool:
        """Whether no whole answer came."""
        return self.status != 200 or not self.output_tokens

    @property
    def ttft(self) -> float:
        """Seconds."""
        return self.first - self.sent

    @property
    def decoding(self) -> float:
        """Seconds from the first token to the end."""
        return self.ended - self.first

    def good(self, ttft: float, tpot: float) -> bool:
        """Whether it met both bounds, in seconds."""
        per_token = self.decoding / max(1, self.output_tokens - 1)
        return not self.failed and self.ttft <= ttft and per_token <= tpot


@dataclass
class Client:
    """Sends requests at the rates of its steps, whatever became of those before."""

    url: str
    key: str
    model: str
    tokens: int
    """Of an answer, at most."""
    answers: list[Answer] = field(default_factory=list)

    async def run(self, steps: Sequence[tuple[float, float]], seed: int = 7) -> None:
        """`steps`: requests/s and seconds; arrivals are a Poisson process. Waits for all answers."""
        luck, begin, at = random.Random(seed), time.monotonic(), 0.0
        async with client_session() as session, asyncio.TaskGroup() as group:
            end = 0.0
            for rate, seconds in steps:
                end += seconds
                while (at := at + luck.expovariate(rate)) < end:
                    await asyncio.sleep(max(0.0, begin + at - time.monotonic()))
                    prompt = " ".join(f"w{luck.randrange(300, 1000)}" for _ in range(luck.randrange(16, 48)))
                    group.create_task(self._ask(session, prompt))
                at = end
            await asyncio.sleep(max(0.0, begin + end - time.monotonic()))

    async def _ask(self, session: aiohttp.ClientSession, prompt: str) -> None:
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": self.tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        answer = Answer(sent=time.time())
        self.answers.append(answer)
        headers = {"Authorization": f"Bearer {self.key}"}
        try:
            async with session.post(f"{self.url}/v1/chat/completions", json=body, headers=headers) as response:
                answer.status = response.status
                if response.status == 200:
                    await _follow(response, answer)
                else:
                    answer.complaint = await response.text()
        except aiohttp.ClientError as error:
            answer.complaint = repr(error)
        answer.ended = answer.ended or time.time()


async def _follow(response: aiohttp.ClientResponse, answer: Answer) -> None:
    async for line in response.content:
        data = line.strip().removeprefix(b"data: ")
        if not data or data == b"[DONE]":
            continue
        event = json.loads(data)
        if "error" in event:
            answer.complaint = str(event["error"])
            return
        if event.get("choices") and event["choices"][0]["delta"].get("content"):
            answer.first = answer.first or time.time()
            answer.ended = time.time()
        if event.get("usage"):
            answer.prompt_tokens = event["usage"]["prompt_tokens"]
            answer.output_tokens = event["usage"]["completion_tokens"]
    answer.ended = answer.ended or time.time()
    answer.first = answer.first or answer.ended  # its only token ended it
