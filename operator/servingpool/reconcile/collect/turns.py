"""Parts of a round of queries to a Prometheus, and their order.

A query asks only for the namespaces of its pools, so series that are scraped elsewhere cost nothing. Namespaces have
turns: thousands of pools in a namespace delay that namespace only. Where the query for several namespaces is too much
for Prometheus, each namespace is asked for by itself for a while, and only a namespace that is too much alone is not
read.
"""

from __future__ import annotations

import math
import zlib
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from servingpool.adapters.prometheus.asked import Share
from servingpool.adapters.prometheus.rows import NAMES_OF_NAMESPACES
from servingpool.adapters.prometheus.samples import FleetReading, NotAsked, ReadRequest, TooLarge
from servingpool.decision.observation import Unknown

ALONE_FOR = 60.0
"""Seconds for which each namespace of a query that was too much is asked for by itself."""
TOO_MUCH_FOR = 3600.0
"""Seconds for which a namespace is asked for by itself after even its own query was too much."""


class Part(NamedTuple):
    """Namespaces or pools that are asked for at once."""

    gateway: bool
    share: Share
    group: int | str
    """Group of namespaces, or the namespace that is asked for by itself."""


@dataclass(slots=True)
class Turns:
    """Parts of a backend's rounds."""

    asked: dict[Part, ReadRequest] = field(default_factory=dict)
    """Parts of this round, in order."""
    _round: int = 0
    _last: dict[Part, int] = field(default_factory=dict)
    """Round of each part's last turn, answered or not."""
    _of: dict[tuple[bool, Share, str], Part] = field(default_factory=dict)
    """Part of each namespace."""
    _alone: dict[str, float] = field(default_factory=dict)
    """Namespaces that are asked for by themselves, and until when, in Unix time in seconds."""

    def begin(self, engines: Mapping[Share, ReadRequest], gateways: Mapping[Share, ReadRequest], now: float) -> None:
        """Divide the wanted queries into parts, and put them in order."""
        self._round += 1
        self._alone = {one: until for one, until in self._alone.items() if now < until <= now + TOO_MUCH_FOR}
        self._of, wanted = {}, {}
        # The gateways first: their queries are small, and for all pools.
        for gateway, requests in ((True, gateways), (False, engines)):
            for share, request in requests.items():
                for group, namespaces in _groups(request.namespaces, self._alone).items():
                    part = Part(gateway, share, group)
                    self._of.update(((gateway, share, namespace), part) for namespace in namespaces)
                    explain = frozenset(pod for pod in request.explain if pod[0] in namespaces)
                    wanted[part] = replace(request, namespaces=frozenset(namespaces), explain=explain)
        self.asked = {part: wanted[part] for part in self._order(wanted)}

    def end(self, answers: Mapping[Part, FleetReading | Unknown], now: float) -> None:
        """Remember whose turn it was, and who was too much."""
        unasked = {part for part, answer in answers.items() if isinstance(answer, NotAsked)}
        self._last = {part: self._last.get(part, 0) if part in unasked else self._round for part in answers}
        some = any(isinstance(answer, FleetReading) for answer in answers.values())
        for part, answer in answers.items():
            if isinstance(answer, TooLarge):
                namespaces = self.asked[part].namespaces
                # Where nothing is answered at all, it is no namespace's doing.
                lasts = ALONE_FOR if len(namespaces) > 1 else TOO_MUCH_FOR if some else 0.0
                for one in namespaces if lasts else ():
                    self._alone[one] = max(now + lasts, self._alone.get(one, 0.0))

    def part(self, share: Share, namespace: str, *, gateway: bool = False) -> Part | None:
        """The part of a reading that covers this namespace's pools; None if nothing was asked for them."""
        return self._of.get((gateway, share, namespace))

    def _order(self, wanted: Mapping[Part, ReadRequest]) -> list[Part]:
        """A part of each namespace in turn, of each namespace the part that has waited longest first."""
        own: defaultdict[str, list[Part]] = defaultdict(list)
        for part in sorted(wanted, key=lambda one: (not one.gateway, self._last.get(one, 0))):
            for namespace in wanted[part].namespaces:
                own[namespace].append(part)
        rank: dict[Part, int] = {}
        for parts in own.values():
            for place, part in enumerate(parts):
                rank[part] = min(place, rank.get(part, place))
        return sorted(wanted, key=lambda one: (rank.get(one, 0), self._last.get(one, 0)))


def _groups(namespaces: Collection[str], alone: Collection[str]) -> dict[int | str, list[str]]:
    """Groups of namespaces that are asked for together. A new namespace changes the group of few others."""
    together = [one for one in namespaces if one not in alone]
    number = max(1, math.ceil(sum(map(len, together)) / NAMES_OF_NAMESPACES))
    found: defaultdict[int | str, list[str]] = defaultdict(list)
    for one in sorted(namespaces):
        found[one if one in alone else zlib.crc32(one.encode()) % number].append(one)
    return dict(found)
