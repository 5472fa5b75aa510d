"""The watches.

`on.event` into an own cache, and nothing else of kopf: timers, daemons and indexes write to every object or start
in quadratic time. Pods and Deployments come the same way, so that one library watches, with one set of time-outs.
"""

from __future__ import annotations

from typing import Any, Protocol

import kopf

from servingpool.adapters.cluster.cache import ClusterCache
from servingpool.api.group import GROUP, PLURAL, VERSION


class See(Protocol):
    """A way into the cache."""

    def __call__(self, raw: Any, *, gone: bool) -> None:
        """Take in an object as it is now, or that it is gone."""


class Listed(Protocol):
    """Is told that a first list is still coming in."""

    def __call__(self) -> None:
        """An object of a first list was delivered."""


def watch(registry: kopf.OperatorRegistry, cache: ClusterCache, listed: Listed) -> None:
    """Register a handler for each kind that matters."""
    for selector, see in (
        ((GROUP, VERSION, PLURAL), cache.see_pool),
        (("apps", "v1", "deployments"), cache.see_workload),
        (("apps", "v1", "replicasets"), cache.see_replica_set),
        (("", "v1", "pods"), cache.see_pod),
        (("autoscaling", "v2", "horizontalpodautoscalers"), cache.see_autoscaler),
        (("keda.sh", "v1alpha1", "scaledobjects"), cache.see_autoscaler),
    ):
        kopf.on.event(*selector, registry=registry)(_handler(see, listed))


def _handler(see: See, listed: Listed) -> Any:
    async def handler(*, event: Any, **_: Any) -> None:
        if event["type"] is None:
            listed()
        see(event["object"], gone=event["type"] == "DELETED")

    return handler
