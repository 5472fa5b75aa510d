"""Counts memory and fleet in replicas of the reference target, and splits a capacity into replicas of each target.

In: memory, targets and a capacity within all bounds. Out: the memory in replicas of the reference, the `Fleet` as it
stands, and its `Split`, a `Part` for each target. A mix follows from a capacity by four rules: the cheapest mix that
has it; what stands is kept unless another mix saves `Params.worth_moving`, or has as much more for the money that a
rate may spend; nothing is removed before what replaces it is Ready, unless both would cost more than that; a target
that does not deliver counts for what it delivers, and keeps one pending replica as a probe. A target alone has nothing
to stand in for it, so all its ordered replicas count. A StatefulSet removes its highest ordinals first, so it keeps
every ordinal up to the highest one that must go on serving.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from servingpool.catalogue.limits import LimitName
from servingpool.decision.decision import Limited, Part, share_of
from servingpool.decision.learn.kinds import OVERDUE, best_known, kind_of, shortages_seen, weights
from servingpool.decision.learn.memory import Memory
from servingpool.decision.learn.miss_curve import MissCurve
from servingpool.decision.need.mix import BEYOND, Frontier, Mix, Offer, capacity, cheapest_mix, front, greatest, price
from servingpool.decision.observation import EPSILON, Observation, Replica
from servingpool.decision.pool import Pool
from servingpool.decision.words import listed, shown


def lowest(replicas: Iterable[Replica]) -> list[Replica]:
    """Replicas that have an ordinal, the lowest first: the last of them goes first."""
    return sorted([one for one in replicas if one.ordinal is not None], key=lambda one: one.ordinal or 0)


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
    return max([at for at, one in enumerate(good, 1) if one][:wanted], default=0)


Split = tuple[tuple[Part, ...], Limited]


@dataclass(frozen=True)
class Fleet:
    """All targets of a pool, in the order of the spec, and the pool's bounds in force, in replicas of any target."""

    lines: tuple[Part, ...]
    pool: Pool

    def observed(self, observation: Observation) -> Observation:
        """The observation in replicas of the reference."""
        ready, credited = observation.ready, sum([line.credited for line in self.lines])
        own = {one.target: 1.0 for one in ready} | {line.target: line.weight for line in self.lines}
        return replace(
            observation,
            # What never comes is not missed; and a fleet that waits for its first replica is not at zero.
            requested=max(credited, min(observation.requested, 1)),
            ready=tuple(
                [one if one.weight == own[one.target] else replace(one, weight=own[one.target]) for one in ready]
            ),
            capacity=self.standing,
        )

    @property
    def fewest(self) -> float:
        """Capacity of the pool's min, at the least price; none where it may go to zero, whatever the bases."""
        if self.pool.min_replicas == 0:
            return 0.0
        return capacity(self.offers, self._at_least((0,) * len(self.offers), self.offers, self.pool.min_replicas))

    @property
    def largest(self) -> float:
        """Capacity of the pool's max, if each target delivered."""
        offers = self._lifted(self.offers)
        return capacity(offers, self._within(greatest(offers), offers))

    @property
    def standing(self) -> float:
        """Requested capacity that comes."""
        return math.fsum([line.credited * line.weight for line in self.lines])

    @property
    def ordered(self) -> float:
        """Requested capacity, whether it comes or not."""
        return self._capacity([line.requested for line in self.lines])

    @property
    def reachable(self) -> float:
        """Capacity of all replicas that can be had now."""
        return capacity(self.offers, self._within(greatest(self.offers), self.offers))

    def paid_by(self, money: float) -> float:
        """Capacity of the largest mix that costs no more: beside what stands, unless another one has much more."""
        beside = self._beside_what_stands(self.offers, grows=True)
        fronts = (front(offers, self.reachable) for offers in (self.offers, beside))
        free, kept = (float(max(one.capacities[one.prices <= money], default=0.0)) for one in fronts)
        return kept if kept >= (1.0 - self.pool.params.worth_moving) * free else free

    @property
    def replaced(self) -> bool:
        """Whether some target is absent."""
        return any(line.absent for line in self.lines)

    @property
    def stuck(self) -> int:
        """Replicas that do not come, and that other targets may stand in for."""
        return sum([max(0, line.requested - line.delivered) for line in self.lines if line.absent])

    @property
    def frontier(self) -> Frontier:
        """Capacities to weigh, with their prices."""
        most = max(1, self.pool.max_replicas)
        wide = (
            offer._replace(most=max(offer.least, BEYOND * min(offer.most, most))) if offer.most == line.most else offer
            for line, offer in zip(self.lines, self.offers, strict=True)
        )
        return Frontier(tuple(wide))

    @cached_property
    def offers(self) -> tuple[Offer, ...]:
        """Replicas of each target that can be had now."""
        return self._offers()

    def _offers(self, *, zero: bool = False) -> tuple[Offer, ...]:
        """`zero`: down to none, whatever the bases."""
        growing = [line for line in self.lines if not line.absent and line.requested < line.most]
        known = any(line.measured and line.weight > 0.0 for line in growing)
        return tuple([self._offer(line, known=known, zero=zero) for line in self.lines])

    def _offer(self, line: Part, *, known: bool, zero: bool) -> Offer:
        """`known`: some target of known weight may grow, so that one of unknown weight need not."""
        least, most = 0 if zero else line.base, line.most
        if line.absent:
            most = min(most, line.credited)
        elif not line.measured and known:
            most = min(most, max(least, line.requested))
        return Offer(line.weight, line.price, min(least, most), most)

    def _lifted(self, offers: Sequence[Offer]) -> tuple[Offer, ...]:
        """The offers as if each target delivered."""
        return tuple(
            offer._replace(most=max(offer.most, line.most)) if line.absent else offer
            for offer, line in zip(offers, self.lines, strict=True)
        )

    def _at_least(self, mix: Mix, offers: Sequence[Offer], least: int) -> Mix:
        """The mix with at least so many replicas, the cheapest ones added."""
        counts = [max(count, offer.least) for count, offer in zip(mix, offers, strict=True)]
        cheapest = sorted(range(len(offers)), key=lambda at: offers[at].price)
        return filled(counts, [offer.most for offer in offers], least, cheapest)

    def _within(self, mix: Mix, offers: Sequence[Offer]) -> Mix:
        """The mix with at most `max` replicas, the slowest ones left out."""
        fastest = sorted(range(len(offers)), key=lambda at: (-offers[at].weight, -at))
        return filled([offer.least for offer in offers], mix, self.pool.max_replicas, fastest)

    def _cheapest(self, offers: Sequence[Offer], need: float) -> Mix:
        """The cheapest mix of this capacity with no more replicas than the pool may have."""
        mix, offers = cheapest_mix(offers, need), list(offers)
        for at in sorted(range(len(offers)), key=lambda at: offers[at].weight):
            beyond = sum(mix) - self.pool.max_replicas
            if beyond <= 0:
                break
            # Fewer of the slowest, and faster ones in their place.
            offers[at] = offers[at]._replace(most=max(offers[at].least, mix[at] - beyond))
            mix = cheapest_mix(offers, need)
        return self._at_least(self._within(mix, offers), offers, self.pool.min_replicas)

    def split(self, limited: Limited, *, move: bool, trial: bool, keep: bool = False, money: float = math.inf) -> Split:
        """Replicas of each target for this capacity, and the capacity with the limits that splitting it met.

        `move`: it may move to a cheaper mix. `trial`: a target that never served may get its first replica, which shows
        its speed. `keep`: what is needed is not known for certain, so nothing goes for it but what is replaced.
        `money`: what it may cost; for that another mix takes the place of what stands at once.
        """
        need = limited.replicas
        zero = need <= 0.0 and self.pool.min_replicas == 0 and not (keep and any(one.requested for one in self.lines))
        keep = keep and need >= self.standing * (1.0 - EPSILON) and not zero
        offers = self._offers(zero=True) if zero else self.offers
        mix = self._mix(offers, need, move=move and not zero, keep=keep)
        if dear := money < math.inf and price(offers, mix) > money:
            found = front(offers, need)
            fits = found.mixes[(found.prices <= money) & (found.mixes.sum(axis=1) <= self.pool.max_replicas)]
            mix = self._at_least(fits[-1].tolist() if len(fits) else mix, offers, self.pool.min_replicas)
        order = self._with_probes(mix, offers, need, zero=zero)
        if not zero:
            order = self._with_trial(order, begin=trial)
        if keep:
            order = self._with_ordered(order)
        order, limited = self._in_steps(*self._with_lowest(order if dear else self._until_ready(order, need), limited))
        return tuple(line._replace(replicas=count) for line, count in zip(self.lines, order, strict=True)), limited

    def _mix(self, offers: Sequence[Offer], need: float, *, move: bool, keep: bool) -> Mix:
        """The cheapest mix that only adds to what stands, or only removes from it; another where that saves enough."""
        if len(offers) == 1:
            return (max(offers[0].least, min(math.ceil(need * share_of(1)), offers[0].most)),)
        near = self._beside_what_stands(offers, grows=keep or need * share_of(len(offers)) > self.standing)
        mix = self._at_least(self._cheapest(near, need), offers, self.pool.min_replicas)
        if move and any(line.stuck is None for line in self.lines):
            best = self._cheapest(offers, need)
            if price(offers, best) < (1.0 - self.pool.params.worth_moving) * price(offers, mix):
                return tuple(map(max, mix, best))
        return mix

    def _beside_what_stands(self, offers: Sequence[Offer], *, grows: bool) -> list[Offer]:
        """The offers with all that stands at least, or at most."""
        stands = [max(one.least, min(line.credited, one.most)) for one, line in zip(offers, self.lines, strict=True)]
        field = "least" if grows else "most"
        return [one._replace(**{field: count}) for one, count in zip(offers, stands, strict=True)]

    def _with_probes(self, mix: Mix, offers: Sequence[Offer], need: float, *, zero: bool) -> Mix:
        """One pending replica more of each absent target that would be ordered if it delivered."""
        if not self.replaced:
            return mix
        lifted = self._cheapest(self._lifted(offers), need)
        # Without a pending pod nothing tells that there is still no node: all would be ordered, and removed, again.
        all_in_use = not zero and need >= self.reachable * share_of(len(self.lines))
        order = []
        for line, count, more in zip(self.lines, mix, lifted, strict=True):
            probe = line.absent and (more > count or (all_in_use and line.requested > count < line.most))
            order.append(max(count + probe, 0 if zero else line.base))
        return tuple(order)

    def _with_trial(self, order: Mix, *, begin: bool) -> Mix:
        """The first replica of one target that never served, which stays until it has."""
        unproven = [at for at, line in enumerate(self.lines) if not line.measured and line.most > 0]
        tried = [at for at in unproven if self.lines[at].requested > 0]
        waits = any(not self.lines[at].absent for at in tried)
        if not waits and begin and sum(order) < self.pool.max_replicas:
            tried += [at for at in unproven if at not in tried][:1]
        return tuple([max(count, int(at in tried)) for at, count in enumerate(order)])

    def _with_ordered(self, order: Mix) -> Mix:
        """Pods that find no node stay, unless other targets have got as much in their place."""
        most = [min(line.requested, line.most) for line in self.lines]
        absent = [at for at, line in enumerate(self.lines) if line.absent]
        return filled(order, most, self.ordered, absent, self._weights)

    def _until_ready(self, order: Mix, need: float) -> Mix:
        """What goes stays while the Ready replicas that stay have less capacity than is needed and there is."""
        ready = [line.ready for line in self.lines]
        enough = min(need, self._capacity(ready)) * share_of(len(ready))
        going = [at for at, line in enumerate(self.lines) if order[at] < line.ready and line.weight > 0.0]
        going.sort(key=lambda at: self.lines[at].price / self.lines[at].weight)
        most = [min(line.ready, line.requested) for line in self.lines]
        return tuple(map(max, order, filled(list(map(min, ready, order)), most, enough, going, self._weights)))

    def _with_lowest(self, order: Mix, limited: Limited) -> tuple[Mix, Limited]:
        """As many replicas that serve stay where the highest ordinals go first, as far as the pool's max allows."""
        counts = list(order)
        for at, line in enumerate(self.lines):
            wanted, most, room = counts[at], min(line.requested, line.most), self.pool.max_replicas - sum(counts)
            more = max(0, min(fewest(line.lowest, wanted, line.cold_start), most, wanted + room) - wanted)
            if more:
                counts[at] += more
                kept, unready = limited.replicas + more * line.weight, not_ready(line.lowest[:wanted])
                limited = limited.at_least(
                    kept, LimitName.LOWEST_STAY, replicas=counts[at], wanted=wanted, unready=unready
                )
        return tuple(counts), limited

    def _in_steps(self, order: Mix, limited: Limited) -> tuple[Mix, Limited]:
        """At most `max_change` replicas more in all, and at most as many fewer."""
        if self.pool.max_change == math.inf:
            return order, limited
        most, requested, places = int(self.pool.max_change), [line.requested for line in self.lines], range(len(order))
        below = list(map(min, order, requested))
        stepped = filled(below, order, sum(below) + most, places)
        above = list(map(max, stepped, requested))
        stepped = filled(stepped, above, sum(above) - most, reversed(places))
        if stepped == order:
            return order, limited
        left = self._capacity(stepped)
        if any(map(operator.gt, stepped, order)):  # what goes was held back
            limited = limited.at_least(left, LimitName.MAX_CHANGE, to=shown(left), most=most)
        if left < limited.replicas * share_of(len(self.lines)):  # else a cheaper replacement was held back
            limited = limited.at_most(left, LimitName.MAX_CHANGE, to=shown(left), most=most)
        return stepped, limited

    @property
    def _weights(self) -> list[float]:
        return [line.weight for line in self.lines]

    def _capacity(self, order: Sequence[int]) -> float:
        """Capacity of so many replicas of each target."""
        return math.fsum(map(operator.mul, self._weights, order))


def filled(
    counts: Sequence[int],
    most: Sequence[int],
    enough: float,
    places: Iterable[int],
    weights: Sequence[float] | None = None,
) -> Mix:
    """Counts raised at these places, in turn and each up to its `most`, until they have `enough` capacity.

    Without `weights` each replica counts as one.
    """
    found, weights = list(counts), weights or [1.0] * len(counts)
    missing = enough - math.fsum(map(operator.mul, weights, counts))
    for at in places:
        if weights[at] > 0.0:
            more = max(0, min(most[at] - found[at], math.ceil(missing / weights[at] - EPSILON)))
            found[at] += more
            missing -= more * weights[at]
    return tuple(found)


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
    if stays and profile.kinds and (profile.engine.fit.known or serves):
        return memory
    new = best_known(profile.kinds, observation)
    return memory if profile.kinds and new == profile.reference else _in_replicas_of(new, memory, pool)


def _in_replicas_of(new: str, memory: Memory, pool: Pool) -> Memory:
    profile = memory.profile
    if not any(kind.target == target.name for kind in profile.kinds for target in pool.targets):
        # None stays. If the engines are others too, that shows within minutes.
        kind = replace(profile.engine, target=new, speed=None)
        return replace(memory, profile=replace(profile, kinds=(kind,), reference=new))
    interrupted = memory.interrupted()
    taught = replace(
        interrupted.profile,
        kinds=tuple([replace(one, speed=None) for one in profile.kinds]),
        reference=new,
        curve=MissCurve(),
        ledger=replace(profile.ledger, cost=None),
        forecast=replace(interrupted.profile.forecast, initial_replicas=0),  # they were counted in the old reference's
    )
    return replace(interrupted, profile=taught)


def fleet_of(observation: Observation, pool: Pool, memory: Memory, now: float) -> Fleet:
    """The fleet as observed, with the bounds of `pool` in replicas of any target."""
    profile, params = memory.profile, pool.params
    weight = weights(profile.kinds, {target.name: target.price for target in pool.targets}, profile.reference)
    ordered = {order.target: order.replicas for order in observation.orders}
    shortages = {one.target: one for one in memory.shortages}
    standing, lines = (*observation.ready, *observation.starting), []
    for target in pool.targets:
        name, requested = target.name, ordered.get(target.name, 0)
        kind, shortage = kind_of(profile.kinds, name), shortages.get(name)
        ready = [one.target for one in observation.ready].count(name)
        starting = [one for one in observation.starting if one.target == name]
        without_node = tuple([one for one in starting if one.unschedulable])
        missing = requested - ready - len(starting)
        stuck = None if shortage is None else shortage.stuck(ready, without_node, missing, now, params)
        part = Part(
            name,
            requested,
            requested,
            ready,
            weight[name],
            kind.cold_start.expected(profile.cold_start.expected(params.cold_start)),
            stuck,
            ready + len(starting) - len(without_node),
            name == profile.reference or kind.speed is not None,
            stuck is not None and (len(pool.targets) > 1 or pool.paired),
            target.base,
            target.most,
            target.price,
            tuple(lowest([one for one in standing if one.target == name])),
        )
        lines.append(part)
    return Fleet(tuple(lines), pool)
