"""Which gateway a pool is behind, and what is asked of it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from servingpool.adapters.cluster.names import pods_of
from servingpool.adapters.prometheus import Asked, BackendConfig, PodKey, ReadRequest, Share
from servingpool.api.serving_pool import ServingPool
from servingpool.api.spec import Gateway, MeasuredAt

GatewayShare = Share
"""Gateway and extra labels."""


@dataclass(frozen=True, slots=True)
class OwnGateway:
    """The gateway in front of one pool."""

    name: str
    namespace: str
    """Of the gateway's pods."""
    workload: str | None
    """None: all gateways of that name in the namespace."""

    def pods(self, samples: Iterable[PodKey]) -> list[PodKey]:
        """Those of these pods that are the gateway's, in order."""
        name = self.workload
        own = re.compile(".*" if name is None else rf"{pods_of(name)}|{re.escape(name)}-[0-9]+").fullmatch
        return sorted((where, pod) for where, pod in samples if where == self.namespace and own(pod))

    @property
    def ambiguous(self) -> str:
        """What to do where it does not name the model, and no workload is given."""
        return f"{self.name} does not name the model in its metrics: set spec.metrics.gateway.workload"

    @property
    def unseen(self) -> str:
        """That none of its pods has a series."""
        workload = "" if self.workload is None else f" of workload '{self.workload}'"
        return f"Prometheus has no series of a gateway {self.name}{workload} in namespace {self.namespace}"

    @property
    def text(self) -> str:
        """Its name and workload."""
        return self.name if self.workload is None else f"{self.name}/{self.workload}"

    def without(self, model: str) -> str:
        """That no series of its pods is of this model."""
        return f"gateway {self.name} exports no series of model '{model}'"


def gateway_of(pool: ServingPool, backend: BackendConfig) -> OwnGateway | None:
    """The pool's own gateway, or else its backend's; None where there is none."""
    return gateway_in(pool.metadata.namespace, pool.spec.metrics.gateway, backend)


def gateway_in(namespace: str, own: Gateway | None, backend: BackendConfig) -> OwnGateway | None:
    """The same for any pool of the namespace."""
    shared = backend.gateway
    if own is not None:
        return OwnGateway(own.name, namespace, own.workload)
    if shared is not None:
        return OwnGateway(shared.name, shared.namespace or namespace, shared.workload)
    return None


def told_by(pool: ServingPool, backend: BackendConfig) -> bool:
    """Whether its gateway tells this pool of its model: a backend's gateway serves several namespaces."""
    shared = backend.gateway if pool.spec.metrics.gateway is None else None
    return shared is None or shared.tells(pool.spec.model, pool.metadata.namespace)


def gateway_requests(
    pools: Iterable[ServingPool], backend: BackendConfig, metered: Collection[str] = ()
) -> dict[GatewayShare, ReadRequest]:
    """One request for all pools of a backend that share gateway and labels, by that pair."""
    merged: defaultdict[GatewayShare, Asked] = defaultdict(Asked)
    for pool in pools:
        share, own = gateway_share(pool, backend), gateway_of(pool, backend)
        if share is not None and own is not None:
            merged[share].add(own.namespace, bound_of(pool, metered=pool.spec.engine in metered))
    return {share: asked.request(share, gateway=True) for share, asked in merged.items()}


def gateway_share(pool: ServingPool, backend: BackendConfig) -> GatewayShare | None:
    """What it is read together by; None where it has no gateway."""
    own = gateway_of(pool, backend)
    return None if own is None else (own.name, tuple(sorted(pool.spec.metrics.match_labels.items())))


def bound_of(pool: ServingPool, *, metered: bool) -> float | None:
    """Seconds; None where the SLO is not judged at the gateway. Of an engine that is `metered` there, it always is."""
    slo = pool.spec.slo
    return slo.time_to_first_token if metered or slo.measured_at is MeasuredAt.GATEWAY else None
