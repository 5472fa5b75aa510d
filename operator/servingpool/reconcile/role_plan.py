"""The plan of a pool, whether it has roles or not: of prefill and decode each side's, and both together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from servingpool.decision.decide import Side, decide_both
from servingpool.decision.roles import joined
from servingpool.decision.state import Memory
from servingpool.reconcile.collect import Collected
from servingpool.reconcile.config import Price
from servingpool.reconcile.pool_plan import (
    NO_LIMITS,
    Learned,
    PoolPlan,
    actions_of,
    asked_of,
    decided,
    expense,
    in_charge,
    plan,
)
from servingpool.reconcile.preconditions import check, in_mode
from servingpool.reconcile.sides import ratio_of, role_of


def plan_pool(
    seen: Collected,
    drift: str | None,
    memories: Mapping[str, Memory],
    prices: Mapping[str, Price],
    *,
    backfilled: bool,
    room: Mapping[str, int] = NO_LIMITS,
) -> PoolPlan:
    """As `plan`. `memories`: by role, and of a pool without roles by the empty name."""
    if not seen.sides:
        return plan(seen, drift, memories[""], prices, backfilled=backfilled, room=room)
    permission = in_mode(seen.pool.spec.mode, check(seen, 0, drift))  # of several targets another one is ordered
    kept = [memories[role_of(one.pool)] for one in seen.sides]
    sides = [
        Side(one.observation, in_charge(asked_of(one, room), one, permission), memory)
        for one, memory in zip(seen.sides, kept, strict=True)
    ]
    prefill, decode = sides
    outcomes = decide_both(prefill, decode, ratio_of(seen.pool), seen.at)
    plans = [
        replace(
            decided(one, permission, outcome, outcome.memory if backfilled else memory, prices), beside=outcome.beside
        )
        for one, outcome, memory in zip(seen.sides, outcomes, kept, strict=True)
    ]
    return together(seen, plans, prices)


def together(seen: Collected, sides: Sequence[PoolPlan], prices: Mapping[str, Price]) -> PoolPlan:
    """Both sides' plans as the pool's."""
    prefill, decode = sides
    decision = joined(prefill.decision, decode.decision)
    money, learned = expense(seen, decision, prices), _learned(prefill.learned, decode.learned)
    whole = PoolPlan(seen, prefill.permission, decision, prefill.memory, learned, money, (), (prefill, decode))
    return replace(whole, actions=actions_of(seen, decision)) if prefill.permission.act else whole


def with_sides(plan: PoolPlan, sides: Sequence[PoolPlan]) -> PoolPlan:
    """The same plan, after its sides were cut."""
    prefill, decode = sides
    if all(now is before for now, before in zip(sides, plan.sides, strict=True)):
        return plan
    decision = joined(prefill.decision, decode.decision)
    return replace(plan, decision=decision, actions=actions_of(plan.seen, decision), sides=(prefill, decode))


def _learned(prefill: Learned, decode: Learned) -> Learned:
    """What the status tells of the pool. Of the SLO's bounds each side tells by itself."""
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
