"""A recorded trace as an endless stream of arrivals: after its end it begins again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from servingpool_simulation.traces import Trace


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request that a user sends."""

    at: float
    """Seconds on the clock of the replay's caller."""
    prompt_tokens: int
    output_tokens: int


def replay(trace: Trace, begin: float, offset: float = 0.0) -> Iterator[Arrival]:
    """Arrivals at the recorded spacing, open loop: nobody waits for an answer before the next one asks.

    Args:
        trace: with one request or more and a duration above 0.
        begin: the caller's clock, in seconds, at the moment `offset` of the trace.
        offset: seconds into the trace, 0 to below its duration.

    Raises:
        ValueError: the trace is empty, or the offset lies outside of it.
    """
    if len(trace) == 0 or trace.duration <= 0:
        raise ValueError(f"the trace {trace.name} has no requests to replay")
    if not 0 <= offset < trace.duration:
        raise ValueError(f"start-at must be 0 to below {trace.duration:.0f} s, the trace's length, got {offset:g} s")
    return _endless(trace, begin - offset, offset)


def _endless(trace: Trace, zero: float, offset: float) -> Iterator[Arrival]:
    columns = list(zip(trace.arrival.tolist(), trace.prompt.tolist(), trace.output.tolist(), strict=True))
    first = next((index for index, (at, _, _) in enumerate(columns) if at >= offset), len(columns))
    while True:
        for at, prompt, output in columns[first:]:
            yield Arrival(zero + at, prompt, output)
        first = 0
        zero += trace.duration
