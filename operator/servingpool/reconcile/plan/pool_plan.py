"""From a pool's observation to its plan, by stage and for all stages together.

The only module that calls the decision core in a tick, but for `gpubudget`, which decides a stage again beside fewer
replicas of the other one (`StagePlan.beside`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar

from servingpool.adapters.cluster.objects import Workload
from servingpool.adapters.gateways.own_gateway import bound_of
from servingpool.api.conditions import Reason
from servingpool.api.role import Role
from servingpool.api.schedule import cost_factor, occurrences
from servingpool.api.serving_pool import Metadata, ServingPool
from servingpool.api.spec import Spec
from servingpool.decision.bound import unschedulable
from servingpool.decision.decide import Stage, decide_stages
from servingpool.decision.decision import Decision
from servingpool.decision.learn.memory import Memory
from servingpool.decision.params import DAY, Params
from servingpool.decision.pool import Batch, Pool, Rate, Slo, Target, Tariff, Window
from servingpool.decision.roles import joined
from servingpool.reconcile.collect.collected import Collected, SeenStage
from servingpool.reconcile.collect.targets import SeenTarget, ratio_of
from servingpool.reconcile.config import Price
from servingpool.reconcile.plan.expense import Expense, expense_of
from servingpool.reconcile.plan.preconditions import ScalePermission, check, in_mode

LEAST_PRICE = 0.001
"""Dollars of a replica for an hour, at least: if it cost nothing, any number of them would be the cheapest mix."""
NO_LIMITS: Mapping[str, int] = MappingProxyType({})
"""Limits of a pool whose targets no GPU budget bounds."""
AHEAD = 7200.0
"""Seconds for which windows are resolved, over the longest horizon: a cold start of an hour and a scrape interval."""


@dataclass(frozen=True, slots=True)
class ScaleAction:
    """Set a target's replicas."""

    target: Workload
    """The target as it was decided on."""
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
class StagePlan:
    """Decision on a stage of a pool, with everything that it rests on."""

    seen: SeenStage
    decision: Decision
    core: Pool
    """The pool as it was decided on."""
    memory: Memory
    """The core's memory with this observation."""
    kept: Memory
    """The memory of the next tick."""
    beside: Callable[[int], Decision] | None
    """The decision beside so many replicas of the other stage: budgets may leave it fewer. None without another."""

    @property
    def role(self) -> str:
        """`SeenStage.role` of the stage."""
        return self.seen.role

    @property
    def memories(self) -> tuple[Memory, ...]:
        """Its memory, as `PoolPlan.memories`."""
        return (self.memory,)


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """The actions for a pool, and why."""

    seen: Collected
    permission: ScalePermission
    stages: tuple[StagePlan, ...]
    """The stages: one, or prefill and decode."""
    decision: Decision
    """Decision on all stages together."""
    expense: Expense
    actions: tuple[ScaleAction, ...]
    """An action for each target that changes, increases first; none where the pool may not be scaled."""

    @property
    def memories(self) -> tuple[Memory, ...]:
        """The memory of each stage."""
        return tuple(one.memory for one in self.stages)

    @property
    def standing(self) -> tuple[str, ...]:
        """Replicas whose gauges are not believed, by name."""
        return tuple(one.replica for one in self.decision.standing)

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
    """Reason of the Ready condition."""
    message: str
    grows: ClassVar[bool] = False
    """Whether replicas are added, as for a `PoolPlan`."""


Planned = PoolPlan | Refusal


def plan_pool(
    seen: Collected,
    drift: str | None,
    memories: Mapping[str, Memory],
    prices: Mapping[str, Price],
    *,
    backfilled: bool,
    room: Mapping[str, int] = NO_LIMITS,
    shared: bool = False,
) -> PoolPlan:
    """Decide for a pool. A pool that is not backfilled learns nothing yet: its history would be older.

    `drift` tells who else sets the targets' replicas; None where nobody does. `memories`: by role. `room`: replicas to
    which targets may grow now, by name, where a GPU budget bounds them and others may be ordered instead. `shared`: a
    GPU budget selects the pool, so work waits for no cheaper hours: other pools may have its GPUs then.
    """
    asked = [Stage(one.observation, asked_of(one, seen.at, room), memories[one.role]) for one in seen.stages]
    if shared and (batch := asked[0].pool.batch):
        asked = [replace(one, pool=replace(one.pool, batch=replace(batch, tariffs=()))) for one in asked]
    without_node = sum(unschedulable(one.observation, one.pool, one.memory) for one in asked)
    permission = in_mode(seen.pool.spec.mode, check(seen, without_node, drift))
    gateway = "" if seen.gateway is None else seen.gateway[0].text
    asked = [replace(one, pool=replace(one.pool, in_charge=permission.act, gateway=gateway)) for one in asked]
    outcomes = decide_stages(asked, ratio_of(seen.pool), seen.at)
    stages = tuple(
        StagePlan(one, found.decision, was.pool, found.memory, found.memory if backfilled else was.memory, found.beside)
        for one, was, found in zip(seen.stages, asked, outcomes, strict=True)
    )
    decision = stages[0].decision if len(stages) == 1 else joined([one.decision for one in stages])
    actions = actions_of(seen, decision) if permission.act else ()
    gpus = {one.name: one.gpus for one in seen.targets}
    expense = expense_of(seen.pool, seen.observation, decision.figures, gpus, prices, seen.at)
    return PoolPlan(seen, permission, stages, decision, expense, actions)


def with_decisions(plan: PoolPlan, decisions: Sequence[Decision]) -> PoolPlan:
    """The plan with these decisions on its stages."""
    if all(new is one.decision for one, new in zip(plan.stages, decisions, strict=True)):
        return plan
    stages = tuple(replace(one, decision=new) for one, new in zip(plan.stages, decisions, strict=True))
    decision = decisions[0] if len(decisions) == 1 else joined(decisions)
    return replace(plan, stages=stages, decision=decision, actions=actions_of(plan.seen, decision))


def asked_of(stage: SeenStage, now: float, room: Mapping[str, int] = NO_LIMITS) -> Pool:
    """The spec in the core's own units. Whether it is carried out is not known yet. `room` as for `plan_pool`."""
    targets, metered = core_targets(stage.targets, room), stage.observation.metered
    core = core_pool(stage.pool, targets, in_charge=False, during=(now, now + AHEAD), metered=metered)
    # Where replicas start in turn an order takes several cold starts, and so does the min of a window.
    turns = [one for one in stage.targets if one.workload.in_turn]
    if not turns:
        return core
    ready = Counter(one.target for one in stage.observation.ready)
    starts = max(1, *(one.workload.replicas - ready[one.name] for one in turns))
    more = [((one.min_replicas or 0) - ready.total()) / starts for one in core.windows]
    windows = zip(core.windows, more, strict=True)
    return replace(core, starts=starts, windows=tuple(replace(one, ahead=max(1.0, each)) for one, each in windows))


def actions_of(seen: Collected, decision: Decision) -> tuple[ScaleAction, ...]:
    """Changes of a decision, target by target: increases first, so that no capacity is given up before."""
    wanted = {part.target: part.replicas for part in decision.parts}
    actions = [ScaleAction(one.workload, wanted.get(one.name, one.workload.replicas)) for one in seen.targets]
    return tuple(sorted((one for one in actions if one.added), key=lambda one: not one.grows))


def core_targets(targets: Sequence[SeenTarget], room: Mapping[str, int] = NO_LIMITS) -> tuple[Target, ...]:
    """The targets in the core's own units. `room` as for `plan_pool`.

    The price is in dollars where each target has one, else in GPUs; a replica whose GPUs are unknown counts as one. A
    costFactor is the same for all targets and changes no mix. A target alone has the pool's min and max, which
    schedules may change.
    """
    if len(targets) == 1 and targets[0].spec.role is None:
        return (Target(targets[0].name, batch_limit=targets[0].workload.batch_limit),)
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


def core_pool(
    pool: ServingPool,
    targets: tuple[Target, ...] = (Target(),),
    *,
    in_charge: bool,
    during: tuple[float, float] | None = None,
    metered: bool = False,
) -> Pool:
    """The spec in the core's own units.

    `targets`: see `core_targets`. `during`, from and to in Unix seconds: of the schedules, the windows that reach into
    that time; None for none.
    `metered`: its engines export nothing, so TTFT is measured at the gateway in any case.
    """
    spec = pool.spec
    windows = occurrences(spec.schedules, *during) if spec.schedules and during is not None else ()
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
        params=Params(
            scale_down_window=spec.behavior.scale_down_window,
            calibration=spec.behavior.calibration,
            cold_start=spec.behavior.cold_start,
        ),
        windows=tuple(
            Window(one.schedule.name, one.begin, one.end, one.schedule.min, one.schedule.max)
            for one in windows
            if one.schedule.min or one.schedule.max
        ),
        idle_after=spec.behavior.idle_after if spec.goes_to_zero and spec.batch is None else None,
        max_change=math.inf if spec.behavior.max_change_per_step is None else spec.behavior.max_change_per_step,
        targets=targets,
        prefills=spec.targets[0].role is Role.PREFILL,
        paired=spec.has_roles,
        batch=_core_batch(spec, during),
    )


def _core_batch(spec: Spec, during: tuple[float, float] | None) -> Batch | None:
    """Deadlines or rate; money in the unit of the targets' prices, see `core_targets`."""
    if (rate := spec.throughput) is not None:
        price = 1.0 if spec.several else max(LEAST_PRICE, spec.targets[0].cost_per_replica_hour or 0.0)
        price *= cost_factor(occurrences(spec.schedules, during[0], during[0])) if during else 1.0
        spend = math.inf if rate.spend_at_most is None else rate.spend_at_most.dollars_per_hour / price
        return Batch(DAY, unit="output tokens", rate=Rate(rate.output_tokens_per_second or math.inf, spend))
    if (batch := spec.batch) is None or during is None:
        return None
    ends = () if batch.finish_by is None else batch.finish_by.deadlines(*during)
    work = Batch(batch.finish_within or math.inf, ends, batch.backlog.unit)
    return replace(work, tariffs=tuple(_tariffs(spec, during[0], work.due(during[0]))))


def _tariffs(spec: Spec, begin: float, end: float) -> Iterator[Tariff]:
    """Prices and max from begin to end, in Unix seconds, each until it changes; none without a costFactor."""
    if not any(one.cost_factor for one in spec.schedules):
        return
    windows, last = list(occurrences(spec.schedules, begin, end)), None
    edges = {begin, *(edge for one in windows for edge in one[:2] if begin < edge < end)}
    for edge in sorted(edges):
        now = [one for one in windows if one.begin <= edge < one.end]
        bounds = [one.schedule.max or spec.max for one in now if one.schedule.min or one.schedule.max]
        found = Tariff(edge, cost_factor(now), max(bounds, default=spec.max))
        if found[1:] != last:
            yield found
        last = found[1:]
