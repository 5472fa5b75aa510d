"""From a pool's observation to its plan, by stage and for all stages together.

The only module that calls the decision core in a tick, but for `gpubudget`, which decides a stage again beside fewer
replicas of the other one (`StagePlan.beside`); and the only one that reads the core's memory for the status.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import ClassVar

from servingpool.adapters.cluster.objects import Workload
from servingpool.adapters.gateways.own_gateway import bound_of
from servingpool.api.conditions import Reason
from servingpool.api.role import Role
from servingpool.api.schedule import occurrences
from servingpool.api.serving_pool import Metadata, ServingPool
from servingpool.decision.bound import unschedulable
from servingpool.decision.decide import Stage, StageOutcome, decide_stages
from servingpool.decision.decision import Decision
from servingpool.decision.learn.memory import Memory
from servingpool.decision.observe.latency import LatencyCount
from servingpool.decision.observe.samples import Buckets
from servingpool.decision.observe.window import KEPT_SECONDS
from servingpool.decision.params import Params
from servingpool.decision.pool import Pool, Slo, Target, Window
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
class Learned:
    """Part of the core's memory that the status tells."""

    missing: str | None
    """A series that some sample lacks."""
    coverage: float
    """Share of ready replicas that could be read."""
    queue_unknown: str | None
    """Why the queue is not known."""
    damaged: str | None
    """Why samples of the last scrape, or their gauges, are left out."""
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
    calm_since: Callable[[], float | None]
    """Unix time in seconds since which the load is one that the SLO allows; None where it is not, or is unknown. Only a
    missed SLO asks."""
    ttft_inferred: bool = False
    """The engines tell no time to first token."""
    vanished: float | None = None
    """Unix time in seconds from which on the gateway's series were gone at 0 replicas."""
    reference: str = ""
    """The target in whose replicas the decision is counted; empty of a pool with roles, which has two."""


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
    memory: Memory
    """The core's memory now."""
    learned: Learned
    beside: Callable[[int], Decision] | None
    """The decision beside so many replicas of the other stage: budgets may leave it fewer. None without another."""

    @property
    def role(self) -> str:
        """`SeenStage.role` of the stage."""
        return self.seen.role


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """The actions for a pool, and why."""

    seen: Collected
    permission: ScalePermission
    stages: tuple[StagePlan, ...]
    """The stages: one, or prefill and decode."""
    decision: Decision
    """Decision on all stages together; `learned` likewise."""
    learned: Learned
    expense: Expense
    actions: tuple[ScaleAction, ...]
    """An action for each target that changes, increases first; none where the pool may not be scaled."""

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
) -> PoolPlan:
    """Decide for a pool. A pool that is not backfilled learns nothing yet: its history would be older.

    `drift` tells who else sets the targets' replicas; None where nobody does. `memories`: by role. `room`: replicas to
    which targets may grow now, by name, where a GPU budget bounds them and others may be ordered instead.
    """
    asked = [Stage(one.observation, asked_of(one, seen.at, room), memories[one.role]) for one in seen.stages]
    without_node = sum(unschedulable(one.observation, one.pool, one.memory) for one in asked)
    permission = in_mode(seen.pool.spec.mode, check(seen, without_node, drift))
    gateway = "" if seen.gateway is None else seen.gateway[0].text
    asked = [replace(one, pool=replace(one.pool, in_charge=permission.act, gateway=gateway)) for one in asked]
    outcomes = decide_stages(asked, ratio_of(seen.pool), seen.at)
    stages = tuple(
        _decided(one, before.pool, outcome, outcome.memory if backfilled else before.memory)
        for one, before, outcome in zip(seen.stages, asked, outcomes, strict=True)
    )
    decision = joined([one.decision for one in stages])
    actions = actions_of(seen, decision) if permission.act else ()
    learned = _together([one.learned for one in stages])
    gpus = {one.name: one.gpus for one in seen.targets}
    expense = expense_of(seen.pool, seen.observation, decision.figures, gpus, prices)
    return PoolPlan(seen, permission, stages, decision, learned, expense, actions)


def with_decisions(plan: PoolPlan, decisions: Sequence[Decision]) -> PoolPlan:
    """The plan with these decisions on its stages."""
    if all(new is one.decision for one, new in zip(plan.stages, decisions, strict=True)):
        return plan
    stages = tuple(replace(one, decision=new) for one, new in zip(plan.stages, decisions, strict=True))
    decision = joined(decisions)
    return replace(plan, stages=stages, decision=decision, actions=actions_of(plan.seen, decision))


def asked_of(stage: SeenStage, now: float, room: Mapping[str, int] = NO_LIMITS) -> Pool:
    """The spec in the core's own units. Whether it is carried out is not known yet. `room` as for `plan_pool`."""
    targets, metered = core_targets(stage.targets, room), stage.observation.metered
    core = core_pool(stage.pool, targets, in_charge=False, during=(now, now + AHEAD), metered=metered)
    return _in_turn(core, stage)


def _in_turn(core: Pool, stage: SeenStage) -> Pool:
    """The pool with the cold starts that an order takes, and the min of a window, where replicas start in turn."""
    turns = [one for one in stage.targets if one.workload.in_turn]
    if not turns:
        return core
    ready = Counter(one.target for one in stage.observation.ready)
    starts = max(1, *(one.workload.replicas - ready[one.name] for one in turns))
    most = [(one.min_replicas or 0) - ready.total() for one in core.windows]
    windows = zip(core.windows, most, strict=True)
    return replace(
        core, starts=starts, windows=tuple(replace(one, ahead=max(1.0, more / starts)) for one, more in windows)
    )


def _decided(stage: SeenStage, core: Pool, outcome: StageOutcome, kept: Memory) -> StagePlan:
    """The plan of an outcome. `core`: the pool as decided on; `kept`: the memory of the next tick."""
    told = learned(outcome.memory, kept, partial(outcome.memory.calm_since, core))
    return StagePlan(stage, outcome.decision, kept, told, outcome.beside)


def _together(each: Sequence[Learned]) -> Learned:
    """What the status tells of all stages. Each stage tells of its own bound of the SLO."""
    if len(each) == 1:
        return each[0]
    prefill, decode = each
    starts = [one for one in (prefill.cold_start, decode.cold_start) if one is not None]
    return replace(
        prefill,
        missing=prefill.missing or decode.missing,
        coverage=min(prefill.coverage, decode.coverage),
        queue_unknown=prefill.queue_unknown or decode.queue_unknown,
        damaged=prefill.damaged or decode.damaged,
        client_unknown=prefill.client_unknown or decode.client_unknown,
        cold_start=max(starts, default=None),
        vanished=prefill.vanished if prefill.vanished is not None else decode.vanished,
        reference="",
    )


def actions_of(seen: Collected, decision: Decision) -> tuple[ScaleAction, ...]:
    """Changes of a decision, target by target: increases first, so that no capacity is given up before."""
    wanted = {part.target: part.replicas for part in decision.parts}
    actions = [ScaleAction(one.workload, wanted.get(one.name, one.workload.replicas)) for one in seen.targets]
    changing = [one for one in actions if one.added]
    return tuple(sorted(changing, key=lambda one: not one.grows))


def core_targets(targets: Sequence[SeenTarget], room: Mapping[str, int] = NO_LIMITS) -> tuple[Target, ...]:
    """The targets in the core's own units. `room` as for `plan_pool`.

    The price is in dollars where each target has one, else in GPUs; a replica whose GPUs are unknown counts as one. A
    target alone has the pool's min and max, which schedules may change.
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


def learned(learning: Memory, kept: Memory, calm_since: Callable[[], float | None]) -> Learned:
    """Part of the memory for the status: of the samples as `learning` took them in, of the rest as it is `kept`.

    `calm_since`: see `Learned`.
    """
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
        calm_since=calm_since,
        ttft_inferred=kept.ttft_inferred,
        vanished=None if learning.profile.vanished is None else learning.profile.vanished.at,
        reference=learning.profile.reference,
    )


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
        paired=spec.has_roles,
    )
