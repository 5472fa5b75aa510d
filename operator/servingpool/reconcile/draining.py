"""Whether a replica that is removed finishes what it has, as far as its pod template tells; and the price if not."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from servingpool.adapters.cluster.drain import Drain
from servingpool.api.conditions import Reason, Truth
from servingpool.decision.observation import Unknown

WITHDRAWN_AFTER = 5.0
"""Seconds that a load balancer may go on sending to a pod that is being deleted: EndpointSlice, kube-proxy or the
gateway's watch each take a second or two, more on large clusters. What comes after SIGTERM is lost."""
EXIT = 5.0
"""Seconds from the last answer to the process's end; what is cut short there is a clean exit, not a request."""


@dataclass(frozen=True, slots=True)
class Lack:
    """What is missing for a scale-down without loss."""

    reason: Reason
    message: str


def judge_drain(drain: Drain, busy: Collection[float]) -> tuple[Truth, Reason, str]:
    """What to say in DrainReady of a vLLM replica. `busy`: requests in flight on each replica that is known."""
    lacks = _lacks(drain, busy)
    if lacks:
        return Truth.FALSE, lacks[0].reason, "; ".join(lack.message for lack in lacks)
    unknown = [each.reason for each in (drain.shutdown_timeout, drain.pre_stop) if isinstance(each, Unknown)]
    if unknown:
        return Truth.UNKNOWN, Reason.DRAIN_NOT_VISIBLE, "; ".join(unknown)
    assert not isinstance(drain.pre_stop, Unknown)
    assert not isinstance(drain.shutdown_timeout, Unknown)
    said = (
        f"a replica that is removed waits {drain.pre_stop:g} s, finishes what it has within "
        f"{drain.shutdown_timeout:g} s, and is killed after {drain.grace:g} s"
    )
    return Truth.TRUE, Reason.FINISHES_REQUESTS, said


def _lacks(drain: Drain, busy: Collection[float]) -> list[Lack]:
    found = []
    hook = 0.0 if isinstance(drain.pre_stop, Unknown) else drain.pre_stop
    timeout = 0.0 if isinstance(drain.shutdown_timeout, Unknown) else drain.shutdown_timeout
    if drain.shutdown_timeout == 0.0:
        now = f", about {sum(busy) / len(busy):.0f} requests per replica now" if busy else ""
        said = f"scale-downs cut what is in flight{now}: vLLM's --shutdown-timeout is not set"
        found.append(Lack(Reason.NO_SHUTDOWN_TIMEOUT, said))
    if not isinstance(drain.pre_stop, Unknown) and drain.pre_stop < WITHDRAWN_AFTER:
        hooked = f"the preStop hook sleeps {hook:g} s only" if hook else "there is no preStop sleep"
        said = f"scale-downs fail requests that still arrive while a load balancer learns of it: {hooked}"
        found.append(Lack(Reason.PRE_STOP_TOO_SHORT, f"{said}, {WITHDRAWN_AFTER:g} s is the least, 15 s is safe"))
    needed = hook + timeout + EXIT
    if drain.grace < needed:
        said = f"what runs longer is killed: terminationGracePeriodSeconds is {drain.grace:g}, "
        said += f"preStop {hook:g} s and --shutdown-timeout {timeout:g} s need {needed:g}"
        found.append(Lack(Reason.GRACE_PERIOD_TOO_SHORT, said))
    return found
