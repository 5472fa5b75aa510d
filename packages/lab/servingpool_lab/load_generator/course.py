"""A course of traffic under way: every request leaves at its own time, whatever became of those before."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field

import aiohttp

from servingpool_lab.load_generator.asking import ask
from servingpool_lab.load_generator.record import Record
from servingpool_lab.load_generator.traffic import Traffic
from servingpool_simulation.traces import Trace


@dataclass(slots=True)
class Course:
    """Begins when it is made; `play` sends. Raises ValueError where the traffic has no requests."""

    traffic: Traffic
    begun_at: float = field(default_factory=time.time)
    """Unix time in seconds."""
    records: list[Record] = field(default_factory=list)
    """Of the requests whose time has come."""
    trace: Trace = field(init=False)
    finished: bool = False
    """Every request of the trace has been sent and has ended."""
    _zero: float = field(default_factory=time.monotonic)
    _asking: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.trace = self.traffic.requests()
        # Drawing the arrivals took a moment too.
        self.begun_at, self._zero = time.time(), time.monotonic()

    def now(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._zero

    @property
    def in_flight(self) -> int:
        """Requests sent that have not ended."""
        return len(self._asking)

    async def play(self, http: aiohttp.ClientSession) -> None:
        """Sends all requests at their times and waits for the last answer. Cancelled, it sends no more, but waits."""
        with contextlib.suppress(asyncio.CancelledError):
            await self._send_all(http)
        while self._asking:
            await asyncio.wait(self._asking)
        self.finished = True

    def abandon(self) -> None:
        """Hangs up on every request in flight."""
        for task in self._asking:
            task.cancel()

    async def _send_all(self, http: aiohttp.ClientSession) -> None:
        columns = (column.tolist() for column in (self.trace.arrival, self.trace.prompt, self.trace.output))
        for number, (scheduled, prompt, output) in enumerate(zip(*columns, strict=True)):
            if (wait := scheduled - self.now()) > 0:
                await asyncio.sleep(wait)
            record = Record(number, scheduled, prompt, output)
            self.records.append(record)
            task = asyncio.create_task(ask(http, self.traffic, record, self.now))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)
