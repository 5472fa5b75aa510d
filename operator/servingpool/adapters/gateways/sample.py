"""Sample of a gateway pod for one pool's model, with the figures of all models together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from servingpool.adapters.gateways.own_gateway import bound_of
from servingpool.adapters.prometheus.gateways import GatewayProfile
from servingpool.adapters.prometheus.plan import FIELDS
from servingpool.adapters.prometheus.samples import ANY_MODEL, with_own_buckets
from servingpool.api.serving_pool import ServingPool
from servingpool.decision.observation import NOT_EXPOSED, Histogram, ReplicaMetrics, Unknown

SHARED = Unknown("its requests in flight are of several models together: give the pool a gateway of its own")
QUEUE_SHARED = Unknown(
    "the gateway's queue names no model, and several are served: update it, or give the pool a gateway of its own"
)
UNEQUAL = Unknown("the gateway's pods have different buckets, as in a rollout")
QUEUE_UNNAMED = Unknown(
    "the gateway's queue names no model, and such a release refuses requests while there is no replica: update it"
)


def queue_unnamed(models: Mapping[str, ReplicaMetrics]) -> bool:
    """Whether the queue of a pod, whose samples are given by model, names no model."""
    own = [name for name, one in models.items() if one.waiting is not NOT_EXPOSED]
    return own == [ANY_MODEL]


def own_sample(
    pool: ServingPool, profile: GatewayProfile, models: Mapping[str, ReplicaMetrics], *, metered: bool
) -> ReplicaMetrics | None:
    """The pod's sample of the pool's model, with the figures that it does not tell by model; None without any.

    `models`: the pod's samples by model. `metered`: the engine exports nothing.
    """
    of_all, names = models.get(ANY_MODEL), {pool.spec.model, *pool.spec.metrics.adapters}
    own = [one for name, one in models.items() if name in names]
    others = [one for name, one in models.items() if name not in {ANY_MODEL, *names}]
    found = of_all if profile.model_label is None else _together(own)
    if profile.model_label is not None and queue_unnamed(models):
        found = _with_queue(profile, found, models[ANY_MODEL], shared=bool(others))
    if metered and of_all is not None and profile.model_label is not None:
        alone = all(isinstance(one.generation_tokens, Unknown) for one in others)
        found = replace(found or of_all, running=of_all.running if alone else SHARED)
    return None if found is None else with_own_buckets(found, bound_of(pool, metered=metered), None)


def _together(samples: Sequence[ReplicaMetrics]) -> ReplicaMetrics | None:
    """One sample of all: of a model and its adapters."""
    if len(samples) < 2:
        return samples[0] if samples else None
    figures = {name: summed(getattr(one, name) for one in samples) for name in FIELDS}
    return replace(samples[0], scraped_at=min(one.scraped_at for one in samples), **figures)


def summed(readings: Iterable[Any]) -> Any:
    """The sum of what there is: where a series begins with its first request, one that is not there is none."""
    figures = list(readings)
    broken = [one for one in figures if isinstance(one, Unknown) and one is not NOT_EXPOSED]
    known = [one for one in figures if not isinstance(one, Unknown)]
    if broken or not known:
        return broken[0] if broken else NOT_EXPOSED
    if not isinstance(known[0], Histogram):
        return sum(known)
    if len({one.bounds for one in known}) > 1:
        return UNEQUAL
    counts = tuple(map(sum, zip(*(one.counts for one in known), strict=True)))
    return Histogram(known[0].bounds, counts, sum(one.total for one in known), sum(one.count for one in known))


def _with_queue(
    profile: GatewayProfile, found: ReplicaMetrics | None, of_all: ReplicaMetrics, *, shared: bool
) -> ReplicaMetrics | None:
    """The sample with a queue that names no model: the pool's where the pod serves no other, or where it is empty.

    `found` is None before the model's first request has left the queue, and where the pod does not serve the model.
    """
    queue = of_all.waiting
    if found is None:
        if shared:
            return None
        found = of_all
    if shared and queue != 0.0:
        return replace(found, waiting=QUEUE_SHARED)
    begun = 0.0 if found.begun is NOT_EXPOSED else found.begun
    if profile.held_have_arrived and not isinstance(queue, Unknown) and not isinstance(begun, Unknown):
        found = replace(found, begun=begun + queue)
    return replace(found, waiting=queue)
