"""Whether a removed replica finishes its requests, as far as its pod template shows, and how many it loses if not."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from servingpool.adapters.cluster.drain import Drain
from servingpool.api.conditions import Reason
from servingpool.decision.observation import Unknown

WITHDRAWN_AFTER = 5.0
"""Seconds in which a load balancer may still send requests to a deleted pod: EndpointSlice, kube-proxy and the
gateway's watch each take a second or two, more on large clusters. Requests after SIGTERM are lost."""
EXIT = 5.0
"""Seconds from the last answer to the process's end."""


@dataclass(frozen=True, slots=True)
class Lack:
    """What is missing for a scale-down without loss."""

    reason: Reason
    message: str


def judge_drain(drain: Drain, busy: Collection[float]) -> tuple[Reason, str]:
    """Reason and message of DrainReady. `busy`: requests in flight on each replica with known load."""
    lacks = _lacks(drain, busy)
    if lacks:
        return lacks[0].reason, " ".join(lack.message for lack in lacks)
    unknown = [each.reason for each in (drain.shutdown_timeout, drain.pre_stop) if isinstance(each, Unknown)]
    if unknown:
        return Reason.DRAIN_NOT_VISIBLE, Reason.DRAIN_NOT_VISIBLE.message(detail="; ".join(unknown))
    assert not isinstance(drain.pre_stop, Unknown)
    assert not isinstance(drain.shutdown_timeout, Unknown)
    said = Reason.FINISHES_REQUESTS.message(pre_stop=drain.pre_stop, timeout=drain.shutdown_timeout, grace=drain.grace)
    return Reason.FINISHES_REQUESTS, said


def _lacks(drain: Drain, busy: Collection[float]) -> list[Lack]:
    found = []
    hook = 0.0 if isinstance(drain.pre_stop, Unknown) else drain.pre_stop
    timeout = 0.0 if isinstance(drain.shutdown_timeout, Unknown) else drain.shutdown_timeout
    if drain.shutdown_timeout == 0.0:
        now = f", about {sum(busy) / len(busy):.0f} per replica now" if busy else ""
        found.append(Lack(Reason.NO_SHUTDOWN_TIMEOUT, Reason.NO_SHUTDOWN_TIMEOUT.message(now=now)))
    if not isinstance(drain.pre_stop, Unknown) and drain.pre_stop < WITHDRAWN_AFTER:
        hooked = f"The preStop hook sleeps only {hook:g} s" if hook else "There is no preStop sleep"
        said = Reason.PRE_STOP_TOO_SHORT.message(hook=hooked, least=WITHDRAWN_AFTER)
        found.append(Lack(Reason.PRE_STOP_TOO_SHORT, said))
    needed = hook + timeout + EXIT
    if drain.grace < needed:
        said = Reason.GRACE_PERIOD_TOO_SHORT.message(grace=drain.grace, hook=hook, timeout=timeout, needed=needed)
        found.append(Lack(Reason.GRACE_PERIOD_TOO_SHORT, said))
    return found
