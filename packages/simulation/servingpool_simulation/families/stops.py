"""Traffic that stops for hours and comes back as if nothing had been."""

from __future__ import annotations

from servingpool_simulation.traces import Trace


def stops(trace: Trace, at: float, pause: float) -> Trace:
    """`trace` with nothing at all for `pause` seconds from second `at` on; then it goes on where it was.

    A client with a maintenance window, a market that closes, a gateway that was down: by the time it is back the
    fleet is at its minimum and every window is empty, and the first minute brings the full rate.
    """
    if not 0 < at < trace.duration or pause <= 0:
        raise ValueError(f"need 0 < at < {trace.duration:g} s and pause > 0 s, got {at} and {pause}")
    nothing = trace.between(at, at)
    silence = Trace(trace.name, nothing.arrival, nothing.prompt, nothing.output, pause)
    joined = trace.between(0.0, at).then(silence).then(trace.between(at, trace.duration))
    return Trace(f"{trace.name}, stops", joined.arrival, joined.prompt, joined.output, joined.duration)
