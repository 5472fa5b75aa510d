"""Replicas that stand still: their gauges show requests, and neither those nor any counter move."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from servingpool.decision.observation import Replica
from servingpool.decision.samples import Sample


class Standing(NamedTuple):
    """One such replica. See `Sample.stands_still`."""

    replica: str
    """The pod's name."""
    since: float
    """Unix time in seconds, by Prometheus' clock, of the scrape at which it was last seen to move."""
    requests: float
    """That its gauges show, running and waiting."""


def standing_still(samples: Mapping[str, Sample], ready: Iterable[Replica], after: float) -> tuple[Standing, ...]:
    """Those of the `ready` replicas that have stood still for `after` seconds."""
    found = [(replica.name, samples.get(replica.name)) for replica in ready]
    still = [(name, one) for name, one in found if one is not None and one.held > 0.0 and one.stands_still(after)]
    return tuple(Standing(name, one.moved_at, one.held) for name, one in still)
