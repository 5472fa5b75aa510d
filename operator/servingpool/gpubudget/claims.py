"""Claims of a pool on a budget: one for each target that lies in the budget.

A claim says which misses its own replicas avoid, and what the pool's parts avoid together is counted once. So the
replicas of all parts are put in one line: those that stand, the most capacity per GPU first, then those to be ordered.
Each avoids what lies between the capacity before it and with it. So no part is given up for another part of its pool
that is not there yet. Targets outside the budget come before all others: what they serve needs no GPU of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from servingpool.decision.decision import share_of
from servingpool.gpubudget.sharing import Claim, hull


@dataclass(frozen=True, slots=True)
class TargetNeed:
    """A target of a pool, as it was decided on last."""

    wanted: int
    """Replicas that the decision asks for."""
    weight: float = 1.0
    """Capacity of a replica, in replicas of the reference target."""
    base: int = 0
    """Replicas that always stay."""
    delivered: int | None = None
    """Replicas that are Ready or load, where the target does not deliver the requested ones; None where it does."""

    @property
    def useful(self) -> int:
        """Replicas that serve or will: all but the probes of a target that does not deliver."""
        return self.wanted if self.delivered is None else min(self.wanted, self.delivered)


@dataclass(frozen=True, slots=True)
class PoolNeed:
    """A pool, or one of its stages, as it was decided on last."""

    targets: Mapping[str, TargetNeed]
    """All targets by name, also targets outside the budget."""
    misses: tuple[float, ...] | None
    """As `Claim.misses`, with a capacity of 0, 1, ... replicas of the reference target; None where unknown."""
    capacity: float
    """Needed capacity. Replicas beyond it replace others or are tried: they avoid no miss yet, and push nobody
    aside."""
    least: int
    """Replicas of all targets, its min in force."""
    gpus: int
    """GPUs of a replica of the reference target; 0 where unknown."""
    had: int = 0
    """Replicas of a batch that others may have on loan."""
    lent: bool = False
    """As `Claim.lent`."""


@dataclass(frozen=True, slots=True)
class _Run:
    """Replicas of one target that are next to each other in the line."""

    target: str
    count: int
    weight: float


def claims_of(need: PoolNeed, floor: int, claims: Mapping[str, Claim]) -> dict[str, Claim]:
    """The claims with wants, misses, mins and floors.

    `floor`: GPUs that are the pool's own. `claims`: by target, of those that lie in the budget, as they stand.
    """
    line, probes = _line(need, claims)
    least = _least(need, line)
    floors = _floors(floor, [*line, *probes], claims)
    needed = _needed(need, line, claims)
    misses: Mapping[str, tuple[float, ...] | None] = dict.fromkeys(claims, need.misses)
    if need.misses is not None and len(need.targets) > 1:  # alone, it shows all of its own curve
        misses = _avoided(need.misses, needed, need, claims)
    return {
        name: replace(
            claim,
            wanted=(wanted := need.targets[name].wanted),
            misses=misses[name],
            least=least[name],
            floor=floors[name],
            had=need.had if len(need.targets) == 1 else 0,
            lent=need.lent,
            optional=wanted - max(least[name] - need.lent, sum(1 for each, _ in needed if each == name)),
        )
        for name, claim in claims.items()
    }


def standing(floor: int, claims: Mapping[str, Claim]) -> dict[str, Claim]:
    """Claims of a pool that keeps its replicas, with its floor."""
    need = PoolNeed({name: TargetNeed(claim.ordered) for name, claim in claims.items()}, None, 0.0, 0, 0)
    return claims_of(need, floor, claims)


def _line(need: PoolNeed, claims: Mapping[str, Claim]) -> tuple[list[_Run], list[_Run]]:
    """The useful replicas of all claims, in line; and apart the replicas that only try whether there is a node."""
    found = [(name, need.targets[name], claim) for name, claim in claims.items()]
    found.sort(key=lambda each: -each[1].weight / max(1, each[2].gpus))
    stand = {name: min(one.useful, claim.ordered) for name, one, claim in found}
    runs = [_Run(name, stand[name], one.weight) for name, one, _ in found]
    runs += [_Run(name, one.useful - stand[name], one.weight) for name, one, _ in found]
    return runs, [_Run(name, one.wanted - one.useful, 0.0) for name, one, _ in found]


def _least(need: PoolNeed, line: Sequence[_Run]) -> dict[str, int]:
    """Mins: each target's base, and the pool's min where targets outside the budget do not meet it."""
    inside = {run.target for run in line}
    found = {name: min(need.targets[name].base, need.targets[name].useful) for name in inside}
    rest = need.least - sum(found.values())
    rest -= sum(one.useful for name, one in need.targets.items() if name not in inside)
    for run in line:
        more = max(0, min(rest, run.count, need.targets[run.target].useful - found[run.target]))
        found[run.target] += more
        rest -= more
    return found


def _floors(floor: int, line: Sequence[_Run], claims: Mapping[str, Claim]) -> dict[str, int]:
    """The pool's floor in GPUs, replica by replica along the line; what is left goes to the last claim."""
    found, rest = dict.fromkeys(claims, 0), floor
    for run in line:
        each = claims[run.target].gpus
        count = min(run.count, rest // each) if each > 0 else 0
        found[run.target] += count * each
        rest -= count * each
    last = next((run.target for run in reversed(line) if claims[run.target].gpus > 0), line[-1].target)
    return found | {last: found[last] + rest}


def _needed(need: PoolNeed, line: Sequence[_Run], claims: Mapping[str, Claim]) -> list[tuple[str, float]]:
    """The replicas of the line that are needed for the capacity: of each its target, and the capacity before it."""
    at = sum(one.useful * one.weight for name, one in need.targets.items() if name not in claims)
    enough = need.capacity * share_of(len(need.targets))
    found: list[tuple[str, float]] = []
    for run in line:
        for _ in range(run.count):
            if at >= enough:
                return found
            found.append((run.target, at))
            at += run.weight
    return found


def _avoided(
    misses: Sequence[float], needed: Sequence[tuple[str, float]], need: PoolNeed, claims: Mapping[str, Claim]
) -> dict[str, tuple[float, ...]]:
    """Misses of each claim with 0, 1, ... wanted replicas, in the GPU time of its own GPUs, as `Claim.misses`."""
    # Along the hull: replicas that avoid misses only together share what they avoid.
    capacities = hull(misses)
    left = [misses[at] for at in capacities]
    found: dict[str, list[float]] = {name: [] for name in claims}
    before = np.interp([at for _, at in needed], capacities, left)
    after = np.interp([at + need.targets[name].weight for name, at in needed], capacities, left)
    for (name, _), each in zip(needed, (before - after).tolist(), strict=True):
        gpus = claims[name].gpus
        found[name].append(each * need.gpus / gpus if need.gpus > 0 and gpus > 0 else each)
    return {name: _misses(each, need.targets[name].wanted) for name, each in found.items()}


def _misses(avoided: Sequence[float], wanted: int) -> tuple[float, ...]:
    """Misses with 0, 1, ... `wanted` replicas, from what each avoids."""
    return tuple(_sums([*avoided, *[0.0] * (wanted - len(avoided))]))[::-1]


def _sums(avoided: Sequence[float]) -> Iterator[float]:
    total = 0.0
    yield total
    for each in reversed(avoided):
        total += each
        yield total
