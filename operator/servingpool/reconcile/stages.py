"""The stages of a pool, one or prefill and decode: what each scales, and its part of the SLO."""

from __future__ import annotations

from servingpool.api.role import Role
from servingpool.api.serving_pool import ServingPool
from servingpool.api.spec import Spec
from servingpool.decision.roles import Ratio, decode_slo, prefill_slo
from servingpool.decision.slo import Slo


def stages_of(pool: ServingPool) -> tuple[ServingPool, ...]:
    """The pool; or where its targets have roles, one with the targets of prefill and one with those of decode."""
    if not pool.spec.has_roles:
        return (pool,)
    slo = slo_of(pool.spec)
    return tuple(
        _stage(pool, role, part) for role, part in ((Role.PREFILL, prefill_slo(slo)), (Role.DECODE, decode_slo(slo)))
    )


def role_of(pool: ServingPool) -> str:
    """The role of a stage; empty for all targets of a pool."""
    role = pool.spec.targets[0].role
    return "" if role is None else role.value


def of_role(role: str, said: str) -> str:
    """The message, with the role's name before it. It has that already where a target is called like its role."""
    return said if not role or said.startswith(f"{role}: ") else f"{role}: {said}"


def ratio_of(pool: ServingPool) -> Ratio:
    """The bounds on prefill replicas for each decode replica."""
    given = pool.spec.prefill_per_decode
    if given is None:
        return Ratio()
    bounds = {"least": given.min, "most": given.max}
    return Ratio(**{name: bound for name, bound in bounds.items() if bound is not None})


def slo_of(spec: Spec) -> Slo:
    """The client's SLO, in the core's own units."""
    slo = spec.slo
    return Slo(slo.time_to_first_token, slo.time_per_output_token, slo.attainment_share)


def _stage(pool: ServingPool, role: Role, slo: Slo) -> ServingPool:
    spec, own = pool.spec, pool.spec.slo
    bounds = {"time_to_first_token": slo.time_to_first_token, "time_per_output_token": slo.time_per_output_token}
    part = own.model_copy(update={**bounds, "attainment": 100.0 * slo.attainment})
    targets = tuple(one for one in spec.targets if one.role is role)
    return pool.model_copy(update={"spec": spec.model_copy(update={"slo": part, "targets": targets})})
