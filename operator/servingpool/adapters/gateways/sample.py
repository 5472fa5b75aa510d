"""Sample of a gateway pod for one pool's model, with the figures of all models together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from servingpool.adapters.gateways.own_gateway import bound_of
from servingpool.adapters.prometheus.gateways import GatewayProfile
from servingpool.adapters.prometheus.samples import ANY_MODEL, with_own_buckets
from servingpool.api.serving_pool import ServingPool
from servingpool.decision.observation import NOT_EXPOSED, ReplicaMetrics, Unknown

SHARED = Unknown("its requests in flight are of several models together: give the pool a gateway of its own")
QUEUE_SHARED = Unknown(
    "the gateway's queue names no model, and several are served: update it, or give the pool a gateway of its own"
)
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
    of_all = models.get(ANY_MODEL)
    found = of_all if profile.model_label is None else models.get(pool.spec.model)
    if profile.model_label is not None and queue_unnamed(models):
        found = _with_queue(profile, found, models)
    if metered and of_all is not None and profile.model_label is not None:
        others = [one for name, one in models.items() if name not in {ANY_MODEL, pool.spec.model}]
        alone = all(isinstance(one.generation_tokens, Unknown) for one in others)
        found = replace(found or of_all, running=of_all.running if alone else SHARED)
    return None if found is None else with_own_buckets(found, bound_of(pool, metered=metered), None)


def _with_queue(
    profile: GatewayProfile, found: ReplicaMetrics | None, models: Mapping[str, ReplicaMetrics]
) -> ReplicaMetrics | None:
    """The sample with a queue that names no model: the pool's where the pod serves no other, or where it is empty.

    `found` is None before the model's first request has left the queue, and where the pod does not serve the model.
    """
    of_all = models[ANY_MODEL]
    queue = of_all.waiting
    if found is None:
        if len(models) > 1:
            return None
        found = of_all
    if len(models) > 2 and queue != 0.0:  # one of them is of all models
        return replace(found, waiting=QUEUE_SHARED)
    begun = 0.0 if found.begun is NOT_EXPOSED else found.begun
    if profile.held_have_arrived and not isinstance(queue, Unknown) and not isinstance(begun, Unknown):
        found = replace(found, begun=begun + queue)
    return replace(found, waiting=queue)
