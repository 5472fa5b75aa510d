"""The decision: replicas of each target, and every figure that a person needs to recompute it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from servingpool.catalogue.limits import LimitName
from servingpool.catalogue.template import render
from servingpool.decision.figures import Figures
from servingpool.decision.observation import EPSILON, Reading, Replica
from servingpool.decision.observe.samples import Standing
from servingpool.decision.plan import Candidate, Course, Wanted
from servingpool.decision.pool import Bounds
from servingpool.decision.words import shown

ENOUGH = 0.999
"""Share of a capacity that serves for it: speeds drift, and a replica is not replaced for a thousandth."""


def share_of(targets: int) -> float:
    """Share of a capacity that suffices for it with so many targets: of one target each replica counts."""
    return ENOUGH if targets > 1 else 1.0 - EPSILON


class Part(NamedTuple):
    """A target with its replicas as they stand, and the decision on it."""

    target: str
    """Name of the target."""
    requested: int
    """`spec.replicas` of the target."""
    replicas: int
    """Desired `spec.replicas` of the target."""
    ready: int
    weight: float
    """Capacity of one replica, in replicas of the reference target."""
    cold_start: float
    """Seconds from request to Ready: the target's own starts where there were some, else the pool's."""
    stuck: str | None = None
    """Why the target does not deliver its requested replicas, as a sentence; None where it delivers."""
    delivered: int = 0
    """Replicas that are Ready or load on a node."""
    measured: bool = True
    """Whether the weight is measured; else it is a guess by price, until both targets have served."""
    absent: bool = False
    """Whether replicas that the target does not deliver count for nothing, for it is not the only target."""
    base: int = 0
    """Replicas that always stay."""
    most: int = 2**31 - 1
    """Most replicas that the target may have."""
    price: float = 1.0
    """Price of a replica."""
    lowest: tuple[Replica, ...] = ()
    """Replicas of the target, the lowest ordinal first, where the highest go first."""

    @property
    def useful(self) -> int:
        """Replicas that serve or will serve: without an absent target's replicas that never come."""
        return min(self.replicas, self.delivered) if self.absent else self.replicas

    @property
    def credited(self) -> int:
        """Replicas that count as requested: those that will come."""
        return self._replace(replicas=self.requested).useful


class Verdict(StrEnum):
    """Effect of the decision on the fleet."""

    SCALE_UP = "ScaleUp"
    SCALE_DOWN = "ScaleDown"
    HOLD = "Hold"


@dataclass(frozen=True, slots=True)
class Limit:
    """A step between the raw need and the answer, in the order applied."""

    name: LimitName
    before: float
    """Replicas before the limit, of the reference target where the pool has several; `after` likewise."""
    after: float
    reason: str
    """A sentence with figures and units."""


@dataclass(frozen=True, slots=True)
class Limited:
    """A number of replicas on its way, with the limits that changed it."""

    replicas: float
    """Replicas so far; a whole number where the pool has one target."""
    applied: tuple[Limit, ...] = ()

    def at_least(self, least: float, name: LimitName, /, **given: object) -> Limited:
        """Raise to `least` where it is below. `given` fills in the limit's sentence."""
        return self if self.replicas >= least else self._moved(least, name, given)

    def at_most(self, most: float, name: LimitName, /, **given: object) -> Limited:
        """Cut to `most` where it is above. `given` fills in the limit's sentence."""
        return self if self.replicas <= most else self._moved(most, name, given)

    def _moved(self, to: float, name: LimitName, given: Mapping[str, object]) -> Limited:
        limit = Limit(name=name, before=self.replicas, after=to, reason=render(name.template, given))
        return replace(self, replicas=to, applied=(*self.applied, limit))


class BudgetCut(NamedTuple):
    """A cut of a target's replicas by a GPU budget."""

    target: str
    """Name of the target."""
    most: int
    """Replicas that the target may request."""
    budget: str
    """Name of the budget."""
    detail: str
    """Reason why the budget grants no more."""
    left: float
    """Capacity of all targets after this cut, in replicas of the reference."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision on one pool at one time."""

    at: float
    """Unix time in seconds."""
    replicas: int
    """Desired `spec.replicas` of all targets."""
    verdict: Verdict
    need: Reading
    """Raw need in replicas, before any limit."""
    capacity: Reading
    """Needed capacity with every limit applied, in replicas of the reference; Unknown where the need is."""
    limits: tuple[Limit, ...]
    """Every limit that changed the answer, in order."""
    reason: str
    """Why this many replicas, with units, in a sentence that a person at 3 a.m. can act on."""
    figures: Figures
    bounds: Bounds
    """Min and max in force."""
    candidates: tuple[Candidate, ...] = ()
    """Fleet sizes around `figures.for_forecast`, which has the least sum of replicas and misses at their penalty."""
    course: Course | None = field(default=None, compare=False, repr=False)
    """Misses at each fleet size; None where the need is unknown."""
    calibrating: bool = False
    """Still learning: nothing is scaled down but to max."""
    warning: str | None = None
    """Fault that is not fatal, such as an SLO that no fleet size can hold, as a sentence; None without one."""
    parts: tuple[Part, ...] = ()
    """The decision on each target, in the order of the spec; `replicas` is their sum."""
    standing: tuple[Standing, ...] = ()
    """Ready replicas whose gauges are not believed, because nothing in them moves."""
    wanted: Wanted | None = None
    """What was wanted for another reason than latency; None where nothing was."""

    def within_budgets(
        self, parts: tuple[Part, ...], verdict: Verdict, moved: str, needed: float, cuts: Sequence[BudgetCut]
    ) -> Decision:
        """The decision with these parts, each within its budget of GPUs: the last limit, also below min.

        It is limited where less capacity is left than is `needed`. A cheaper mix that a budget prevents is only in the
        sentence, of which `moved` is the beginning.
        """
        limited = Limited(needed, self.limits)
        told = [f"{moved}: {self.reason.partition(': ')[2]}"]
        if self.wanted is not None and self.wanted.may_wait > 0.0:
            told[0] += f"; {shown(self.wanted.may_wait)} can wait without losing a deadline"
        for cut in cuts:
            most, detail = f"{cut.most} {cut.target}" if len(parts) > 1 else cut.most, cut.detail
            given = {"budget": cut.budget, "most": most, "detail": detail}
            told.append(render(LimitName.GPU_BUDGET.template, given))
            if cut.left < limited.replicas * share_of(len(parts)):
                limited = limited.at_most(cut.left, LimitName.GPU_BUDGET, budget=cut.budget, most=most, detail=detail)
        return replace(
            self,
            replicas=sum(part.replicas for part in parts),
            parts=parts,
            verdict=verdict,
            capacity=limited.replicas,
            limits=limited.applied,
            reason="; ".join(told),
        )


def verdict_of(replicas: int, requested: int) -> Verdict:
    """Effect of setting so many replicas on a fleet of `requested`."""
    if replicas == requested:
        return Verdict.HOLD
    return Verdict.SCALE_UP if replicas > requested else Verdict.SCALE_DOWN


def move(requested: int, replicas: int) -> str:
    """Effect of setting so many replicas, as the beginning of a sentence."""
    if replicas == requested:
        return f"hold {replicas}"
    return f"scale {'up' if replicas > requested else 'down'} {requested} -> {replicas}"


def moves(parts: Sequence[Part], reference: str) -> str:
    """Effect of the parts, as the beginning of a sentence."""
    if len(parts) == 1:
        return move(parts[0].requested, parts[0].replicas)
    changed = [f"{one.target} {one.requested} -> {one.replicas}" for one in parts if one.replicas != one.requested]
    said = f"hold {', '.join(f'{one.replicas} {one.target}' for one in parts)}"
    if changed:
        said = f"scale {'up' if verdict_of_parts(parts) is Verdict.SCALE_UP else 'down'} {', '.join(changed)}"
    return f"{said} (counted in replicas of {reference})"


def verdict_of_parts(parts: Sequence[Part]) -> Verdict:
    """Effect of the parts on the fleet: a replacement begins as a scale-up and ends as a scale-down."""
    if any(part.replicas > part.requested for part in parts):
        return Verdict.SCALE_UP
    return Verdict.SCALE_DOWN if any(part.replicas < part.requested for part in parts) else Verdict.HOLD
