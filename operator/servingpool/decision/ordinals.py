"""Which replicas a scale-down leaves, of a kind that removes the highest ordinals first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from servingpool.decision.observation import Replica
from servingpool.decision.sharing import listed

OVERDUE = 2.0
"""Cold starts, 1.5 to 4, after which a replica that is not Ready yet is not counted on."""


def lowest(replicas: Iterable[Replica]) -> list[Replica]:
    """Those that have an ordinal, the lowest first: the last one goes first."""
    return sorted((one for one in replicas if one.ordinal is not None), key=lambda one: one.ordinal or 0)


def fewest(replicas: Sequence[Replica], wanted: int, start: float) -> int:
    """The least number to order so that `wanted` replicas stay that serve, or will once their start is over.

    `replicas` as `lowest` gives them; `start`: seconds of a cold start. As many Ready ones stay as would of a kind that
    removes first what is not Ready: all of them, where they are no more than wanted.
    """
    ready = [one.ready_for is not None for one in replicas]
    coming = [one.ready_for is not None or one.age <= OVERDUE * start for one in replicas]
    return max(wanted, _holding(ready, wanted), _holding(coming, wanted))


def not_ready(replicas: Iterable[Replica]) -> str:
    """Those of these that are not Ready, as the subject of a sentence with its verb."""
    names = [one.name for one in replicas if one.ready_for is None]
    return f"{listed(names)} {'is' if len(names) == 1 else 'are'}"


def _holding(good: Sequence[bool], wanted: int) -> int:
    """How many of the lowest hold `wanted` good ones, or all there are."""
    places = [at for at, one in enumerate(good, 1) if one]
    return max(places[:wanted], default=0)
