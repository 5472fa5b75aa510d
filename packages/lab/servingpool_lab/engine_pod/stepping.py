"""The engine model as a live server needs it: who has how many tokens, when the next ones come, who hung up."""

from __future__ import annotations

import math

from servingpool_simulation import page
from servingpool_simulation.engine import Engine
from servingpool_simulation.hardware import EngineProfile
from servingpool_simulation.kernel import blocks_for, complete, leave_batch, plan
from servingpool_simulation.tables import NEVER, NOBODY, RUNS, UNSENT, WAITS


class SteppedEngine(Engine):
    """An Engine that takes one step at a time, whose requests can be watched and aborted. Seconds.

    A step ends when `advance` says so: at its time or later. Where the process could not run for a while, that step
    was long, as on a real engine whose host is busy, and every figure of the page shows it.
    """

    def __init__(self, profile: EngineProfile, start: float) -> None:
        super().__init__(profile, start)
        self._leaving: list[int] = []
        """Records of running requests that go at the end of the step under way."""

    @property
    def next_step(self) -> float:
        """When the next step ends; the present where one can begin, +Inf where there is nothing to do."""
        return float(self._state.engines[0].plan_end)

    def advance(self, until: float) -> None:
        """Ends the step under way if its time has come, and begins the next."""
        e = self._state.engines[0]
        if e.steps > 0 and e.plan_end <= until:
            e.first_step += until - e.plan_end
            e.plan_end = until
            complete(self._state, self._requests, 0)
            self._leave()
        if e.steps == 0 and plan(self._state, self._requests, 0, until):
            e.steps = 1
            e.plan_end = e.now + e.first_step
        self._show()

    def drain(self) -> float:
        """Runs every step at its time until nothing is left."""
        while (at := self.next_step) < math.inf:
            # An arrival is taken up just behind its own moment.
            self.advance(at if self._state.engines[0].steps else math.nextafter(at, math.inf))
        return float(self._state.engines[0].now)

    def tokens(self) -> dict[int, int]:
        """Output tokens so far of each request that is decoding, at the last `advance`."""
        e, requests = self._state.engines[0], self._requests
        places = self._state.batch[0, : e.decoding]
        records = places.request
        each = self.profile.tokens_per_step
        before = requests.generated[records]
        steps = -((before - requests.output[records]) // each) - (places.mark - e.tick)
        generated = before + each * steps
        return {
            self._names[record]: tokens for record, tokens in zip(records.tolist(), generated.tolist(), strict=True)
        }

    def abort(self, at: float, request: int) -> None:
        """The client of a request has gone: as in vLLM it leaves the queue at once, the batch when the step ends.

        It appears in no counter or histogram of finished requests, nor among the outcomes, unless that very step
        finishes it. Nothing happens where it has ended.
        """
        self.advance(at)
        record = next((record for record, number in self._names.items() if number == request), None)
        if record is None:
            return
        if self._requests[record].status == WAITS:
            self._leave_queue(record)
            self._forget(record)
        elif self._requests[record].status == RUNS and record not in self._leaving:
            self._leaving.append(record)

    def _show(self) -> None:
        e, row = self._state.engines[0], self._state.page[0]
        row[page.RUNNING] = e.decoding + e.prefilling
        row[page.WAITING] = e.queued
        row[page.KV_USAGE] = e.blocks / self._state.limits.kv_blocks

    def _leave(self) -> None:
        """Between two steps: takes those who hung up out of the batch."""
        for record in self._leaving:
            if self._requests[record].status == RUNS:
                self._leave_batch(record)
                self._forget(record)
        self._leaving.clear()

    def _leave_batch(self, record: int) -> None:
        e, batch = self._state.engines[0], self._state.batch[0]
        number = int(e.decoding + e.prefilling)
        index = batch.request[:number].tolist().index(record)
        if index < e.decoding:
            leave_batch(self._state, 0, index)
            e.decoding -= 1
        else:
            e.blocks -= blocks_for(int(batch[index].mark))
            e.prefilling -= 1
        batch[index : number - 1] = batch[index + 1 : number].copy()
        e.next_finish = min(batch.mark[: e.decoding].tolist(), default=NEVER)

    def _leave_queue(self, record: int) -> None:
        e, requests = self._state.engines[0], self._requests
        behind = requests[record].next
        e.queued -= 1
        if e.head == record:
            e.head = behind
            before = NOBODY
        else:
            before = e.head
            while requests[before].next != record:
                before = requests[before].next
            requests[before].next = behind
        if e.tail == record:
            e.tail = before

    def _forget(self, record: int) -> None:
        self._state.engines[0].in_flight -= 1
        self._requests[record].status = UNSENT
        del self._names[record]
        self._free.append(record)
