"""Shards: several operators write, each for its share of the pools.

Every operator holds a Lease of its own, and says in it among which operators it shares: its view. A pool is a member's
if the view gives it to the member, by rendezvous hashing, so that only the share of a member that goes or comes moves.
Nobody assigns pools. What keeps two members from writing for one pool:

- A member stops in the moment in which its view gives a pool to another, and says so in its Lease afterwards.
- What a member gains it takes after it has said so in its Lease, and read then that no other Lease claims it.
- A claim ends one write deadline after its Lease was seen to give it up, to be given back, or to have run out.
- A member whose Lease was not renewed in time writes nothing, by its clock alone.

The API server applies writes of Leases one after the other, and a list shows all that were applied: of two members that
claim a pool at once, each says so before it reads, so at least one of them reads the claim of the other.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
from collections.abc import Callable, Container, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, TypeVar

from servingpool.adapters.cluster.errors import ClusterError, Conflict, NotFound
from servingpool.adapters.cluster.kinds import OPERATOR
from servingpool.adapters.cluster.lease import GIVING_BACK, log_change, timestamp
from servingpool.adapters.cluster.objects import Key

log = logging.getLogger(__name__)

T = TypeVar("T")
View = tuple[str, ...]
"""The members among whom somebody shares the pools, sorted."""

LABEL = "servingpool.dev/shards-of"
"""Label of the members' Leases: the name of the release."""
MEMBER = "servingpool.dev/member"
"""Annotation of a Lease: its member, also after it was given back."""
VIEW = "servingpool.dev/members"
"""Annotation of a Lease: the view of its member, joined by commas."""
FORGOTTEN_AFTER = 600.0
"""Seconds without a change after which the Lease of a member that is gone is deleted."""


@dataclass(frozen=True, slots=True)
class ShardTerms:
    """Terms of the members' Leases, in seconds. They hold with clocks that are 5% slow or fast.

    A member that died is replaced after at most `retry + duration + retry + write`: 33 s, and 34.7 s by a slow clock.
    """

    duration: float = 20.0
    """A member counts as gone this long after others last saw its Lease change."""
    renewal: float = 10.0
    deadline: float = 14.0
    """A member stops writing this long after the renewal that a list has shown last."""
    retry: float = 1.0
    """Between two lists of all Leases."""
    write: float = 11.0
    """A write has ended this long after it was begun: the API server may apply it 10 s late."""
    request: float = 4.0
    """For one request about Leases."""


TERMS = ShardTerms()


@lru_cache(maxsize=65536)
def winner(group: str, view: View) -> str:
    """The member of a view to whom a group of pools belongs; empty where the view is.

    By the highest hash of member and group: whoever goes or comes, no group moves between two that stay.
    """
    # Not Python's hash(), which is another in every process.
    hashes = {member: hashlib.blake2b(f"{member}\0{group}".encode(), digest_size=8).digest() for member in view}
    return max(view, key=lambda member: (hashes[member], member), default="")


@dataclass(frozen=True, slots=True)
class MemberLease:
    """A member's Lease as it was listed."""

    member: str
    stamp: str
    """Its renewTime, by the member's clock: it only tells one renewal from another."""
    view: View
    edition: int
    """How often the view has changed."""
    duration: float
    left: bool = False
    """The member has given the Lease back."""

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> MemberLease:
        """What a Lease says. It stays in its member's name after it was given back."""
        meta, spec = raw["metadata"], raw.get("spec") or {}
        annotations = meta.get("annotations") or {}
        view = tuple(filter(None, str(annotations.get(VIEW, "")).split(",")))
        return cls(
            member=str(annotations.get(MEMBER) or meta["name"]),
            stamp=str(spec.get("renewTime")),
            view=view,
            edition=int(spec.get("leaseTransitions") or 0),
            duration=float(spec.get("leaseDurationSeconds") or TERMS.duration),
            left=not spec.get("holderIdentity"),
        )


@dataclass(frozen=True, slots=True)
class _Seen:
    """Another member's Lease, and the time by our clock at which we first saw it like this."""

    lease: MemberLease
    at: float


@dataclass(frozen=True, slots=True)
class _Claim:
    """What another member may still write for: a write that it began may be under way."""

    member: str
    view: View | None
    """None for anything: a view was missed."""
    until: float

    def covers(self, group: str) -> bool:
        """Whether the member may write for this group."""
        return self.view is None or winner(group, self.view) == self.member


class ShardView:
    """What a member may write for. Pure: it is told what was sent and what lists have shown, and when.

    All times are of the member's own monotonic clock, in seconds.
    """

    def __init__(self, identity: str, terms: ShardTerms) -> None:
        self.identity, self._terms = identity, terms
        self._views: tuple[View, ...] = ((),)
        """Views since the last that our Lease says, the newest last: what is ours is ours by each of them."""
        self._since: tuple[View, ...] = ()
        """The last view on which all agreed, and every view since, also those that our Lease says no more: what all of
        them give us nobody else can have taken. Empty where no such view is known."""
        self._renewed = -math.inf
        """When the last renewal was sent that a list has shown."""
        self._sent: dict[str, float] = {}
        """When renewals were sent, by stamp."""
        self._said: tuple[View, int] = ((), -1)
        """The view that was sent last, and its edition."""
        self._seen: dict[str, _Seen] = {}
        self._claims: tuple[_Claim, ...] = ()
        """Claims that were given up."""

    @property
    def members(self) -> View:
        """The newest view."""
        return self._views[-1]

    @property
    def agreed(self) -> bool:
        """Whether our Lease says the newest view, and nothing else that was sent may be applied any more."""
        return len(self._views) == 1

    def due(self, now: float) -> bool:
        """Whether our Lease is to be written."""
        return not self.agreed or now >= self._renewed + self._terms.renewal

    def sends(self, stamp: str, now: float) -> MemberLease:
        """Our Lease, which is sent now. `stamp` is the renewal's own."""
        view, edition = self._said
        if view != self.members:
            self._said = view, edition = self.members, edition + 1
        self._sent[stamp] = now
        return MemberLease(self.identity, stamp, view, edition, self._terms.duration)

    def saw(self, leases: Iterable[MemberLease], now: float) -> None:
        """All Leases as a list that was answered now has shown them."""
        if now >= self._renewed + self._terms.deadline:
            # Others may have taken what was ours; or they could not renew either, and are not gone if they were here.
            self._since = ()
            were = self.members
            self._seen = {name: _Seen(one.lease, now) if name in were else one for name, one in self._seen.items()}
        listed = {lease.member: lease for lease in leases}
        own = listed.pop(self.identity, None)
        for lease in listed.values():
            self._saw_other(lease, now)
        self._forget(listed, now)
        here = (name for name, one in self._seen.items() if not one.lease.left and now < one.at + one.lease.duration)
        view = tuple(sorted({self.identity, *here}))
        said = () if own is None else (own.view,)
        self._views = (*(each for each in dict.fromkeys((*self._views, *said)) if each != view), view)
        if own is not None and own.stamp in self._sent:
            self._renewed = max(self._renewed, self._sent[own.stamp])
            # A renewal that was sent before is refused by its resourceVersion.
            if own.view == view and own.stamp == next(reversed(self._sent)):
                self._views = (view,)
                self._sent = {own.stamp: self._renewed}
        agree = all(one.lease.view == view for one in self._seen.values() if self._claimed_by(one, now) is not None)
        if self.agreed and agree and not self._claims:
            self._since = (view,)
        elif self._since:
            self._since = tuple(dict.fromkeys((*self._since, view)))

    def owns(self, group: str, now: float) -> bool:
        """Whether we may begin a write for a group of pools now."""
        return self.leads(now) and self.holds(group, now)

    def leads(self, now: float) -> bool:
        """Whether our Lease was renewed in time, so that what we hold we may write for."""
        return now < self._renewed + self._terms.deadline

    def holds(self, group: str, now: float) -> bool:
        """Whether nobody else may have written for a group since it became ours, however old our renewal is."""
        if any(winner(group, view) != self.identity for view in self._views):
            return False
        if self._since and all(winner(group, view) == self.identity for view in self._since):
            return True
        return not any(claim.covers(group) for claim in self._claiming(now))

    def state(self, now: float) -> object:
        """It differs whenever what we may write for may differ, and not at each renewal."""
        claims = {(one.member, one.view) for one in self._claiming(now)}
        return self.leads(now), self._views, self._since, claims

    def gone(self, now: float) -> list[str]:
        """Members whose Leases may be deleted: by the first of all, so that they do not do it at once."""
        first = self.agreed and self.members[0] == self.identity
        return [name for name, one in self._seen.items() if first and now >= one.at + FORGOTTEN_AFTER]

    def _saw_other(self, lease: MemberLease, now: float) -> None:
        known = self._seen.get(lease.member)
        if known is not None and known.lease == lease:
            return
        # From the answer on: counted from the question, a slow one ends the other's term before the other does.
        self._seen[lease.member] = _Seen(lease, now)
        before = None if known is None else known.lease
        until, edition = now + self._terms.write, 0 if before is None else before.edition + 1
        if before is not None and before.left:
            return
        if before is not None and (before.view != lease.view or lease.left):
            self._claims += (_Claim(lease.member, before.view, until),)
        if lease.edition > edition:
            self._claims += (_Claim(lease.member, None, until),)
        if before is None and lease.left:
            self._claims += (_Claim(lease.member, lease.view, until),)

    def _claimed_by(self, one: _Seen, now: float) -> _Claim | None:
        """What a member claims as its Lease stands."""
        until = one.at + one.lease.duration + self._terms.write
        return _Claim(one.lease.member, one.lease.view, until) if not one.lease.left and now < until else None

    def _claiming(self, now: float) -> tuple[_Claim, ...]:
        standing = (self._claimed_by(one, now) for one in self._seen.values())
        return (*(one for one in self._claims if now < one.until), *(one for one in standing if one is not None))

    def _forget(self, listed: Container[str], now: float) -> None:
        self._claims = tuple(one for one in self._claims if now < one.until)
        # A Lease that a person has deleted counts until it would have run out.
        self._seen = {
            name: one for name, one in self._seen.items() if name in listed or self._claimed_by(one, now) is not None
        }


class MemberLeases(Protocol):
    """Part of a cluster that sharing needs."""

    async def list_leases(self, namespace: str, selector: str) -> list[dict[str, Any]]:
        """All with these labels, as of now."""

    async def create_lease(
        self, lease: Key, spec: dict[str, Any], labels: Mapping[str, str], annotations: Mapping[str, str]
    ) -> dict[str, Any]:
        """Create it, or Conflict."""

    async def replace_lease(self, lease: Key, held: dict[str, Any]) -> dict[str, Any]:
        """Replace it as read, or Conflict."""

    async def delete_lease(self, lease: Key, version: str) -> None:
        """Delete it as read, or Conflict."""


class ShardMembership:
    """An operator as one of the members. Writers ask `owns`; it turns false by the clock alone, whatever hangs."""

    def __init__(
        self,
        leases: MemberLeases,
        namespace: str,
        release: str,
        identity: str,
        *,
        clock: Callable[[], float],
        terms: ShardTerms = TERMS,
    ) -> None:
        """`clock` is monotonic, in seconds. It must count while the process is frozen."""
        self._terms = terms
        self._leases, self._namespace, self._release, self._clock = leases, namespace, release, clock
        self.view = ShardView(identity, self._terms)
        self._name = f"{release}-{hashlib.blake2b(identity.encode(), digest_size=5).hexdigest()}"
        self._listed: dict[str, dict[str, Any]] = {}
        """The Leases as listed last, by member."""
        self._answered = clock()
        self._joined = False
        self._state: object = None
        self.changed: Callable[[], None] = lambda: None
        """Called when what we may write for may have changed."""
        self.alive: Callable[[], bool] = lambda: True
        """Whether somebody writes for our share. Else our Lease is left to run out."""

    @property
    def leading(self) -> bool:
        """Whether we may write for anything now."""
        return self.view.leads(self._clock())

    @property
    def silence(self) -> float:
        """Seconds since the API server last listed the Leases."""
        return self._clock() - self._answered

    def owns(self, group: str) -> bool:
        """Whether we may begin a write for a group of pools now."""
        return self.view.owns(group, self._clock())

    def holds(self, group: str) -> bool:
        """Whether nobody else may have written for a group since it became ours."""
        return self.view.holds(group, self._clock())

    def join(self) -> None:
        """Our caches are full, so we can take a share."""
        self._joined = True

    async def run(self) -> None:
        """Renew and list until cancelled; then call `release`."""
        leading = False
        while True:
            started = self._clock()
            if self._joined:
                try:
                    await self.attempt()
                except (ClusterError, TimeoutError) as error:
                    log.warning("%s", str(error) or f"Cannot renew Lease {self._name}: no answer in time")
                self._tell()
            writing = f"Writing as one of the operators {', '.join(self.view.members)}"
            leading = log_change(leading, self.leading, writing, self._terms.deadline)
            await asyncio.sleep(max(0.0, self._terms.retry - (self._clock() - started)))

    async def attempt(self) -> None:
        """List all Leases, and write ours where that is due."""
        await self._list()
        for _ in range(2):  # once more where the list shows that somebody came
            if self.view.due(self._clock()) and self.alive():
                try:
                    await self._renew()
                except Conflict as error:
                    log.info("%s", error)  # a renewal without an answer was applied meanwhile
                await self._list()
        await self._clear()

    async def release(self) -> None:
        """Give the Lease back, so that nobody waits for it to run out."""
        try:
            for _ in range(GIVING_BACK):
                await self._list()
                held = self._listed.get(self.view.identity)
                if held is None:
                    return
                held["spec"] |= {"holderIdentity": "", "renewTime": timestamp()}
                try:
                    await self._soon(self._leases.replace_lease((self._namespace, self._name), held))
                except (Conflict, NotFound):
                    continue
                return
        except (ClusterError, TimeoutError) as error:
            log.info("The lease was not released and will expire: %s", str(error) or "no answer in time")

    async def _list(self) -> None:
        found = await self._soon(self._leases.list_leases(self._namespace, f"{LABEL}={self._release}"))
        now = self._answered = self._clock()
        read = [(MemberLease.read(raw), raw) for raw in found]
        self._listed = {lease.member: raw for lease, raw in read}
        before = self.view.members
        self.view.saw([lease for lease, _ in read], now)
        if before and before != self.view.members:
            log.info("The pools are shared by %s", ", ".join(self.view.members))
        self._tell()

    async def _renew(self) -> None:
        lease = self.view.sends(timestamp(), self._clock())
        spec = {
            "holderIdentity": lease.member,
            "leaseDurationSeconds": math.ceil(lease.duration),
            "renewTime": lease.stamp,
            "leaseTransitions": lease.edition,
        }
        annotations = {VIEW: ",".join(lease.view), MEMBER: lease.member}
        key, held = (self._namespace, self._name), self._listed.get(lease.member)
        if held is None:
            labels = dict([(LABEL, self._release), OPERATOR])
            await self._soon(self._leases.create_lease(key, spec, labels, annotations))
            return
        meta = held["metadata"]
        meta = {**meta, "annotations": (meta.get("annotations") or {}) | annotations}
        held = {**held, "metadata": meta, "spec": (held.get("spec") or {}) | spec}
        await self._soon(self._leases.replace_lease(key, held))

    async def _clear(self) -> None:
        """Delete the Leases of members that have been gone for long."""
        for member in self.view.gone(self._clock()):
            raw = self._listed.get(member)
            if raw is not None:
                name, version = raw["metadata"]["name"], raw["metadata"]["resourceVersion"]
                await self._soon(self._leases.delete_lease((self._namespace, name), version))

    def _tell(self) -> None:
        state = self.view.state(self._clock())
        if state != self._state:
            self._state = state
            self.changed()

    async def _soon(self, request: Coroutine[Any, Any, T]) -> T:
        async with asyncio.timeout(self._terms.request):
            return await request
