"""The gateway of a pool, and the queries on it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from servingpool.adapters.cluster.names import pods_of
from servingpool.adapters.prometheus.asked import Asked, Share
from servingpool.adapters.prometheus.backend_config import BackendConfig
from servingpool.adapters.prometheus.diagnosis import PodKey
from servingpool.adapters.prometheus.samples import ReadRequest
from servingpool.api.serving_pool import ServingPool
from servingpool.api.spec import Gateway


@dataclass(frozen=True, slots=True)
class OwnGateway:
    """The gateway in front of a pool."""

    name: str
    namespace: str
    """Namespace of the gateway's pods."""
    workload: str | None
    """Name of the gateway's workload; None: all gateways of that name in the namespace."""
    models: tuple[str, ...] = ()
    """Names that count for the pool: with other ones what was counted is no beginning."""

    def pods(self, samples: Iterable[PodKey]) -> list[PodKey]:
        """Pods of the gateway among these pods, in order."""
        name = self.workload
        own = re.compile(".*" if name is None else rf"{pods_of(name)}|{re.escape(name)}-[0-9]+").fullmatch
        return sorted((where, pod) for where, pod in samples if where == self.namespace and own(pod))

    @property
    def ambiguous(self) -> str:
        """Advice for a gateway that does not name the model and has no workload given."""
        return f"{self.name} does not name the model in its metrics: set spec.metrics.gateway.workload"

    @property
    def unseen(self) -> str:
        """Sentence for a gateway none of whose pods has a series."""
        workload = "" if self.workload is None else f" of workload '{self.workload}'"
        return f"Prometheus has no series of a gateway {self.name}{workload} in namespace {self.namespace}"

    @property
    def text(self) -> str:
        """Name and workload of the gateway."""
        return self.name if self.workload is None else f"{self.name}/{self.workload}"

    def without(self, model: str) -> str:
        """Sentence for a gateway whose pods have no series of this model."""
        return f"gateway {self.name} exports no series of model '{model}'"


def gateway_of(pool: ServingPool, backend: BackendConfig) -> OwnGateway | None:
    """The pool's own gateway, or else its backend's; None where there is none."""
    own = gateway_in(pool.metadata.namespace, pool.spec.metrics.gateway, backend)
    return None if own is None else replace(own, models=(pool.spec.model, *pool.spec.metrics.adapters))


def gateway_in(namespace: str, own: Gateway | None, backend: BackendConfig) -> OwnGateway | None:
    """The gateway of any pool of the namespace."""
    shared = backend.gateway
    if own is not None:
        return OwnGateway(own.name, namespace, own.workload)
    if shared is not None:
        return OwnGateway(shared.name, shared.namespace or namespace, shared.workload)
    return None


def told_by(pool: ServingPool, backend: BackendConfig) -> bool:
    """Whether its gateway tells this pool of its model: a backend's gateway serves several namespaces."""
    shared = backend.gateway if pool.spec.metrics.gateway is None else None
    names = (pool.spec.model, *pool.spec.metrics.adapters)
    return shared is None or all(shared.tells(name, pool.metadata.namespace) for name in names)


def gateway_requests(
    pools: Iterable[ServingPool], backend: BackendConfig, metered: Collection[str] = ()
) -> dict[Share, ReadRequest]:
    """One request for all pools of a backend that share gateway and labels, by that pair."""
    merged: defaultdict[Share, Asked] = defaultdict(Asked)
    for pool in pools:
        share, own = gateway_share(pool, backend), gateway_of(pool, backend)
        if share is not None and own is not None:
            merged[share].add(own.namespace, bound_of(pool, metered=pool.spec.engine in metered))
    return {share: asked.request(share, gateway=True) for share, asked in merged.items()}


def gateway_share(pool: ServingPool, backend: BackendConfig) -> Share | None:
    """Key of pools whose gateways are read together; None for a pool without a gateway."""
    own = gateway_of(pool, backend)
    return None if own is None else (own.name, tuple(sorted(pool.spec.metrics.match_labels.items())))


def bound_of(pool: ServingPool, *, metered: bool) -> float | None:
    """Seconds; None where the SLO is not judged at the gateway. Of an engine that is `metered` there, it always is."""
    slo = pool.spec.slo
    return slo.time_to_first_token if metered or slo.measured_at == "Gateway" else None
