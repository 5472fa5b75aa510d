"""Converts memory and targets into replicas of one target, the reference."""

from __future__ import annotations

from dataclasses import replace

from servingpool.decision.fleet import Fleet, Line
from servingpool.decision.forecast import Forecast
from servingpool.decision.kinds import Kind, best_known, kind_of, weights, work_ratio
from servingpool.decision.miss_curve import MissCurve
from servingpool.decision.observation import Observation
from servingpool.decision.ordinals import lowest
from servingpool.decision.pool import Pool
from servingpool.decision.shortage import seen
from servingpool.decision.state import Memory


def counted(memory: Memory, observation: Observation, pool: Pool, now: float) -> Memory:
    """The memory in replicas of the reference, with what each target delivers.

    The reference is the target that had most Ready replicas when one first served. It stays, unless it leaves the spec,
    or its speed is unknown and none of its replicas could tell.
    """
    profile = memory.profile
    shortages = seen(memory.shortages, observation, now)
    # A memory has so many fields that a copy of it takes a hundredth of a decision.
    memory = memory if shortages == memory.shortages else replace(memory, shortages=shortages)
    serves = any(replica.target == profile.reference for replica in observation.ready)
    stays = any(target.name == profile.reference for target in pool.targets)
    if stays and profile.kinds and (profile.fit.known or serves):
        return memory
    new = best_known(profile.kinds, observation)
    return memory if profile.kinds and new == profile.reference else _in_replicas_of(new, memory, pool)


def _in_replicas_of(new: str, memory: Memory, pool: Pool) -> Memory:
    profile = memory.profile
    if not any(kind.target == target.name for kind in profile.kinds for target in pool.targets):
        # None stays. If the engines are others too, that shows within minutes.
        kind = Kind(new, profile.fit, profile.saturation, profile.cold_start)
        return replace(memory, profile=replace(profile, kinds=(kind,), reference=new))
    prompt, steps = memory.window.lengths(memory.interval, pool.params)
    if steps <= 0.0:
        prompt, steps = profile.busy.prompt, profile.busy.steps
    ratio = work_ratio(profile.kinds, profile.reference, new, pool, prompt=prompt, steps=steps)
    kind = kind_of(profile.kinds, new)
    taught = replace(
        memory.interrupted().profile if ratio is None else memory.in_other_units(ratio).interrupted().profile,
        kinds=tuple(replace(one, speed=None) for one in profile.kinds),
        reference=new,
        fit=kind.fit,
        saturation=kind.saturation,
        curve=MissCurve(),
    )
    if ratio is None:
        taught = replace(taught, forecast=Forecast())
    return replace(memory.interrupted(), profile=taught)


def fleet_of(observation: Observation, pool: Pool, memory: Memory, now: float) -> Fleet:
    """From what was seen, with the bounds of `pool` in replicas of any target."""
    profile, params = memory.profile, pool.params
    worth = weights(profile.kinds, [(target.name, target.price) for target in pool.targets], profile.reference)
    ordered = {order.target: order.replicas for order in observation.orders}
    shortages = {one.target: one for one in memory.shortages}
    standing, lines = (*observation.ready, *observation.starting), []
    for target in pool.targets:
        kind, requested = kind_of(profile.kinds, target.name), ordered.get(target.name, 0)
        ready = sum(one.target == target.name for one in observation.ready)
        starting = [one for one in observation.starting if one.target == target.name]
        without_node = tuple(one for one in starting if one.unschedulable)
        missing = requested - ready - len(starting)
        shortage = shortages.get(target.name)
        cold_start = kind.cold_start.expected(profile.cold_start.expected(params.cold_start))
        lines.append(
            Line(
                target,
                requested,
                ready,
                ready + len(starting) - len(without_node),
                worth[target.name],
                1.0 if target.name == profile.reference else kind.known_speed,
                cold_start,
                None if shortage is None else shortage.stuck(ready, without_node, missing, now, params),
                tuple(lowest(one for one in standing if one.target == target.name)),
            )
        )
    return Fleet.of(lines, pool)
