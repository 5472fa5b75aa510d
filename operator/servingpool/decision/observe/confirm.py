"""Whether the requests that a queue's gauge shows are there: the flows say so, not how often the gauge does.

By Little's law requests that wait cost those that begin time to their first token: of a queue that stands at X for W
seconds, first in, first out, those that begin meanwhile have waited for X W seconds in all, or for W each where fewer
begin than X. First tokens that took less than a quarter of that refute the queue. Requests that are parked in an engine
for ever, and a gauge that is stuck, show that way: three of them once took a fleet from 1 to 12 replicas.

A queue that rises by far more than usually comes in that time is not known before first tokens bear it out, or it has
moved on: one of clients grows or is worked off, and a damaged figure is the same again.
"""

from __future__ import annotations

from typing import NamedTuple

from servingpool.decision.observation import Reading, Unknown
from servingpool.decision.params import MINUTE
from servingpool.decision.words import clock

BORNE = 0.25
"""Share of the seconds that a queue costs those who begin, below which it is refuted. Theirs rise from nothing to it
after a jump, so by half of them at least."""
FAR = 8.0
"""Ratio of a rise to what usually comes in its time, or came last, from which on it is doubted; also of a counter to
the next highest."""
SLACK = 16.0
"""Requests by which a figure may exceed the usual: few requests vary by chance."""
ALIKE = 0.02
"""Share of a queue's length, and a request, by which a queue of the same length may vary."""


class Level(NamedTuple):
    """The length of a queue, as its gauge shows it at every scrape since some time."""

    at: float
    """Unix time in seconds of the last scrape."""
    since: float
    """Unix time in seconds of the first scrape that showed about this length."""
    shown: float
    """Requests."""
    least: float
    """Least requests since then."""
    grew: float = 0.0
    """Requests by which the queue before grew at last."""
    begun: float = 0.0
    """Requests with a first token since then."""
    spent: float = 0.0
    """Seconds to their first tokens."""
    jumped: bool = False
    """Whether it is not believed yet, because it rose by more than can have come."""
    parked: float = 0.0
    """Requests of it that are not believed, because those who began have not waited for them."""
    parked_since: float = 0.0
    """Unix time in seconds of the first scrape that showed these."""

    @property
    def believed(self) -> Reading:
        """Requests that are believed."""
        if self.jumped:
            return Unknown(f"{self.shown:.3g} requests waiting is more than can have come")
        return self.shown - self.parked

    @property
    def refuted(self) -> bool:
        """Whether those who began have not waited for it."""
        return self.spent < BORNE * (self.at - self.since) * min(self.least, self.begun)

    def told(self) -> str:
        """Sentence on the requests that are not believed."""
        said = f"{self.parked:.3g} requests in its queue since {clock(self.parked_since)}"
        return f"{said} are not counted, because those that begin do not wait for them"

    def next(self, at: float, shown: float, most: float, *, begun: float = 0.0, spent: float = 0.0) -> Level:
        """The level with another scrape, before which `begun` requests took `spent` seconds to their first tokens.

        Both are 0 where those seconds do not include the queue. `most`: requests that can have come by then.
        """
        parked, further = min(self.parked, shown), shown - self.shown
        if abs(shown - self.least) > 1.0 + ALIKE * self.least:
            jumped = not (self.jumped and shown >= 0.5 * self.least) and shown - parked > most + FAR * self.grew
            grew = self.grew if jumped else max(0.0, further)
            return Level(at, at, shown, shown, grew, jumped=jumped, parked=parked, parked_since=self.parked_since)
        least = min(shown, self.least)
        one = self._replace(at=at, shown=shown, least=least, begun=self.begun + begun, spent=self.spent + spent)
        if one.begun <= 0.0 or not (one.jumped or at - one.since >= MINUTE):
            return one._replace(parked=parked)
        parked = least if one.refuted else 0.0
        return one._replace(jumped=False, parked=parked, parked_since=self.parked_since if self.parked else one.since)
