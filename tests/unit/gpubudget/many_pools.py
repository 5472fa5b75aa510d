"""Pools of every kind in one cluster, each with its own clients, and what its pods truly hold of a budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from servingpool.decision.observation import ReplicaMetrics

from ..reconcile.fake_cluster import TICK, DrainsWhatRan, Service  # noqa: TID252
from ..reconcile.role_cluster import serve_role  # noqa: TID252
from .test_budgets import GPUS, budget

ROUTER = ("chat", "router-7c9f-bbbbb")
GATEWAY = {"metrics": {"gateway": {"name": "vllm-router", "workload": "router"}}}
BATCH = {"slo": None, "batch": {"finishWithin": "2h", "backlog": {"query": "sum(queue)"}}}
EACH = 11.0
"""Requests/s that a replica serves at most."""


@dataclass
class Client:
    """What a pool is, and what comes for it."""

    targets: tuple[str, ...]
    least: int
    """Min of each target; 0 for a pool that may sleep."""
    rate: float
    spec: dict[str, Any]
    roles: bool = False
    mode: str = "Auto"
    priority: int = 5
    stated: int | None = None
    """GPUs of a replica, as the pool says."""
    left: float = 0.0
    """Requests of a batch that wait."""


KINDS = {
    "plain": Client(("plain",), 2, 12.0, {}),
    "small": Client(("small",), 1, 6.0, {}),
    "asleep": Client(("asleep",), 0, 6.0, GATEWAY),
    "roles": Client(("prefill", "decode"), 1, 4.0, {}, roles=True),
    "several": Client(("dear", "cheap"), 1, 12.0, {}),
    "batch": Client(("batch",), 0, 0.0, BATCH),
    "rate": Client(("rate",), 1, 12.0, {"slo": None, "throughput": {"outputTokensPerSecond": 4000}}),
}


class ManyPools(DrainsWhatRan):
    """All kinds, after 12 minutes without a budget."""

    def __init__(self) -> None:
        super().__init__()
        self.clients: dict[str, Client] = {}
        self.counts = [0.0, 0.0]
        self.gpus, self.lending, self.floors, self.generation = 0, True, dict[str, int](), 0
        for name in KINDS:
            self.come(name)
        self.step(minutes=12)

    def come(self, name: str, **given: Any) -> None:
        """A pool of this kind comes with its Deployments."""
        kind = KINDS[name]
        self.clients[name] = Client(**{**vars(kind), **given})
        for target in kind.targets:
            self.drained(target)
            self.serve(target, replicas=max(1, kind.least))
        self.tell(name)

    def go(self, name: str) -> None:
        """A pool goes, and its Deployments; pods that drain do so for longer."""
        self.delete(name)
        for target in self.clients.pop(name).targets:
            self.set_replicas(target, 0)
            service = self.services.pop(target)
            meta = {"namespace": "chat", "name": service.name, "uid": f"d-{service.name}"}
            self.cache.see_workload({"metadata": meta}, gone=True)
            if self.claims.pop(target, None) is not None:
                self.drained(target)  # what these pods hold nobody knows

    def restart(self) -> None:
        """A new operator knows no pool that is gone, nor whose budget its last pods are of."""
        for name in self.draining.keys() - self.services.keys():
            self.drained(name)
        super().restart()

    def tell(self, name: str, **changes: Any) -> None:
        """The pool's spec, with these changes of the client."""
        client = self.clients[name]
        for field, value in changes.items():
            setattr(client, field, value)
        targets = [{"name": each, "min": client.least, "max": 10} for each in client.targets]
        for each, role in zip(targets, ("prefill", "decode"), strict=False) if client.roles else ():
            each["role"] = role
        for each, cost in zip(targets, (4, 1), strict=False) if name == "several" else ():
            each["costPerReplicaHour"] = cost
        for each in targets if client.stated is not None else ():
            each["gpusPerReplica"] = client.stated
        self.pool(name, targets=targets, mode=client.mode, priority=client.priority, **client.spec)

    def set_budget(self, **changes: Any) -> None:
        for field, value in changes.items():
            setattr(self, field, value)
        self.generation += 1
        floors = [{"namespace": "chat", "pool": name, "gpus": gpus} for name, gpus in self.floors.items() if gpus]
        budget(self, self.gpus, generation=self.generation, lending=self.lending, floors=floors)

    def serve_on(self) -> None:
        for name, client in self.clients.items():
            services = [self.services[each] for each in client.targets]
            if client.roles:
                for service, output in zip(services, (1.0, 200.0), strict=True):
                    for engine in service.engines:
                        serve_role(engine, client.rate / len(service.engines), 3000.0 * (output == 1.0), output)
                continue
            engines = [engine for service in services for engine in service.engines]
            rate = client.rate
            if name == "batch":
                client.left += rate * TICK
                rate = min(client.left / TICK, EACH * len(engines))
                client.left -= rate * TICK
                self.prometheus.backlog = client.left
            if name == "asleep":
                self.counts[0 if engines else 1] += rate * TICK
                router = ReplicaMetrics(ROUTER[1], self.now, begun=self.counts[0], admission_rejections=self.counts[1])
                self.prometheus.gateways = {ROUTER: {"": router}}
            for engine in engines:
                engine.serve(rate / len(engines), TICK, 1000.0, 200.0)
                if client.least == 0:
                    engine.running = 10.0 if rate else 0.0
        self.pass_a_tick(self.services.values())

    def of(self, name: str) -> list[Service]:
        return [self.services[target] for target in self.clients[name].targets]

    def ordered(self, name: str) -> int:
        """GPUs that the pool's replicas ask for."""
        return sum(self.each(service) * service.replicas for service in self.of(name))

    def stands(self, name: str, first: int = 0) -> int:
        """GPUs of the pool's min that stand, or come; of each target at least so many of the `first` replicas."""
        found = 0
        for service in self.of(name):
            pods = len(service.engines) + (0 if service.unschedulable else len(service.orders))
            found += min(max(first, self.clients[name].least), pods) * self.each(service)
        return found

    def promised(self, name: str) -> int:
        """GPUs that the pool may come to have before anybody's need; the first replica ranks with the mins."""
        least = max(1, self.clients[name].least)
        return max(self.floors.get(name, 0), sum(least * self.each(service) for service in self.of(name)))

    def each(self, service: Service) -> int:
        """GPUs of a pod; none of those that ask for none."""
        return 0 if self.claims.get(service.name) == [] else GPUS

    def blind(self, name: str) -> bool:
        """Whether the pool's GPUs cannot be known."""
        return any(self.claims.get(target) for target in self.clients[name].targets)

    def held(self, name: str, *, idle: bool = True) -> int:
        """GPUs of the pool's pods; without `idle` of those that have a node or may get one."""
        found = 0
        for service in self.of(name):
            waits = 0 if idle or not service.unschedulable else len(service.orders)
            pods = len(service.engines) + len(service.orders) - waits + len(self.draining.get(service.name, ()))
            found += pods * self.each(service)
        return found

    @property
    def orphans(self) -> int:
        """GPUs of pods that drain, whose pool has gone."""
        return GPUS * sum(len(pods) for name, pods in self.draining.items() if name not in self.services)

    def used(self, *, idle: bool = True) -> int:
        return self.orphans + sum(self.held(name, idle=idle) for name in self.clients)
