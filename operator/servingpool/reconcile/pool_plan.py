"""The second stage of a tick: from what was collected to what is to be done about one pool.

The only module that calls the decision core in a tick, and that reads its memory for the status.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar

from servingpool.adapters.cluster.objects import Workload
from servingpool.api.conditions import Reason
from servingpool.api.role import Role
from servingpool.api.schedule import occurrences
from servingpool.api.serving_pool import Metadata, ServingPool
from servingpool.decision.bounds import Window
from servingpool.decision.decide import Outcome, SideOutcome, decide
from servingpool.decision.decision import Decision
from servingpool.decision.latency_count import LatencyCount
from servingpool.decision.limits import unschedulable
from servingpool.decision.params import Params
from servingpool.decision.pool import Pool
from servingpool.decision.samples import Buckets
from servingpool.decision.slo import Slo
from servingpool.decision.state import Memory
from servingpool.decision.targets import Target
from servingpool.decision.window import KEPT_SECONDS
from servingpool.reconcile.collect import Collected
from servingpool.reconcile.config import Price
from servingpool.reconcile.expense import Expense, expense_of
from servingpool.reconcile.gateways import bound_of
from servingpool.reconcile.preconditions import ScalePermission, check, in_mode
from servingpool.reconcile.targets import SeenTarget

LEAST_PRICE = 0.001
"""Dollars of a replica for an hour, at least: if it cost nothing, any number of them would be the cheapest mix."""
NO_LIMITS: Mapping[str, int] = MappingProxyType({})
"""Of a pool whose targets no GPU budget bounds."""
AHEAD = 7200.0
"""Seconds for which windows are resolved, over the longest horizon: a cold start of an hour and a scrape interval."""


@dataclass(frozen=True, slots=True)
class Learned:
    """What the status tells of the core's memory."""

    missing: str | None
    """A series that some sample lacks."""
    coverage: float
    """Share of ready replicas that could be read."""
    queue_unknown: str | None
    """Why the queue is not known."""
    damaged: str | None
    """Figures of the last scrape that no replica can make."""
    client_unknown: str | None
    """Why the client's time to first token is not known, where the SLO is judged by it."""
    first_tokens: LatencyCount
    """Requests of the last 20 minutes, by their time to first token."""
    finished: LatencyCount
    """The same by their time per output token."""
    buckets: Buckets
    """The buckets that the SLO's bounds lie in."""
    cold_start: float | None
    """Seconds from order to Ready, as measured; None if no start was seen."""
    ttft_inferred: bool = False
    """The engines tell no time to first token."""
    caches_lost: float | None = None
    """By which share work per request rises after each change of replicas; None where it is not known to."""
    vanished: float | None = None
    """Unix time in seconds from which on the gateway's series were gone at 0 replicas."""
    reference: str = ""
    """The target in whose replicas the decision is counted; empty where the pool has one."""


@dataclass(frozen=True, slots=True)
class ScaleAction:
    """Set a target's replicas."""

    target: Workload
    """As it was decided on."""
    replicas: int

    @property
    def added(self) -> int:
        """Replicas that are added; below 0 if some are removed."""
        return self.replicas - self.target.replicas

    @property
    def grows(self) -> bool:
        """Whether replicas are added."""
        return self.added > 0


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """What is to be done about one pool, and why."""

    seen: Collected
    permission: ScalePermission
    decision: Decision
    memory: Memory
    """What the core knows now; where there are sides, only theirs counts."""
    learned: Learned
    expense: Expense
    actions: tuple[ScaleAction, ...]
    """One for each target that changes, increases first; none where the pool may not be scaled."""
    sides: tuple[PoolPlan, ...] = ()
    """Of prefill and of decode, where targets have roles: each with all that it rests on. This is both together."""
    beside: Callable[[int], Decision] | None = None
    """Of prefill or decode: the decision beside so many replicas of the other. Budgets may leave it fewer."""

    @property
    def each(self) -> tuple[PoolPlan, ...]:
        """The plans that decide: of both sides, or this one."""
        return self.sides or (self,)

    @property
    def standing(self) -> tuple[str, ...]:
        """Replicas whose gauges are not believed, by name."""
        return tuple(one.replica for side in self.each for one in side.decision.standing)

    @property
    def meta(self) -> Metadata:
        """The pool's."""
        return self.seen.pool.metadata

    @property
    def at(self) -> float:
        """Unix time in seconds."""
        return self.seen.at

    @property
    def grows(self) -> bool:
        """Whether replicas of some target are added."""
        return any(action.grows for action in self.actions)

    @property
    def switches_off(self) -> bool:
        """Whether it leaves 0 replicas to a pool with a min, as a GPU budget may.

        A person who does so switches scaling off.
        """
        left = self.seen.observation.requested + sum(action.added for action in self.actions)
        return bool(self.actions) and left == 0 and not self.seen.pool.spec.goes_to_zero


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing can be decided for a pool. Its workload stays as it is."""

    meta: Metadata
    at: float
    """Unix time in seconds."""
    reason: Reason
    """Of the Ready condition."""
    message: str
    grows: ClassVar[bool] = False
    """As of a `PoolPlan`: no replicas are added."""


Planned = PoolPlan | Refusal


def plan(
    seen: Collected,
    drift: str | None,
    memory: Memory,
    prices: Mapping[str, Price],
    *,
    backfilled: bool,
    room: Mapping[str, int] = NO_LIMITS,
) -> PoolPlan:
    """Decide for one pool. What a pool that is not backfilled shows is not learned: its history would be older.

    `drift` tells who else sets the targets' replicas; None where nobody does. `room`: replicas to which targets may
    grow now, by name, where a GPU budget bounds them and others may be ordered instead.
    """
    core = asked_of(seen, room)
    permission = in_mode(seen.pool.spec.mode, check(seen, unschedulable(seen.observation, core, memory), drift))
    outcome = decide(seen.observation, in_charge(core, seen, permission), memory, seen.at)
    kept = outcome.memory if backfilled else memory
    return decided(seen, permission, outcome, kept, prices)


def asked_of(seen: Collected, room: Mapping[str, int] = NO_LIMITS) -> Pool:
    """The spec in the core's own units. Whether it is carried out is not known yet. `room` as for `plan`."""
    limit, targets = min(one.workload.batch_limit for one in seen.targets), core_targets(seen.targets, room)
    during, metered = (seen.at, seen.at + AHEAD), seen.observation.metered
    return _in_turn(core_pool(seen.pool, limit, targets, in_charge=False, during=during, metered=metered), seen)


def _in_turn(core: Pool, seen: Collected) -> Pool:
    """The same with the cold starts that an order takes, and the min of a window, where replicas start in turn."""
    turns = [one for one in seen.targets if one.workload.in_turn]
    if not turns:
        return core
    ready = Counter(one.target for one in seen.observation.ready)
    starts = max(1, *(one.workload.replicas - ready[one.name] for one in turns))
    most = [(one.min_replicas or 0) - ready.total() for one in core.windows]
    windows = zip(core.windows, most, strict=True)
    return replace(
        core, starts=starts, windows=tuple(replace(one, ahead=max(1.0, more / starts)) for one, more in windows)
    )


def in_charge(core: Pool, seen: Collected, permission: ScalePermission) -> Pool:
    """The same, once that is known."""
    return replace(core, in_charge=permission.act, gateway="" if seen.gateway is None else seen.gateway[0].text)


def decided(
    seen: Collected,
    permission: ScalePermission,
    outcome: Outcome | SideOutcome,
    kept: Memory,
    prices: Mapping[str, Price],
) -> PoolPlan:
    """The plan that follows from a decision. `kept`: the memory that is kept of it."""
    decision, learning = outcome.decision, outcome.memory
    actions = actions_of(seen, decision) if permission.act else ()
    money = expense(seen, decision, prices)
    return PoolPlan(seen, permission, decision, kept, learned(learning, kept), money, actions)


def expense(seen: Collected, decision: Decision, prices: Mapping[str, Price]) -> Expense:
    """The money of a pool."""
    gpus = {one.name: one.gpus for one in seen.targets}
    return expense_of(seen.pool, seen.observation, decision.figures, gpus, prices)


def actions_of(seen: Collected, decision: Decision) -> tuple[ScaleAction, ...]:
    """What a decision changes, target by target: increases first, so that no capacity is given up before."""
    wanted = {part.target: part.replicas for part in decision.parts} or {"": decision.replicas}
    actions = [ScaleAction(one.workload, wanted.get(one.name, one.workload.replicas)) for one in seen.targets]
    changing = [one for one in actions if one.added]
    return tuple(sorted(changing, key=lambda one: not one.grows))


def core_targets(targets: Sequence[SeenTarget], room: Mapping[str, int] = NO_LIMITS) -> tuple[Target, ...]:
    """The targets in the core's own units, where the pool has several. `room` as for `plan`.

    The price is in dollars where each target has one, else in GPUs; a replica whose GPUs are unknown counts as one.
    """
    if not targets[0].name:
        return ()
    costs = [one.spec.cost_per_replica_hour for one in targets]
    prices = [max(LEAST_PRICE, cost) for cost in costs if cost is not None]
    if len(prices) < len(costs):
        prices = [float(one.gpus or 1) for one in targets]
    found = []
    for one, price in zip(targets, prices, strict=True):
        base = max(one.spec.min, one.spec.base)
        most = max(base, min(one.spec.max, room.get(one.name, one.spec.max)))
        found.append(Target(one.name, price, base, most, one.workload.batch_limit))
    return tuple(found)


def learned(learning: Memory, kept: Memory) -> Learned:
    """What the status tells: of the samples as `learning` took them in, of the rest as it is `kept`."""
    window, starts = kept.window.last(KEPT_SECONDS), kept.profile.cold_start
    buckets, at_gateway = kept.window.buckets, kept.profile.at_gateway
    return Learned(
        missing=learning.missing,
        coverage=learning.coverage,
        queue_unknown=learning.queue_unknown,
        damaged=learning.damaged,
        client_unknown=learning.client_unknown,
        first_tokens=window.client_first_tokens if at_gateway else window.first_tokens,
        finished=window.finished,
        buckets=buckets._replace(ttft=buckets.client) if at_gateway else buckets,
        cold_start=starts.expected(0.0) if starts.seconds else None,
        ttft_inferred=kept.unbegun is not None,
        caches_lost=kept.profile.lost_caches.rise,
        vanished=None if learning.profile.vanished is None else learning.profile.vanished.at,
        reference=learning.profile.reference,
    )


def core_pool(
    pool: ServingPool,
    batch_limit: float = math.inf,
    targets: tuple[Target, ...] = (),
    *,
    in_charge: bool,
    during: tuple[float, float] | None = None,
    metered: bool = False,
) -> Pool:
    """The spec in the core's own units, with the requests that a replica's arguments let it run at a time.

    `targets`: see `core_targets`. `during`, from and to in Unix seconds: of the schedules, the windows that reach into
    that time; None for none.
    `metered`: its engines export nothing, so TTFT is measured at the gateway in any case.
    """
    spec = pool.spec
    windows = () if during is None else occurrences(spec.schedules, *during)
    return Pool(
        slo=Slo(
            time_to_first_token=spec.slo.time_to_first_token,
            time_per_output_token=spec.slo.time_per_output_token,
            attainment=spec.slo.attainment_share,
            at_gateway=bound_of(pool, metered=metered) is not None,
        ),
        min_replicas=spec.min,
        max_replicas=spec.max,
        in_charge=in_charge,
        batch_limit=batch_limit,
        params=Params(
            scale_down_window=spec.behavior.scale_down_window,
            calibration=spec.behavior.calibration,
            cold_start=spec.behavior.cold_start,
        ),
        windows=tuple(
            Window(one.schedule.name, one.begin, one.end, one.schedule.min, one.schedule.max) for one in windows
        ),
        idle_after=spec.behavior.idle_after if spec.goes_to_zero else None,
        max_change=math.inf if spec.behavior.max_change_per_step is None else spec.behavior.max_change_per_step,
        targets=targets,
        prefills=spec.targets[0].role is Role.PREFILL,
    )
