"""Whether a pool with min 0 may go there, and what the first request meets then: the ZeroReady condition."""

from __future__ import annotations

from servingpool.adapters.gateways.own_gateway import OwnGateway, bound_of
from servingpool.adapters.prometheus import FirstRequest, GatewayProfile
from servingpool.api.conditions import Reason
from servingpool.api.duration import brief
from servingpool.api.serving_pool import ServingPool
from servingpool.catalogue.notes import Note
from servingpool.decision.gateway_demand import clock
from servingpool.decision.observation import Unknown
from servingpool.reconcile.pool_plan import Learned, PoolPlan

REACTION = 30.0
"""Seconds from a request to the order: at most one scrape and one tick, 15 s each by default."""


def judge_zero(plan: PoolPlan) -> tuple[Reason, str] | None:
    """Reason and message; None where min is at least 1."""
    pool, known, learned = plan.seen.pool, plan.seen.gateway, plan.learned
    if not pool.spec.goes_to_zero or known is None:
        return None
    own, profile = known
    if learned.vanished is not None:
        said = Reason.DEMAND_VANISHED.message(gateway=own.text, at=clock(learned.vanished))
        return Reason.DEMAND_VANISHED, said
    shown = plan.seen.observation.gateway.at_zero
    if isinstance(shown, Unknown):
        return Reason.DEMAND_NOT_SHOWN, Reason.DEMAND_NOT_SHOWN.message(detail=shown.reason)
    return _first_request(pool, own, profile, learned, metered=plan.seen.observation.metered)


def _first_request(
    pool: ServingPool, own: OwnGateway, profile: GatewayProfile, learned: Learned, *, metered: bool
) -> tuple[Reason, str]:
    """What it meets, by the gateway's profile and what the pool says of it."""
    at_zero, holds = profile.at_zero, holds_for(pool, profile)
    does = FirstRequest.REJECTS if at_zero is None else at_zero.first_request
    if does is FirstRequest.REJECTS and holds:
        does = FirstRequest.RETRIES  # the pool says so
    conduct = _conduct(does, holds)
    cold, refuses = learned.cold_start, does is FirstRequest.REJECTS
    if not refuses and (holds is None or cold is None):
        detail = Note.NO_HOLD_TIME.message() if holds is None else Note.NO_COLD_START.message()
        said = Reason.FIRST_REQUEST_UNKNOWN.message(gateway=own.text, conduct=conduct, detail=detail)
        return Reason.FIRST_REQUEST_UNKNOWN, said
    counted = _counted(pool, does, metered=metered)
    taken, reaction = (Note.UNKNOWN_TIME.message() if cold is None else brief(cold)), brief(REACTION)
    if refuses or holds is None or cold is None or holds < cold + REACTION:
        said = Reason.FIRST_REQUEST_FAILS.message(
            gateway=own.text, conduct=conduct, cold=taken, reaction=reaction, counted=counted
        )
        return Reason.FIRST_REQUEST_FAILS, said
    said = Reason.HOLDS_FIRST_REQUEST.message(
        gateway=own.text, conduct=conduct, cold=taken, reaction=reaction, counted=counted
    )
    return Reason.HOLDS_FIRST_REQUEST, said


def holds_for(pool: ServingPool, profile: GatewayProfile) -> float | None:
    """Seconds for which the gateway holds a request, or tries it again; None where nothing says."""
    gateway = pool.spec.metrics.gateway
    if gateway is not None and gateway.holds_for is not None:
        return gateway.holds_for
    return None if profile.at_zero is None else profile.at_zero.holds_for


def _conduct(does: FirstRequest, holds: float | None) -> str:
    time = Note.UNKNOWN_TIME.message() if holds is None else brief(holds)
    match does:
        case FirstRequest.HOLDS:
            return Note.HOLDS.message(time=time)
        case FirstRequest.RETRIES:
            return Note.RETRIES.message(time=time)
    return Note.REJECTS.message()


def _counted(pool: ServingPool, does: FirstRequest, *, metered: bool) -> str:
    """How the attainment counts requests that arrive at 0 replicas."""
    if pool.spec.slo.time_to_first_token is None:
        return Note.TTFT_NOT_JUDGED.message()
    if bound_of(pool, metered=metered) is not None and does is not FirstRequest.HOLDS:
        return Note.REFUSED_NOT_COUNTED.message()
    return Note.REFUSED_ARE_LATE.message() if does is FirstRequest.RETRIES else Note.HELD_ARE_LATE.message()
