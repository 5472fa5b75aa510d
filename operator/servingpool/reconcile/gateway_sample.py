"""One gateway pod's sample of one pool's model, with what the pod tells of all models together."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from servingpool.adapters.prometheus import ANY_MODEL, GatewayProfile, with_own_buckets
from servingpool.api.serving_pool import ServingPool
from servingpool.decision.observation import NOT_EXPOSED, ReplicaMetrics, Unknown
from servingpool.reconcile.gateways import bound_of

SHARED = Unknown("its requests in flight are of several models together: give the pool a gateway of its own")
QUEUE_SHARED = Unknown(
    "the gateway's queue names no model, and several are served: update it, or give the pool a gateway of its own"
)


def own_sample(
    pool: ServingPool, profile: GatewayProfile, models: Mapping[str, ReplicaMetrics], *, metered: bool
) -> ReplicaMetrics | None:
    """The pod's sample of the pool's model, with the figures that it does not tell by model; None without any.

    `models`: the pod's samples by model. `metered`: the engine exports nothing.
    """
    of_all = models.get(ANY_MODEL)
    found = of_all if profile.model_label is None else models.get(pool.spec.model)
    if of_all is not None and profile.model_label is not None:
        found = _with_queue(profile, found, of_all, [one for name, one in models.items() if name != ANY_MODEL])
    if metered and of_all is not None and profile.model_label is not None:
        others = [one for name, one in models.items() if name not in {ANY_MODEL, pool.spec.model}]
        alone = all(isinstance(one.generation_tokens, Unknown) for one in others)
        found = replace(found or of_all, running=of_all.running if alone else SHARED)
    return None if found is None else with_own_buckets(found, bound_of(pool, metered=metered), None)


def _with_queue(
    profile: GatewayProfile, found: ReplicaMetrics | None, of_all: ReplicaMetrics, named: Collection[ReplicaMetrics]
) -> ReplicaMetrics | None:
    """The sample with a queue that names no model: the pool's where the pod serves no other, or where it is empty.

    `found` is None before the model's first request has left the queue, and where the pod does not serve the model.
    `named`: the pod's samples of all models. If one of them has a queue of its own, the others hold nothing.
    """
    queue = of_all.waiting
    if queue is NOT_EXPOSED or any(one.waiting is not NOT_EXPOSED for one in named):
        return found
    if found is None:
        if named:
            return None
        found = of_all
    if len(named) > 1 and queue != 0.0:
        return replace(found, waiting=QUEUE_SHARED)
    begun = 0.0 if found.begun is NOT_EXPOSED else found.begun
    if profile.held_have_arrived and not isinstance(queue, Unknown) and not isinstance(begun, Unknown):
        found = replace(found, begun=begun + queue)
    return replace(found, waiting=queue)
