"""Counts memory and fleet in replicas of the reference target, and splits a capacity into replicas of each target.

In: memory, targets and a capacity within all bounds. Out: the memory in replicas of the reference, the `Fleet` as it
stands, and its `Split`, a `Part` for each target. A mix follows from a capacity by four rules: the cheapest mix that
has it; what stands is kept unless another mix saves `Params.worth_moving`; nothing is removed before what replaces it
is Ready; a target that does not deliver counts for what it delivers, and keeps one pending replica as a probe. Nothing
stands in for a target alone, so all its ordered replicas count. Of a kind that removes the highest ordinals
first, as many stay as keep the replicas that serve.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import starmap
from typing import NamedTuple, Self

from servingpool.catalogue.limits import LimitName
from servingpool.decision.decision import EQUAL, Limited, Part, share_of
from servingpool.decision.learn.kinds import Kind, best_known, kind_of, shortages_seen, weights
from servingpool.decision.learn.memory import Memory
from servingpool.decision.learn.miss_curve import MissCurve
from servingpool.decision.need.mix import BEYOND, Frontier, Mix, Offer, capacity, cheapest_mix, greatest, price
from servingpool.decision.observation import Observation, Reading, Replica
from servingpool.decision.pool import Pool, Target
from servingpool.decision.words import listed, shown

OVERDUE = 2.0
"""Cold starts, 1.5 to 4, after which a replica that is not Ready yet is not counted on."""


def lowest(replicas: Iterable[Replica]) -> list[Replica]:
    """Replicas that have an ordinal, the lowest first: the last of them goes first."""
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
    """Names of the replicas that are not Ready, as the subject of a sentence with its verb."""
    names = [one.name for one in replicas if one.ready_for is None]
    return f"{listed(names)} {'is' if len(names) == 1 else 'are'}"


def _holding(good: Sequence[bool], wanted: int) -> int:
    """How many of the lowest hold `wanted` good ones, or all there are."""
    places = [at for at, one in enumerate(good, 1) if one]
    return max(places[:wanted], default=0)


class Line(NamedTuple):
    """A target with its replicas, as it stands."""

    target: Target
    requested: int
    """`spec.replicas`."""
    ready: int
    delivered: int
    """Replicas that are Ready or load on a node."""
    weight: float
    """Capacity of a replica, in replicas of the reference."""
    speed: Reading
    cold_start: float
    stuck: str | None
    standing: tuple[Replica, ...] = ()
    """Replicas of the target, the lowest ordinal first, where the highest go first."""
    absent: bool = False
    """Whether the target is stuck and not alone: another target, or another role, counts without its replicas."""

    def fewest(self, count: int) -> int:
        """Replicas to order so that `count` serving replicas stay: see `fewest`."""
        return count if count >= self.requested else min(self.requested, fewest(self.standing, count, self.cold_start))

    @property
    def credited(self) -> int:
        """Replicas that count as requested: those that will come."""
        return min(self.requested, self.delivered) if self.absent else self.requested

    @property
    def proven(self) -> bool:
        """Whether its speed is known."""
        return isinstance(self.speed, float)


@dataclass(frozen=True, slots=True)
class Fleet:
    """All targets of a pool, in the order of the spec."""

    lines: tuple[Line, ...]
    least: int
    """Fewest replicas of all targets: the pool's min in force."""
    most: int
    """Most replicas of all targets: the pool's max in force."""
    max_change: float
    saves: float
    """Least share of the cost that a move to another mix saves."""
    offers: tuple[Offer, ...] = field(init=False)
    """Replicas of each target that can be had now."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "offers", self._offers())

    @classmethod
    def of(cls, lines: Sequence[Line], pool: Pool) -> Self:
        """The fleet with the bounds of this pool."""
        if len(lines) > 1 or pool.paired:
            lines = [line if line.stuck is None else line._replace(absent=True) for line in lines]
        return cls(tuple(lines), pool.min_replicas, pool.max_replicas, pool.max_change, pool.params.worth_moving)

    def within(self, pool: Pool) -> Fleet:
        """The fleet with the bounds of this pool, in replicas of any target."""
        if (self.least, self.most) == (pool.min_replicas, pool.max_replicas):
            return self
        return replace(self, least=pool.min_replicas, most=pool.max_replicas)

    def observed(self, observation: Observation) -> Observation:
        """The observation in replicas of the reference."""
        worth = {line.target.name: line.weight for line in self.lines}
        credited = sum(line.credited for line in self.lines)
        return replace(
            observation,
            # What never comes is not missed; and a fleet that waits for its first replica is not at zero.
            requested=max(credited, min(observation.requested, 1)),
            ready=tuple(
                one if (weight := worth.get(one.target, 1.0)) == one.weight else replace(one, weight=weight)
                for one in observation.ready
            ),
            capacity=self.standing,
        )

    @property
    def fewest(self) -> float:
        """Capacity of the pool's min, at the least price; none where it may go to zero, whatever the bases."""
        if self.least == 0:
            return 0.0
        return capacity(self.offers, self._of_count((0,) * len(self.offers), self.offers, least=self.least))

    @property
    def largest(self) -> float:
        """Capacity of the pool's max, if each target delivered."""
        offers = _lifted(self.offers, self.lines)
        return capacity(offers, self._within(greatest(offers), offers))

    @property
    def standing(self) -> float:
        """Requested capacity that comes."""
        return math.fsum(line.credited * line.weight for line in self.lines)

    @property
    def ordered(self) -> float:
        """Requested capacity, whether it comes or not."""
        return math.fsum(line.requested * line.weight for line in self.lines)

    @property
    def reachable(self) -> float:
        """Capacity of all replicas that can be had now."""
        return capacity(self.offers, self._within(greatest(self.offers), self.offers))

    @property
    def replaced(self) -> bool:
        """Whether some target is absent."""
        return any(line.absent for line in self.lines)

    @property
    def stuck(self) -> int:
        """Replicas that do not come, and that other targets may stand in for."""
        return sum(max(0, line.requested - line.delivered) for line in self.lines if line.absent)

    @property
    def frontier(self) -> Frontier:
        """Capacities to weigh, with their prices."""
        most = max(1, self.most)
        wide = (
            offer._replace(most=max(offer.least, BEYOND * min(offer.most, most)))
            if offer.most == line.target.most
            else offer
            for line, offer in zip(self.lines, self.offers, strict=True)
        )
        return Frontier(tuple(wide))

    def _offers(self, *, zero: bool = False) -> tuple[Offer, ...]:
        """Replicas of each target that can be had now; `zero`: down to none, whatever the bases."""
        growing = [line for line in self.lines if not line.absent and line.requested < line.target.most]
        known = any(line.proven and line.weight > 0.0 for line in growing)
        return tuple(self._offer(line, known=known, zero=zero) for line in self.lines)

    def _offer(self, line: Line, *, known: bool, zero: bool) -> Offer:
        """`known`: some target of known speed may grow, so that one of unknown speed need not."""
        least, most = 0 if zero else line.target.base, line.target.most
        if line.absent:
            most = min(most, line.credited)
        elif not line.proven and known:
            most = min(most, max(least, line.requested))
        return Offer(line.weight, line.target.price, min(least, most), most)

    def _of_count(self, mix: Mix, offers: Sequence[Offer], *, least: int) -> Mix:
        """The mix with at least so many replicas, the cheapest ones added."""
        counts = [max(count, offer.least) for count, offer in zip(mix, offers, strict=True)]
        if sum(counts) >= least:
            return tuple(counts)
        for at in sorted(range(len(offers)), key=lambda at: offers[at].price):
            counts[at] += max(0, min(offers[at].most - counts[at], least - sum(counts)))
        return tuple(counts)

    def _within(self, mix: Mix, offers: Sequence[Offer]) -> Mix:
        """The mix with at most `most` replicas, the slowest ones left out."""
        if sum(mix) <= self.most:
            return mix
        counts = list(mix)
        for at in sorted(range(len(offers)), key=lambda at: offers[at].weight):
            counts[at] -= max(0, min(counts[at] - offers[at].least, sum(counts) - self.most))
        return tuple(counts)

    def _cheapest(self, offers: Sequence[Offer], need: float) -> Mix:
        """The cheapest mix of this capacity with no fewer and no more replicas than the pool may have."""
        mix, offers = cheapest_mix(offers, need), list(offers)
        for at in sorted(range(len(offers)), key=lambda at: offers[at].weight):
            beyond = sum(mix) - self.most
            if beyond <= 0:
                break
            # Fewer of the slowest, and faster ones in their place.
            offers[at] = offers[at]._replace(most=max(offers[at].least, mix[at] - beyond))
            mix = cheapest_mix(offers, need)
        return self._of_count(self._within(mix, offers), offers, least=self.least)

    def split(self, limited: Limited, *, move: bool, trial: bool, keep: bool = False) -> Split:
        """Replicas of each target for this capacity.

        `move`: it may move to a cheaper mix. `trial`: a target that never served may get its first replica, which shows
        its speed. `keep`: what is needed is not known for certain, so nothing goes for it but what is replaced.
        """
        need = limited.replicas
        zero = need <= 0.0 and self.least == 0 and not (keep and any(line.requested for line in self.lines))
        keep = keep and need >= self.standing * (1.0 - EQUAL) and not zero
        offers, now = self._offers(zero=True) if zero else self.offers, tuple(line.credited for line in self.lines)
        mix = self._of_count(self._kept(offers, need, now, keep=keep), offers, least=0 if zero else self.least)
        if move and not zero and any(line.stuck is None for line in self.lines):
            best = self._cheapest(offers, need)
            if price(offers, best) < (1.0 - self.saves) * price(offers, mix):
                mix = tuple(map(max, mix, best))
        lifted = self._cheapest(_lifted(offers, self.lines), need) if self.replaced else mix
        # Without a pending pod nothing tells that there is still no node: all would be ordered, and removed, again.
        all_in_use = self.replaced and not zero and need >= self.reachable * share_of(len(self.lines))
        order = [
            max(count + self._probes(line, count, more, all_in_use=all_in_use), 0 if zero else line.target.base)
            for line, count, more in zip(self.lines, mix, lifted, strict=True)
        ]
        if not zero:
            self._try_one(order, begin=trial)
        if keep:
            self._keep_ordered(order)
        self._keep_until_ready(order, need)
        limited = self._in_steps(order, self._keep_lowest(order, limited))
        return Split(tuple(starmap(_part, zip(self.lines, order, strict=True))), limited)

    def _probes(self, line: Line, count: int, more: int, *, all_in_use: bool) -> int:
        """Pending replicas to keep beyond `count`; `more` would be ordered if the target delivered."""
        if not line.absent:
            return 0
        return int(more > count or (all_in_use and line.requested > count < line.target.most))

    def _kept(self, offers: Sequence[Offer], need: float, now: Mix, *, keep: bool) -> Mix:
        """The cheapest mix of this capacity that only adds to what stands, or only removes from it."""
        grows = keep or need * share_of(len(offers)) > self.standing
        near = [
            offer._replace(least=max(offer.least, min(count, offer.most)))
            if grows
            else offer._replace(most=max(offer.least, min(count, offer.most)))
            for offer, count in zip(offers, now, strict=True)
        ]
        return self._cheapest(near, need)

    def _try_one(self, order: list[int], *, begin: bool) -> None:
        """Order the first replica of one target that never served, and keep it until it has."""
        unproven = [at for at, line in enumerate(self.lines) if not line.proven and line.target.most > 0]
        tried = [at for at in unproven if self.lines[at].requested > 0]
        waits = any(not self.lines[at].absent for at in tried)
        if not waits and begin and sum(order) < self.most:
            tried += [at for at in unproven if at not in tried][:1]
        for at in tried:
            order[at] = max(order[at], 1)

    def _keep_ordered(self, order: list[int]) -> None:
        """Keep pods that find no node, unless other targets have got as much in their place."""
        missing = self.ordered - self._capacity(order)
        for at, line in enumerate(self.lines):
            if not line.absent or line.weight <= 0.0:
                continue
            most = min(line.requested, line.target.most) - order[at]
            back = max(0, min(most, math.ceil(missing / line.weight - EQUAL)))
            order[at] += back
            missing -= back * line.weight

    def _keep_until_ready(self, order: list[int], need: float) -> None:
        """Keep what goes while the Ready replicas that stay have less capacity than is needed and there is."""
        lines = self.lines

        def left() -> float:
            return math.fsum(line.weight * min(line.ready, count) for line, count in zip(lines, order, strict=True))

        enough = min(need, math.fsum(line.weight * line.ready for line in lines)) * share_of(len(lines))
        going = [at for at, line in enumerate(lines) if order[at] < line.ready and line.weight > 0.0]
        for at in sorted(going, key=lambda at: lines[at].target.price / lines[at].weight):
            while order[at] < min(lines[at].ready, lines[at].requested) and left() < enough:
                order[at] += 1

    def _keep_lowest(self, order: list[int], limited: Limited) -> Limited:
        """Keep as many replicas that serve where the highest ordinals go first, as far as the pool's max allows."""
        for at, line in enumerate(self.lines):
            wanted = order[at]
            more = max(0, min(line.fewest(wanted), line.target.most) - wanted)
            more = max(0, min(more, self.most - sum(order)))
            if more:
                order[at] += more
                kept, unready = limited.replicas + more * line.weight, not_ready(line.standing[:wanted])
                limited = limited.at_least(
                    kept, LimitName.LOWEST_STAY, replicas=order[at], wanted=wanted, unready=unready
                )
        return limited

    def _in_steps(self, order: list[int], limited: Limited) -> Limited:
        """The split with at most `max_change` replicas more in all, and at most as many fewer."""
        if self.max_change == math.inf:
            return limited
        most, wanted = int(self.max_change), list(order)
        for sign in (1, -1):
            room = most
            for at, line in enumerate(self.lines):
                change = sign * (order[at] - line.requested)
                if change > 0:
                    order[at] = line.requested + sign * min(change, room)
                    room -= min(change, room)
        if order == wanted:
            return limited
        left = self._capacity(order)
        if any(count > asked for count, asked in zip(order, wanted, strict=True)):  # what goes was held back
            limited = limited.at_least(left, LimitName.MAX_CHANGE, to=shown(left), most=most)
        if left >= limited.replicas * share_of(len(self.lines)):
            return limited  # a cheaper replacement was held back
        return limited.at_most(left, LimitName.MAX_CHANGE, to=shown(left), most=most)

    def _capacity(self, order: Sequence[int]) -> float:
        """Capacity of so many replicas of each target."""
        return math.fsum(line.weight * count for line, count in zip(self.lines, order, strict=True))


class Split(NamedTuple):
    """The replicas of each target."""

    parts: tuple[Part, ...]
    limited: Limited
    """The requested capacity, with the limits that splitting it met."""


def _part(line: Line, replicas: int) -> Part:
    return Part(
        line.target.name,
        line.requested,
        replicas,
        line.ready,
        line.speed,
        line.cold_start,
        line.stuck,
        line.delivered,
        line.weight,
        line.absent,
        line.target.base,
    )


def _lifted(offers: Sequence[Offer], lines: Sequence[Line]) -> tuple[Offer, ...]:
    """The offers as if each target delivered."""
    return tuple(
        offer if not line.absent else offer._replace(most=max(offer.most, line.target.most))
        for offer, line in zip(offers, lines, strict=True)
    )


def counted(memory: Memory, observation: Observation, pool: Pool, now: float) -> Memory:
    """The memory in replicas of the reference, with the delivery of each target.

    The reference is the target that had most Ready replicas when one first served. It stays, unless it leaves the spec,
    or its speed is unknown and none of its replicas could tell.
    """
    profile = memory.profile
    shortages = shortages_seen(memory.shortages, observation, now)
    # A memory has so many fields that a copy of it takes a hundredth of a decision.
    memory = memory if shortages == memory.shortages else replace(memory, shortages=shortages)
    serves = any(replica.target == profile.reference for replica in observation.ready)
    stays = any(target.name == profile.reference for target in pool.targets)
    if stays and profile.kinds and (profile.fit.known or serves):
        return memory
    new = best_known(profile.kinds, observation)
    return memory if profile.kinds and new == profile.reference else _in_replicas_of(new, memory, pool)


def _in_replicas_of(new: str, memory: Memory, pool: Pool) -> Memory:
    profile = memory.profile
    if not any(kind.target == target.name for kind in profile.kinds for target in pool.targets):
        # None stays. If the engines are others too, that shows within minutes.
        kind = Kind(new, profile.fit, profile.saturation, profile.cold_start)
        return replace(memory, profile=replace(profile, kinds=(kind,), reference=new))
    kind, interrupted = kind_of(profile.kinds, new), memory.interrupted()
    taught = replace(
        interrupted.profile,
        kinds=tuple(replace(one, speed=None) for one in profile.kinds),
        reference=new,
        fit=kind.fit,
        saturation=kind.saturation,
        curve=MissCurve(),
        forecast=replace(interrupted.profile.forecast, initial_replicas=0),  # they were counted in the old reference's
    )
    return replace(interrupted, profile=taught)


def fleet_of(observation: Observation, pool: Pool, memory: Memory, now: float) -> Fleet:
    """The fleet as observed, with the bounds of `pool` in replicas of any target."""
    profile, params = memory.profile, pool.params
    worth = weights(profile.kinds, [(target.name, target.price) for target in pool.targets], profile.reference)
    ordered = {order.target: order.replicas for order in observation.orders}
    shortages = {one.target: one for one in memory.shortages}
    standing, lines = (*observation.ready, *observation.starting), []
    for target in pool.targets:
        kind, requested = kind_of(profile.kinds, target.name), ordered.get(target.name, 0)
        ready = sum(one.target == target.name for one in observation.ready)
        starting = [one for one in observation.starting if one.target == target.name]
        without_node = tuple(one for one in starting if one.unschedulable)
        missing = requested - ready - len(starting)
        shortage = shortages.get(target.name)
        cold_start = kind.cold_start.expected(profile.cold_start.expected(params.cold_start))
        lines.append(
            Line(
                target,
                requested,
                ready,
                ready + len(starting) - len(without_node),
                worth[target.name],
                1.0 if target.name == profile.reference else kind.known_speed,
                cold_start,
                None if shortage is None else shortage.stuck(ready, without_node, missing, now, params),
                tuple(lowest(one for one in standing if one.target == target.name)),
            )
        )
    return Fleet.of(lines, pool)
