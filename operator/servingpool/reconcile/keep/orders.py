"""The ledger of our own orders: their outcomes, the owner of a target's replicas, and programs that keep changing them.

The API server does not tell: after a scale to 0 nobody owns `spec.replicas`, answers are lost, and watches are late.
A ledger lasts as long as the process. What outlasts it is `history`, in the status.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container
from dataclasses import dataclass, field, replace

from servingpool.adapters.cluster.cache import ClusterCache
from servingpool.adapters.cluster.objects import FIELD_MANAGER, TargetKey, Workload
from servingpool.catalogue.conditions import Reason
from servingpool.decision.words import clock

LATE = 120.0
"""Seconds of looks after which an order without an answer was not carried out: API servers end a request after 60 s."""
APART = 60.0
"""Seconds without a look after which the looks begin anew: while an API server is away, no outcome shows."""
ALIKE, MANY = 3, 6
"""Resets in a row by one program, to the same number or to any, after which it counts as a contest."""
WITHIN = 7200.0
"""Most seconds between two resets. Tools sync at every change, every 3 to 10 minutes, or about every hour."""
NAMELESS = "Another program, which managedFields does not name,"
"""Name for the setter of replicas where nobody owns the field: after a scale to 0 through the subresource, for
example."""
CALM = 600.0
"""Least seconds without a reset that end a contest; three times the time between resets, if that is longer."""


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """An order of ours. The API server carries it out only while the target has the replicas that it replaces."""

    pool: str
    """Uid of the pool that it is for."""
    generation: int
    """Generation of the target when the order was sent, at least."""
    before: int
    replicas: int
    why: str
    at: float
    """Unix time in seconds at which the order was sent."""


@dataclass(frozen=True, slots=True)
class Contest:
    """A program that keeps resetting the replicas, such as a GitOps tool whose manifest sets them."""

    program: str = ""
    times: tuple[float, ...] = ()
    """Unix times in seconds of the last resets."""
    number: int = 0
    """Replicas that it set last."""
    alike: int = 0
    """Resets in a row to that number."""
    instead: int = 0
    """Replicas that the operator had set before that."""

    @property
    def problem(self) -> str | None:
        """The message of ReplicasContested; None where nobody contests."""
        if self.alike < ALIKE and len(self.times) < MANY:
            return None
        at, before, found = clock(self.times[-1]), self.instead, self.number
        return Reason.REPLICAS_CONTESTED.message(program=self.program, at=at, ordered=before, found=found)

    def answered(self, at: float) -> bool:
        """Whether an order that was decided at that time answers a reset; it posts no event."""
        return self.problem is not None and self.times[-1] >= at

    def reset(self, program: str, number: int, instead: int, now: float) -> Contest:
        """The contest after another reset."""
        same = program == self.program
        if not same and self.problem is not None:
            return self  # a person, amid a tool's contest
        times = (*self.times[1 - MANY :], now) if same else (now,)
        return Contest(program, times, number, self.alike + 1 if same and number == self.number else 1, instead)

    def calmed(self, now: float) -> Contest:
        """The contest, or none where its last reset was long ago."""
        if not self.times:
            return self
        apart = (self.times[-1] - self.times[0]) / max(1, len(self.times) - 1)
        lasts = WITHIN if self.problem is None else max(CALM, 3.0 * apart)
        # The round of another pool may carry an earlier time; a clock that was set back ends the contest.
        return self if -LATE < now - self.times[-1] < lasts else Contest()


@dataclass(slots=True)
class Ledger:
    """Orders for a target. Only its methods change it."""

    uid: str
    """UID of the target."""
    replicas: int
    """Replicas as last seen or requested."""
    by: str
    """Field manager that set them; empty where nobody is named."""
    order: Order | None = None
    """Our order that set them; None where somebody else did, or this process does not know."""
    open: tuple[Order, ...] = ()
    """Orders that were sent and have no answer so far: they may have been carried out."""
    generation: int = 0
    """`replicas` count, not the number that the watch shows, up to this generation; 0 where the watch counts."""
    defended: bool = False
    """Replicas are ours, and the operator scales the target: another number is a reset."""
    contest: Contest = field(default_factory=Contest)
    newest: int = 0
    """The highest generation that the watch has shown."""
    looks: tuple[float, float] = (-math.inf, -math.inf)
    """Unix times in seconds of the first look after the last long pause, and of the last look."""
    conflicts: int = 0
    """Orders in a row that failed because the target had changed."""
    conflicted_at: float = -math.inf
    """Unix time in seconds of the last conflict: the watch may hide the change behind it."""
    refused_at: int | None = None
    """Replicas that it had then, as far as was known."""

    def see(self, shown: Workload, now: float) -> None:
        """The target as the watch shows it."""
        self.contest = self.contest.calmed(now)
        first, last = self.looks
        self.looks = (first if 0.0 <= now - last <= APART else now, now)
        # The order may have been given after a rollout, so one generation more shows the old number too.
        if shown.replicas == self.replicas or 0 < shown.generation <= self.generation:
            self.open = tuple(one for one in self.open if self._waits(one, now))
            return
        by, order = _setter(shown), None
        if by in {"", FIELD_MANAGER}:
            order = next((one for one in reversed(self.open) if one.replicas == shown.replicas), None)
        ours = order is not None or by == FIELD_MANAGER
        if self.defended and not ours:
            self.contest = self.contest.reset(by or NAMELESS, shown.replicas, self.replicas, now)
        self._set(shown.replicas, FIELD_MANAGER if ours else by, order)

    def sent(self, target: Workload, replicas: int, pool: str, why: str, now: float) -> Order:
        """An order is about to be sent, for a target as it was decided on."""
        order = Order(pool, max(target.generation, self.generation), target.replicas, replicas, why, now)
        self.open = (*self.open, order)
        return order

    def done(self, order: Order) -> None:
        """The API server has set the replicas."""
        self.conflicts = 0
        if order in self.open:  # else it was seen before its answer came
            self._set(order.replicas, FIELD_MANAGER, order)
            self.generation = order.generation + 1 if order.generation else 0

    def failed(self, order: Order, *, unknown: bool) -> None:
        """The order failed; `unknown`: it may have been carried out."""
        self.conflicts = 0
        if not unknown:
            self._close(order)

    def shown(self, raw: Workload) -> None:
        """The target as the watch shows it, before our last order is counted."""
        back = raw.generation < self.newest  # it was restored from a backup
        self.newest = raw.generation
        ours = self.order is not None and raw.replicas == self.replicas and raw.generation >= self.order.generation
        if back or ours:
            self.generation = 0  # the watch has our order, or never will

    def conflicted(self, order: Order) -> int:
        """The target is not as it was decided on. How often in a row."""
        self._close(order)
        # What the watch shows counts, late or not.
        self.generation, self.conflicted_at = 0, order.at
        # A change by others shows a new number; a refusal leaves the old one.
        self.conflicts = self.conflicts + 1 if self.refused_at == order.before else 1
        self.refused_at = order.before
        return self.conflicts

    def rest(self) -> None:
        """The pool that owns the target may not scale it: changes of its order are no contest."""
        self.defended = False

    def most(self, shown: Workload, now: float) -> int:
        """Most replicas that our late orders may bring, shown or not, orders without an answer included."""
        late = 0 < shown.generation <= self.generation or (self.order is not None and now - self.order.at < LATE)
        may_be = (one.replicas for one in self.open if one.before == shown.replicas and self._waits(one, now))
        return max(self.replicas if late else 0, *may_be, 0)

    def _set(self, replicas: int, by: str, order: Order | None) -> None:
        """The replicas are others now, so no open order will be carried out any more."""
        self.replicas, self.by, self.order, self.open = replicas, by, order, ()
        self.generation, self.defended = 0, by == FIELD_MANAGER

    def _waits(self, order: Order, now: float) -> bool:
        """Whether an order without an answer may be carried out, or the watch may hide that it was."""
        return abs(now - max(order.at, self.looks[0], self.conflicted_at)) < LATE

    def _close(self, order: Order) -> None:
        self.open = tuple(one for one in self.open if one is not order)


class Orders(dict[TargetKey, Ledger]):
    """The ledgers of all targets, over all pools and rounds."""

    def __init__(self, cache: ClusterCache) -> None:
        super().__init__()
        self._cache = cache
        cache.as_ordered = self.applied

    def see(self, shown: Workload, now: float) -> Ledger:
        """The ledger of a target after another look. An object with a new uid begins a new ledger."""
        held = self.get(shown.key)
        if held is None or held.uid != shown.uid:
            held = self[shown.key] = Ledger(shown.uid, shown.replicas, _setter(shown))
        held.see(shown, now)
        return held

    def applied(self, shown: Workload) -> Workload:
        """The target after our last order, which the watch may not show yet: else the next tick would order it again.

        Our scale adds one generation, and so does a rollout before it; a later one is newer than our scale.
        """
        held = self.get(shown.key)
        if held is None or held.uid != shown.uid:
            return shown
        held.shown(shown)
        if not held.generation or shown.generation > held.generation:
            return shown
        return shown if shown.replicas == held.replicas else replace(shown, replicas=held.replicas)

    def most(self, shown: Workload, now: float) -> int:
        """See `Ledger.most`."""
        held = self.get(shown.key)
        return 0 if held is None or held.uid != shown.uid else held.most(shown, now)

    def forget(self, named: Callable[[], Container[TargetKey]]) -> None:
        """Delete the ledger of each target that is neither in the cache nor named by a pool.

        A target that could not be read for a while leaves the cache too.
        """
        if gone := [key for key in self if self._cache.workload(key) is None]:
            kept = named()
            for key in [key for key in gone if key not in kept]:
                del self[key]


def _setter(shown: Workload) -> str:
    return "" if shown.set_by is None else shown.set_by.program
