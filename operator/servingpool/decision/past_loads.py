"""The highest load of each five minutes, for as far back as who is judged now may have arrived.

A queue of half an hour outlasts the ledger's twenty minutes: the last who waited in it were blamed on the light load
that they ended in, and taught that 25% of requests miss at any fleet size.
"""

from __future__ import annotations

from dataclasses import dataclass

BIN = 300.0
KEPT = 2 * 3600.0
"""Seconds. Who has waited for longer is nobody's user any more."""


@dataclass(frozen=True, slots=True)
class PastLoads:
    """Loads without the queue, oldest first."""

    bins: tuple[tuple[float, float], ...] = ()
    """(Unix time in seconds at which it begins, highest load in it)."""

    def learn(self, now: float, load: float) -> PastLoads:
        """Add a tick."""
        if self.bins and now < self.bins[-1][0] + BIN:
            begin, highest = self.bins[-1]
            return PastLoads((*self.bins[:-1], (begin, max(highest, load))))
        return PastLoads((*(one for one in self.bins if one[0] > now - KEPT), (now, load)))

    def in_other_units(self, ratio: float) -> PastLoads:
        """The same where what was a load of 1 is one of `ratio`."""
        return PastLoads(tuple((begin, load * ratio) for begin, load in self.bins))

    def highest(self, since: float) -> float:
        """Of the bins that reach beyond that time; 0 without any."""
        return max((load for begin, load in self.bins if begin + BIN > since), default=0.0)
