"""Sharing of a budget's GPUs among pools: pure, and the same for every order in which pools are given.

Floors first, then mins that stand, then other mins, then one replica at a time to where it avoids the most misses for
each GPU. A budget takes nothing from a pool that it cannot give to another.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from types import MappingProxyType

from servingpool.decision.params import DEFAULT
from servingpool.decision.words import listed


def worth(misses: Sequence[float], start: int) -> list[float]:
    """Misses that each replica after the first `start` avoids, non-increasing.

    Along the hull: near a cliff one replica more avoids nothing, and three avoid all. Each of the three then has a
    third of the worth, else none would be ordered.
    """
    return [max(0.0, _slope(misses, a, b)) for a, b in pairwise(hull(misses, start)) for _ in range(b - a)]


def hull(misses: Sequence[float], start: int = 0) -> list[int]:
    """Replicas from `start` on where the convex curve below the misses has its corners."""
    corners: list[int] = []
    for at in range(start, len(misses)):
        while len(corners) > 1 and _slope(misses, corners[-2], corners[-1]) <= _slope(misses, corners[-1], at):
            corners.pop()
        corners.append(at)
    return corners


def _slope(misses: Sequence[float], low: int, high: int) -> float:
    return (misses[low] - misses[high]) / (high - low)


@dataclass(frozen=True, slots=True)
class Claim:
    """A target of a pool under a budget, as it was decided on last."""

    pool: str
    """Name for sentences: the pool's, with the target's where the pool has several; unique in the budget."""
    gpus: int
    """GPUs of a replica; 0 where its replicas use none of this budget."""
    ordered: int
    """Replicas that its target asks for now."""
    held: int
    """GPUs that its pods hold: ordered, loading and draining."""
    wanted: int
    """Replicas that its decision asks for, with every other limit applied."""
    misses: tuple[float, ...] | None
    """Expected misses with 0, 1, ... replicas, `wanted` and beyond, to where one more avoids none. In multiples of what
    the SLO allows, each miss in the GPU time that it costs over that of a replica. None where the need is unknown: then
    it keeps what it has."""
    least: int = 0
    """Min of the pool in force."""
    floor: int = 0
    """GPUs that are its own before anybody's min and need."""
    priority: int = 0
    fixed: bool = False
    """Nobody sets its replicas (Paused, Recommend, another owner), or its GPUs are unknown: it keeps what it holds, and
    orders nothing. It keeps its floor and what it had firm; the rest is out of what others do not hold: it takes
    nothing from them."""
    placed: int | None = None
    """Requested replicas that have a node; None where all have. The others hold no GPU, and may never get one."""
    max_change: float = float("inf")
    """Replicas that the pool may lose in one step."""
    optional: int = 0
    """Replicas of `wanted` that only replace others or are tried: a pool that does not get them lacks nothing."""
    had: int = 0
    """Replicas of a batch that others may have on loan. It gets back those that it needs from whom it would have kept
    them: the hysteresis of the holder is made up for, and what was firm stays it."""
    lent: bool = False
    """Its one min can wait: it goes to where it is worth more, but to nobody's min, for that would be firm there."""
    pair: str = ""
    """Its pool, where that has prefill and decode and all their targets lie in the budget: neither role gets a replica
    without one of the other. Empty for others."""
    role: str = ""
    """Role of the target, where it belongs to a pair."""

    @property
    def standing(self) -> int:
        """Replicas that have a node."""
        return self.ordered if self.placed is None else min(self.ordered, self.placed)

    @property
    def own(self) -> int:
        """GPUs of its floor that it uses, where nobody sets its replicas."""
        return min(self.standing * self.gpus, self.floor)


@dataclass(frozen=True, slots=True)
class Grant:
    """Replicas that a pool may have now."""

    most: int
    """Replicas that it may order: never more GPUs than are free now."""
    share: int
    """Replicas that are the pool's due, once every pool has given up what is not its due."""
    detail: str = ""
    """Why it gets no more, as the end of a sentence; empty where it gets all that it wants."""
    firm: int = 0
    """GPUs of the share that are the floor, or the min beside all floors: no other pool can take them, and pods without
    a node keep nobody from them."""


STEP = 10.0
"""Ratio of the weight of a miss to that of a miss of the priority below. Values of replicas differ by a factor of about
a hundred between the first and the last that a pool wants, and pools differ too: two steps nearly decide, three do."""
HYSTERESIS = DEFAULT.hysteresis
"""Ratio: a replica that is ordered goes to another pool only if it is worth so many times as much there. It then comes
back only after worth has changed by its square. One for the whole budget, whatever `params` its pools have."""
NOBODY: Mapping[str, int] = MappingProxyType({})


@dataclass(slots=True)
class _Deal:
    """Shares on their way."""

    left: int
    """GPUs that nobody has been given."""
    shares: dict[str, int]
    kept: dict[str, int]
    """Firm GPUs of each fixed claim."""
    picks: list[Claim] = field(default_factory=list)
    """An entry for each replica, in the order of worth."""
    firm: list[bool] = field(default_factory=list)
    """Whether each of the first picks, floors and mins, fits beside all floors."""

    def settle(self, gpus: int, claims: Sequence[Claim]) -> None:
        """Note of each replica given so far, all of floors and mins, whether it fits beside all floors."""
        room, given = gpus - sum(claim.floor for claim in claims), Counter[str]()
        room -= sum(max(0, self.kept[claim.pool] - claim.floor) for claim in claims if claim.fixed)
        for claim in self.picks:
            given[claim.pool] += 1
            within = given[claim.pool] * claim.gpus <= claim.floor
            fits = within or claim.gpus <= room
            room -= 0 if within or not fits else claim.gpus
            self.firm.append(fits)

    def due(self, claim: Claim) -> int:
        """GPUs that a claim has been given."""
        return self.kept[claim.pool] if claim.fixed else self.shares[claim.pool] * claim.gpus

    def keep(self, claim: Claim, gpus: int) -> None:
        """Let a fixed claim keep so many GPUs, as far as they go."""
        more = min(max(0, gpus - self.kept[claim.pool]), max(0, self.left))
        self.kept[claim.pool] += more
        self.left -= more

    def give(self, claim: Claim, to: int) -> None:
        """Raise a share to so many replicas, as far as the GPUs go."""
        while self.shares[claim.pool] < to and self.take(claim):
            pass

    def take(self, claim: Claim) -> bool:
        """Give a replica more. False where the GPUs that are left do not make a replica."""
        if claim.gpus > self.left:
            return False
        self.left -= claim.gpus
        self.shares[claim.pool] += 1
        self.picks.append(claim)
        return True

    def lend(self, claim: Claim) -> None:
        """Leave a min that was given to where it is worth more. For its claim it stays firm."""
        at = self.picks.index(claim)
        del self.picks[at]
        self.kept[claim.pool] = claim.gpus * self.firm.pop(at)
        self.left, self.shares[claim.pool] = self.left + claim.gpus, 0

    def begin(self, pair: Sequence[Claim], able: Sequence[Claim], own: int) -> bool:
        """The first replicas of both roles of a pair at once, of claims that are `able`. False where they do not fit.

        `own`: GPUs that are set aside for the pair.
        """
        if any(self.shares[claim.pool] for claim in pair):
            return True
        roles = [[claim for claim in able if claim.role == role] for role in sorted({claim.role for claim in pair})]
        for firsts in product(*roles):
            taken = sum(claim.gpus for claim in firsts)
            if max(0, taken - own) <= self.left:
                self.left += min(own, taken)
                return all(map(self.take, firsts))
        return False


def share(
    gpus: int, claims: Iterable[Claim], *, lending: bool, leaving: int = 0, before: Mapping[str, int] = NOBODY
) -> dict[str, Grant]:
    """Replicas that each pool may request now, by the claim's name.

    `gpus` is the budget. `lending`: a floor that its pool does not want is lent to others until it does.
    `leaving`: GPUs of pods that end and belong to no pool any more; they are due to pools, and not free.
    `before`: GPUs of each pool that were firm until now: no other pool's min, priority or need takes them. In GPUs, for
    a pool may ask for more of them for each replica than it did.
    """
    ranked = sorted(claims, key=lambda claim: (-claim.priority, claim.pool))
    sharing = [claim for claim in ranked if not claim.fixed and claim.gpus > 0]
    fixed = [claim for claim in ranked if claim.fixed]
    firm = {claim.pool: min(before.get(claim.pool, 0), claim.held) for claim in fixed}
    owned = {claim.pool: max(claim.own, min(firm[claim.pool], claim.floor)) for claim in fixed}
    deal = _Deal(max(0, gpus - sum(owned.values())), {claim.pool: 0 for claim in sharing}, owned)
    pairs = _pairs(sharing)
    _give_floors(deal, sharing, pairs)
    own = Counter[str]() if lending else _set_aside(deal, ranked)
    stood = {claim.pool: claim.ordered or min(1, claim.had) for claim in sharing}
    firm |= {one.pool: min(one.least, stood[one.pool], before.get(one.pool, 0) // one.gpus) for one in sharing}
    stands = {claim.pool: min(claim.least, claim.standing) for claim in sharing}
    nodes = stands | {claim.pool: claim.standing * claim.gpus for claim in fixed}
    # Where less fits than was firm, for the budget was lowered, those that have a node come first.
    for most in ({pool: min(each, nodes[pool]) for pool, each in firm.items()}, firm, stands):
        _give_mins(deal, [claim for claim in ranked if most.get(claim.pool, 0) > 0], pairs, own, most)
    _keep_the_rest(deal, gpus, sharing, fixed)
    begun = _give_mins(deal, sharing, pairs, own, {claim.pool: claim.least for claim in sharing})
    deal.settle(gpus, ranked)
    for claim in (one for one in sharing if one.lent and one.floor < one.gpus and deal.shares[one.pool] == 1):
        deal.lend(claim)
    unknown = [claim for claim in begun if claim.misses is None]
    for claim in unknown:
        deal.give(claim, min(claim.wanted, claim.standing))
    _by_worth(deal, [claim for claim in begun if claim.misses is not None])
    for claim in unknown:
        deal.give(claim, min(claim.wanted, claim.ordered))
    held = leaving + sum(claim.held for claim in ranked)
    granted = _granted(gpus - held, idle_in(ranked, deal.shares), deal)
    firm = Counter(deal.kept)
    for claim, fits in zip(deal.picks, deal.firm, strict=False):
        firm[claim.pool] += claim.gpus * fits
    return {
        claim.pool: replace(_grant(claim, (held, gpus), ranked, deal, granted), firm=firm[claim.pool])
        for claim in ranked
    }


def _give_floors(deal: _Deal, sharing: Sequence[Claim], pairs: Mapping[str, Sequence[Claim]]) -> None:
    """Floors, as far as their pools want them."""
    for claim in sharing:
        pair = pairs.get(claim.pair, ())
        able = [each for each in pair if min(each.wanted, each.floor // each.gpus) > 0]
        if not pair or (claim in able and deal.begin(pair, able, 0)):
            deal.give(claim, min(claim.wanted, claim.floor // claim.gpus))


def _set_aside(deal: _Deal, claims: Sequence[Claim]) -> Counter[str]:
    """Keep what is left of floors for their pools. How much that is, by pair."""
    own: Counter[str] = Counter()
    for claim in claims:
        if claim.fixed or claim.gpus > 0:
            own[claim.pair] += max(0, claim.floor - deal.due(claim))
    deal.left -= own.total()
    return own


def _give_mins(
    deal: _Deal,
    sharing: Sequence[Claim],
    pairs: Mapping[str, Sequence[Claim]],
    own: Mapping[str, int],
    most: Mapping[str, int],
) -> list[Claim]:
    """Mins, as far as `most`: replicas, of a fixed claim GPUs.

    Those that may have replicas: all, but for a pair whose first ones do not fit.
    """
    begun = []
    for claim in sharing:
        if claim.fixed:
            deal.keep(claim, most[claim.pool])
            continue
        pair = pairs.get(claim.pair, ())
        able = [each for each in pair if each.wanted > 0]
        if not pair or deal.begin(pair, able, own.get(claim.pair, 0)):
            begun.append(claim)
            deal.give(claim, min(claim.wanted, most[claim.pool]))
    return begun


def _keep_the_rest(deal: _Deal, gpus: int, sharing: Sequence[Claim], fixed: Sequence[Claim]) -> None:
    """Keep what fixed claims hold beyond their firm GPUs. As far as it is no floor of others, their mins become firm.

    Only out of what the others do not have ordered: else one pool without a scaler could take all of a budget. And of
    what they have ordered, not of what they hold: the surge of a rollout would take a replica of another pool away.
    """
    taken = deal.kept | {claim.pool: claim.ordered * claim.gpus for claim in sharing}
    free = gpus - sum(taken.values())
    unclaimed = gpus - sum(max(taken.get(claim.pool, 0), claim.floor) for claim in (*sharing, *fixed))
    for claim in fixed:
        before = deal.kept[claim.pool]
        deal.keep(claim, min(min(claim.least, claim.standing) * claim.gpus, before + max(0, unclaimed)))
        free -= deal.kept[claim.pool] - before
        unclaimed -= deal.kept[claim.pool] - before
    deal.left -= max(0, min(free, sum(max(0, claim.standing * claim.gpus - deal.kept[claim.pool]) for claim in fixed)))


def idle_in(claims: Sequence[Claim], shares: Mapping[str, int]) -> int:
    """GPUs that count as held for pods which have no node, and are not their pool's share."""
    found = 0
    for claim in claims:
        due = 0 if claim.fixed else shares.get(claim.pool, 0)
        without_node = (claim.ordered - max(claim.standing, due)) * claim.gpus
        found += max(0, min(without_node, claim.held - claim.standing * claim.gpus))
    return found


def _pairs(sharing: Iterable[Claim]) -> Mapping[str, Sequence[Claim]]:
    """The claims of each pair, in the order in which they get the first replica of their role where it fits."""
    found: defaultdict[str, list[Claim]] = defaultdict(list)
    for claim in sharing:
        if claim.pair:
            found[claim.pair].append(claim)
    for claims in found.values():
        claims.sort(key=lambda claim: (claim.least == 0, claim.ordered == 0))
    return found


def spare(gpus: int, claims: Iterable[Claim], grants: Mapping[str, Grant], *, lending: bool, leaving: int = 0) -> int:
    """GPUs of a budget that nobody holds, is due, or has a claim to that is not lent: free for whoever wants more."""
    taken = sum(max(one.held, grants[one.pool].share * one.gpus, 0 if lending else one.floor) for one in claims)
    return max(0, gpus - taken - leaving)


def _by_worth(deal: _Deal, claims: Iterable[Claim]) -> None:
    """Give replicas in turn to where they are worth most; among equals to the holder, then by priority and name."""
    queue = []
    for claim in claims:
        replicas = _worths(claim, deal.shares[claim.pool])
        first = next(replicas, None)
        if first is not None:
            queue.append((first, claim.pool, claim, replicas))
    heapq.heapify(queue)
    while queue:
        _, name, claim, replicas = queue[0]
        following = next(replicas, None) if deal.take(claim) else None
        if following is None:
            heapq.heappop(queue)
        else:
            heapq.heapreplace(queue, (following, name, claim, replicas))


def _worths(claim: Claim, start: int) -> Iterator[tuple[float, bool, int]]:
    """Rank of each replica beyond `start`: the lowest first.

    A replica of g GPUs avoids work of g GPUs for each miss of one replica's work: misses for each GPU need no g.
    """
    for number, avoided in zip(range(start + 1, claim.wanted + 1), worth(claim.misses or (), start), strict=False):
        new = number > claim.ordered
        kept = HYSTERESIS**2 if number <= claim.had else 1.0 if new else HYSTERESIS
        yield -avoided * STEP**claim.priority * kept, new, -claim.priority


def _granted(free: int, idle: int, deal: _Deal) -> dict[str, int]:
    """Replicas beyond the requested ones, for which GPUs are free now; for floors and mins also `idle` GPUs.

    In the order of worth. A replica that has to wait keeps free GPUs from those after it, else a pool with large
    replicas would wait for ever.
    """
    seen = dict.fromkeys(deal.shares, 0)
    granted = dict.fromkeys(deal.shares, 0)
    for at, claim in enumerate(deal.picks):
        seen[claim.pool] += 1
        if seen[claim.pool] > claim.ordered:
            granted[claim.pool] += claim.gpus <= free + (idle if at < len(deal.firm) and deal.firm[at] else 0)
            free -= claim.gpus
    return granted


def _grant(
    claim: Claim, use: tuple[int, int], claims: Sequence[Claim], deal: _Deal, granted: Mapping[str, int]
) -> Grant:
    """`use`: GPUs that are held, and the budget."""
    if claim.fixed or claim.gpus == 0:
        whole = claim.ordered if claim.fixed else claim.wanted
        return Grant(whole, whole)
    due = deal.shares[claim.pool]
    most = due if due < claim.ordered else claim.ordered + granted[claim.pool]
    if claim.ordered > most:
        # Where the need is unknown, nothing tells whether one replica less is one too many.
        step = claim.max_change if claim.misses is not None else min(1.0, claim.max_change)
        most = max(most, int(max(0.0, claim.ordered - step)))
    if most >= claim.wanted:
        return Grant(most, due)
    return _limited(claim, Grant(most, due), use, claims, deal)


def _limited(claim: Claim, grant: Grant, use: tuple[int, int], claims: Sequence[Claim], deal: _Deal) -> Grant:
    """The grant, with the pools whose GPUs it waits for or that have the GPUs that it does not get."""
    held, gpus = use
    others = [each for each in claims if each.pool != claim.pool and each.held > 0]
    pair = [each for each in claims if each.pair == claim.pair] if claim.pair else []
    if pair and not any(deal.shares[each.pool] for each in pair):
        both = sum(min(each.gpus for each in pair if each.role == role) for role in {each.role for each in pair})
        said = f"one replica each of prefill and decode takes {both} GPUs, and of {gpus} fewer are left for this pool"
        return replace(grant, detail=said)
    surplus = {each.pool: each.held - deal.due(each) for each in others if each.gpus > 0 or each.fixed}
    if grant.most >= grant.share and not any(each.fixed and surplus[each.pool] > 0 for each in others):
        named = listed([each.pool for each in sorted(others, key=lambda each: (-each.held, each.pool))])
        whose = f"and of more use to {named}" if named else "all by this pool"
        return replace(grant, detail=f"{held} of {gpus} GPUs are in use, {whose}")
    owing = sorted((pool for pool in surplus if surplus[pool] > 0), key=lambda pool: (-surplus[pool], pool))
    what = f"GPUs of {listed(owing)}" if owing else "terminating pods"
    return replace(grant, detail=f"{held} of {gpus} GPUs are in use; waits for {what}")
