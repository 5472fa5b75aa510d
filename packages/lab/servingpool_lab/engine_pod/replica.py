"""The engine at wall time: requests come in, and each gets its tokens when the step that makes them ends."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace

from servingpool_lab.engine_pod.stepping import SteppedEngine
from servingpool_simulation.engine import EngineMetrics
from servingpool_simulation.hardware import EngineProfile


class EngineStoppedError(RuntimeError):
    """The engine ended before the answer did."""


@dataclass(slots=True, eq=False)
class Stream:
    """The answer to one request, as it comes into being."""

    number: int
    """In the engine."""
    given: int = 0
    """Tokens handed over so far."""
    ended: bool = False
    _news: asyncio.Queue[int | None] = field(default_factory=asyncio.Queue)

    def give(self, total: int) -> None:
        """It has so many tokens by now."""
        if total > self.given:
            self._news.put_nowait(total - self.given)
            self.given = total

    def finish(self, total: int) -> None:
        """It is complete."""
        self.give(total)
        self.ended = True
        self._news.put_nowait(0)

    def cut(self) -> None:
        """It will never be complete."""
        self.ended = True
        self._news.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[int]:
        """How many tokens came, each time that some did. Raises EngineStoppedError."""
        while (tokens := await self._news.get()) != 0:
            if tokens is None:
                raise EngineStoppedError("EngineCore encountered an issue. See stack trace (above) for the root cause.")
            yield tokens


class Replica:
    """One engine on the clock of the process. `run` must be running for anything to happen."""

    def __init__(self, profile: EngineProfile, clock: Callable[[], float] = time.monotonic) -> None:
        self.profile = profile
        self._clock = clock
        self._zero = clock()
        self._engine = SteppedEngine(profile, 0.0)
        self._streams: dict[int, Stream] = {}
        self._changed = asyncio.Event()
        self.idle = asyncio.Event()
        """Set while nothing is in flight."""
        self.idle.set()

    @property
    def in_flight(self) -> int:
        """Requests that have neither been answered nor given up."""
        return len(self._streams)

    def submit(self, prompt_tokens: int, output_tokens: int) -> Stream:
        """A request arrives now; the prompt must be shorter than max_model_len."""
        number = self._engine.submit(self._now(), prompt_tokens, output_tokens)
        stream = self._streams[number] = Stream(number)
        self.idle.clear()
        self._changed.set()
        return stream

    def abort(self, stream: Stream) -> None:
        """Nobody waits for this answer any more; nothing happens where it has ended."""
        if self._streams.pop(stream.number, None):
            self._engine.abort(self._now(), stream.number)
            self._note_idle()
            self._changed.set()

    def cut(self) -> None:
        """Every answer that is not complete breaks off."""
        for stream in list(self._streams.values()):
            self.abort(stream)
            stream.cut()

    def metrics(self) -> EngineMetrics:
        """What it exposes now."""
        self._step()
        shown = self._engine.metrics()
        counters = dict(shown.counters)
        # The model calls an answer that has the length of the trace's "stop". Here the client asked for max_tokens.
        counters["request_success_length"] += counters["request_success_stop"]
        counters["request_success_stop"] = 0.0
        return replace(shown, counters=counters)

    async def run(self) -> None:
        """Lets time pass, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            self._step()
            wait = self._engine.next_step - self._now()
            alarm = None if wait == math.inf else loop.call_later(max(0.0, wait), self._changed.set)
            try:
                await self._changed.wait()
            finally:
                if alarm is not None:
                    alarm.cancel()

    def _step(self) -> None:
        self._engine.advance(self._now())
        for number, tokens in self._engine.tokens().items():
            if stream := self._streams.get(number):
                stream.give(tokens)
        for outcome in self._engine.take_outcomes():
            if stream := self._streams.pop(outcome.request, None):
                stream.finish(outcome.output_tokens)
        self._note_idle()

    def _note_idle(self) -> None:
        if not self._streams:
            self.idle.set()

    def _now(self) -> float:
        return self._clock() - self._zero
