"""A cluster and a Prometheus of a few lines, around the real loop, on virtual time."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from servingpool.adapters.cluster.cache import ClusterCache
from servingpool.adapters.cluster.devices import ClaimTemplates
from servingpool.adapters.cluster.errors import Conflict, NotFound
from servingpool.adapters.cluster.objects import DELETION_COST, FIELD_MANAGER, Key, TargetKey, Workload
from servingpool.adapters.cluster.scale import TargetReader
from servingpool.adapters.prometheus.backend_config import BackendConfig
from servingpool.adapters.prometheus.diagnosis import Missing, PodKey
from servingpool.adapters.prometheus.rows import Unread
from servingpool.adapters.prometheus.samples import FleetReading, NotAsked, PodSamples, ReadRequest, TooLarge
from servingpool.decision.decision import Decision
from servingpool.decision.observation import Observation, Reading, ReplicaMetrics, TimeLeft, Unknown
from servingpool.gpubudget.budgets import Budgets
from servingpool.gpubudget.report import BudgetReporter
from servingpool.loop.backfill import Backfill
from servingpool.loop.reconciler import All, Reconciler, Share, Tick
from servingpool.reconcile.act import Actor
from servingpool.reconcile.collect.readings import Readings
from servingpool.reconcile.config import Price
from servingpool.reconcile.keep.orders import Ledger
from servingpool.reconcile.keep.state import PoolState
from servingpool.reconcile.plan.pool_plan import PoolPlan
from servingpool.status.report import Reporter

from ..adapters.cluster import virtual_time  # noqa: TID252, tests are no package of an installed name
from ..decision.world import START, Engine  # noqa: TID252
from .replicas_field import ReplicasField

TICK = 15.0
REVISION = "7c9f"
DRAWN = str.maketrans("0123456789", "bcdfghjklm")
Status = dict[str, Any]


CORDONED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "3 nodes are cordoned."}


def pod(service: str, number: int) -> str:
    """Its name, as a ReplicaSet makes it."""
    return f"{service}-{REVISION}-{f'{number:05}'.translate(DRAWN)}"


def stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class Writes:
    """What was written, and what the API server refuses."""

    scales: list[tuple[Key, int, int]] = field(default_factory=list)
    """Target, replicas before, replicas after."""
    at: list[float] = field(default_factory=list)
    """When that was."""
    statuses: list[tuple[Key, Status]] = field(default_factory=list)
    events: list[tuple[Key, str, str, str]] = field(default_factory=list)
    """Pool, Normal or Warning, reason, message."""
    costs: list[tuple[str, int | None]] = field(default_factory=list)
    """Pod, cost."""
    order: list[str] = field(default_factory=list)
    """Kinds of writes to the workload, in order: `cost pod`, `clear pod`, `scale 5 -> 3`."""
    refuse: dict[str, Exception] = field(default_factory=dict)
    """By kind: scale, cost, status, event."""

    def count(self) -> int:
        return len(self.scales) + len(self.statuses) + len(self.events) + len(self.costs)

    def reasons(self, pool: str) -> list[str]:
        return [reason for key, _, reason, _ in self.events if key[1] == pool]


@dataclass
class Prometheus:
    """`reconcile.readings.Backend`. `silent` is why it does not answer."""

    config: BackendConfig
    world: FakeCluster
    silent: str | None = None
    busy: bool = False
    """It has other queries to answer."""
    broken: Exception | None = None
    """A defect of ours while it is read."""
    past: list[tuple[float, PodSamples]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    spans: list[tuple[float, float]] = field(default_factory=list)
    """Of the past that was asked for: from, to."""
    requests: list[ReadRequest] = field(default_factory=list)
    """For the past."""
    scaled_before: list[int] = field(default_factory=list)
    """How many scale writes there were when the past was asked for."""
    takes: float = 0.0
    """Seconds until it answers about the present."""
    slow: float = 0.0
    """Seconds that an answer about the past takes."""
    poison: set[str] = field(default_factory=set)
    """Models whose past cannot be read."""
    huge: set[str] = field(default_factory=set)
    """Models whose past is more than is taken."""
    gateways: PodSamples | Unknown = field(default_factory=dict)
    """Samples of gateways' pods."""
    why: Missing | None = None
    """Why pods have no sample, said of those that a reading is to explain."""
    explained: list[set[str]] = field(default_factory=list)
    """Pods that the readings were to explain."""
    native: set[PodKey] = field(default_factory=set)
    """Pods whose histograms are stored as native ones alone."""
    unread: Unread = field(default_factory=Unread)
    """What it answered that cannot be read."""
    backlog: Reading = 0.0
    """What the query on a broker's backlog returns."""
    left: TimeLeft = ()
    """What the query on its time left returns."""

    async def number(self, query: str) -> Reading:
        self.asked.append(query)
        return self.backlog

    async def time_left(self, query: str, scale: float) -> TimeLeft:
        self.asked.append(f"{query} / {scale:g}")
        return self.left

    async def read(self, request: ReadRequest, now: float) -> FleetReading | Unknown:
        if request.gateway:
            self.asked.append(f"gateway {request.engine}")
            if isinstance(self.gateways, Unknown):
                return self.gateways
            causes = {} if self.why is None else dict.fromkeys(request.explain, self.why)
            return FleetReading(at=now, samples=self.gateways, stale={}, queries=1, causes=causes)
        self.asked.append("read")
        await asyncio.sleep(self.takes)
        if self.broken is not None:
            raise self.broken
        if self.busy:
            return NotAsked("Prometheus backend 'default' was busy with other queries for 10 s")
        if self.silent is not None:
            return Unknown(self.silent)
        self.explained.append({pod for _, pod in request.explain})
        causes = {} if self.why is None else dict.fromkeys(request.explain, self.why)
        told: dict[str, Any] = {"native": frozenset(self.native), "unread": self.unread}
        return FleetReading(at=now, samples=self.world.samples(), stale={}, queries=1, causes=causes, **told)

    async def history(
        self,
        request: ReadRequest,
        *,
        start: float,
        end: float,
        step: float,
        most_samples: int,
        namespaces: Sequence[str],
    ) -> Sequence[tuple[float, PodSamples]] | Unknown:
        self.asked.append("history")
        self.requests.append(request)
        self.spans.append((start, end))
        self.scaled_before.append(len(self.world.writes.scales))
        await asyncio.sleep(self.slow)
        if self.huge & request.models:
            return TooLarge("more pages than are taken")
        if self.poison & request.models:
            return Unknown("422")
        if self.silent is not None:
            return Unknown(self.silent)
        found = [(at, _asked_for(pages, request, namespaces)) for at, pages in self.past if start <= at <= end]
        if sum(len(pages) for _, pages in found) > most_samples:
            return TooLarge(f"more than {most_samples} pages")
        return found


def _asked_for(pages: PodSamples, request: ReadRequest, namespaces: Sequence[str]) -> PodSamples:
    return {
        (namespace, name): models
        for (namespace, name), models in pages.items()
        if namespace in namespaces
        and (not request.pods or re.fullmatch(request.pods, name))
        and (not request.models or request.models & models.keys())
    }


@dataclass
class Service:
    """A Deployment and the engines of its pods."""

    name: str
    model: str
    rate: float
    engines: list[Engine]
    orders: list[float] = field(default_factory=list)
    """When each pod that is not Ready was created."""
    unschedulable: bool = False
    start: float = 100.0
    """Seconds from a pod's creation to Ready."""
    next: int = 0
    args: tuple[str, ...] = ("--shutdown-timeout=120",)
    spec: dict[str, Any] = field(default_factory=dict)
    """Of its pods, as shown last."""
    costs: dict[str, tuple[str, bool]] = field(default_factory=dict)
    """Deletion costs by pod, and whether they are ours."""
    number: ReplicasField = field(default_factory=lambda: ReplicasField(1, "kubectl-create", 0.0))
    """Its `spec.replicas`, and whose it is."""
    quota: float = math.inf
    """Pods that may exist; `admit` makes the others once it has risen."""
    unmade: int = 0
    """Replicas that are ordered and have no pod, because of the quota."""
    ending: bool = False
    """It is being deleted."""

    @property
    def set_by(self) -> str:
        """Who owns `spec.replicas`; empty where nobody does."""
        return next((manager for manager, _, _ in self.number.owners), "")

    @property
    def replicas(self) -> int:
        return len(self.engines) + len(self.orders) + self.unmade

    def place(self, now: float) -> None:
        """Pods for all replicas, as far as the quota goes."""
        made = min(self.unmade, max(0, self.quota - len(self.engines) - len(self.orders)))
        self.unmade -= int(made)
        self.orders += [now] * int(made)


class FakeCluster:
    """`step` serves for 15 s, lets pods come up, and gives the loop its turn."""

    def __init__(
        self,
        *,
        namespaces: Collection[str] = ("*",),
        history: float = 0.0,
        gateway: Any = None,
        deletion_costs: bool = True,
        prices: Mapping[str, Price] | None = None,
    ) -> None:
        self.now = START
        self.leading = True
        self.share: Share = All(self._leads)
        self.cache = ClusterCache()
        self.writes = Writes()
        self.services: dict[str, Service] = {}
        self.hidden: set[str] = set()
        """Pods that are not scraped."""
        self.exports: Callable[[ReplicaMetrics], ReplicaMetrics] = lambda sample: sample
        """What a pod exports in place of its engine's sample."""
        self.drain = False
        """Removed pods stay until they are `drained`."""
        self.draining: dict[str, list[str]] = {}
        """Pods that are being deleted, by service."""
        self.grace = 3600
        """Seconds that removed pods are given, after which their node would have killed them."""
        self.claims: dict[str, list[dict[str, str]]] = {}
        """ResourceClaims of the pods, in place of limits, by service."""
        self.device = "nvidia.com/gpu"
        """Of which each pod asks for four."""
        self.nodes: dict[str, dict[str, str]] = {}
        """Node selectors of the pods, by service."""
        self.gated: set[str] = set()
        """Services whose pods a scheduling gate holds."""
        config = BackendConfig(url="http://prometheus:9090", namespaces=tuple(namespaces), gateway=gateway)
        self.prometheus = Prometheus(config, self)
        self.backends = {"default": self.prometheus}
        self._history, self._deletion_costs = history, deletion_costs
        self.prices = prices or {}
        """Hosted prices of the operator's configuration, known from the next start on."""
        self._version = 0
        self.api: Any = None
        """What the operator asks; None for this cluster itself, without HTTP."""
        self.restart()

    def restart(self) -> None:
        """A new process: all that it knew is gone, and the watches bring the cluster again."""
        api: Any = self if self.api is None else self.api
        self.actor = Actor(api, self.cache, deletion_costs=self._deletion_costs)
        self.reporter = Reporter(api, self.cache)
        backfill = Backfill(self.backends, history=self._history)
        targets = TargetReader(api, self.cache, self._time)
        self.budgets = Budgets(targets, ClaimTemplates(api))
        self.loop = Reconciler(
            targets,
            Readings(self.backends),
            backfill,
            self.actor,
            self.reporter,
            share=self.share,
            interval=TICK,
            prices=self.prices,
            budgets=BudgetReporter(self.budgets, api),
        )

    # Methods, not functions of this scope: a copy of the world (`kept`) has them of its own.
    def _time(self) -> float:
        return self.now

    def _leads(self) -> bool:
        return self.leading

    @property
    def failures(self) -> dict[str, int]:
        """Writes that failed, by kind."""
        return self.actor.failures | self.reporter.failures

    def backend(self, name: str) -> Prometheus:
        """Another Prometheus, known from the next start on."""
        config = self.prometheus.config.model_copy(update={"name": name})
        self.backends[name] = Prometheus(config, self)
        return self.backends[name]

    def serve(self, name: str = "vllm", *, replicas: int = 2, rate: float = 2.0, model: str = "llama") -> Service:
        engines = [Engine(pod(name, number), self.now - 3600.0) for number in range(replicas)]
        self.services[name] = Service(name, model, rate, engines, next=replicas)
        self.services[name].number = ReplicasField(replicas, "kubectl-create", 0.0)
        owner = [{"kind": "Deployment", "uid": f"d-{name}", "controller": True}]
        meta = {"namespace": "chat", "name": f"{name}-{REVISION}", "uid": f"rs-{name}", "ownerReferences": owner}
        self.cache.see_replica_set({"metadata": meta}, gone=False)
        self.show(name)
        return self.services[name]

    def pool(self, name: str = "pool", *, target: str = "vllm", created: float = START, **spec: Any) -> None:
        """Add or change a pool. What it was told in its status stays."""
        before = self.cache.pools.get(("chat", name), {})
        self._version += 1
        meta = {
            "namespace": "chat",
            "name": name,
            "uid": f"uid-{name}",
            "generation": self._version,
            "resourceVersion": str(self._version),
            "creationTimestamp": stamp(created),
        }
        wanted = {
            "model": "llama",
            "slo": {"timeToFirstToken": "2s", "timePerOutputToken": "100ms"},
            "targets": [{"name": target, "min": 1, "max": 10}],
            **spec,
        }
        wanted = {name: given for name, given in wanted.items() if given is not None}
        self.cache.see_pool({"metadata": meta, "spec": wanted, "status": before.get("status", {})}, gone=False)

    def delete(self, name: str = "pool") -> None:
        self.cache.see_pool(self.cache.pools["chat", name], gone=True)

    def store(self, name: str = "pool", *, status: Status | None = None, **meta: Any) -> None:
        """The API server shows the pool with this status, or the one that it has, and these metadata."""
        raw = self.cache.pools["chat", name]
        self._version += 1
        meta = {**raw["metadata"], "resourceVersion": str(self._version), **meta}
        shown = raw.get("status", {}) if status is None else status
        self.cache.see_pool({**raw, "metadata": meta, "status": shown}, gone=False)

    def autoscaler(
        self, kind: str, target: str = "vllm", *, name: str = "x", of: str = "Deployment", gone: bool = False
    ) -> None:
        """It comes or goes; it names a target of this kind."""
        meta = {"namespace": "chat", "name": name, "uid": name}
        raw = {"kind": kind, "metadata": meta, "spec": {"scaleTargetRef": {"kind": of, "name": target}}}
        self.cache.see_autoscaler(raw, gone=gone)

    def rollout(self, name: str = "vllm", *, over: bool = False) -> None:
        """A pod of a new revision stands, which is not Ready; or it is gone again."""
        owner = [{"kind": "Deployment", "uid": f"d-{name}", "controller": True}]
        revision = {"namespace": "chat", "name": "rs-new", "uid": "rs-new", "ownerReferences": owner}
        self.cache.see_replica_set({"metadata": revision}, gone=False)
        owner = [{"kind": "ReplicaSet", "uid": "rs-new", "controller": True}]
        young = {"namespace": "chat", "name": "new-1", "uid": "new-1", "ownerReferences": owner}
        young |= {"creationTimestamp": stamp(self.now)}
        self.cache.see_pod({"metadata": young, "status": {"conditions": []}}, gone=over)

    def show(self, name: str) -> None:
        """The Deployment and its pods, as the watches bring them."""
        service = self.services[name]
        container = {
            "name": "vllm",
            "image": "vllm/vllm-openai:v0.32.0",
            "args": list(service.args),
            "lifecycle": {"preStop": {"sleep": {"seconds": 15}}},
            "resources": {} if name in self.claims else {"limits": {self.device: "4"}},
        }
        before = service.spec
        service.spec = {"terminationGracePeriodSeconds": 150, "containers": [container]}
        service.spec |= {"resourceClaims": self.claims[name]} if name in self.claims else {}
        service.spec |= {"nodeSelector": self.nodes[name]} if name in self.nodes else {}
        service.number.generation += service.spec != before  # the API server counts each change of a spec
        template = {"spec": service.spec}
        spec = {"replicas": service.replicas, "template": template}
        meta: dict[str, Any] = {"namespace": "chat", "name": name, "uid": f"d-{name}"}
        meta |= {"managedFields": service.number.managed_fields(), "generation": service.number.generation}
        meta |= {"deletionTimestamp": stamp(self.now)} if service.ending else {}
        conditions = []
        if service.unmade:
            said = f'pods "{name}-{REVISION}-x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2'
            conditions = [{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": said}]
        self.cache.see_workload({"metadata": meta, "spec": spec, "status": {"conditions": conditions}}, gone=False)
        for engine in service.engines:
            self._show_pod(service, engine.name, engine.ready_at - 100.0, engine.ready_at)
        for number, created in enumerate(service.orders):
            self._show_pod(service, pod(name, service.next + number), created, None)

    def _show_pod(self, service: Service, pod: str, created: float, ready: float | None) -> None:
        owner = [{"kind": "ReplicaSet", "uid": f"rs-{service.name}", "controller": True}]
        meta: dict[str, Any] = {
            "namespace": "chat",
            "name": pod,
            "uid": pod,
            "creationTimestamp": stamp(created),
            "ownerReferences": owner,
        }
        if pod in service.costs:
            value, ours = service.costs[pod]
            fields: dict[str, Any] = {"f:metadata": {"f:annotations": {f"f:{DELETION_COST}": {}}}}
            manager = {"manager": FIELD_MANAGER, "operation": "Apply", "fieldsV1": fields}
            meta |= {"annotations": {DELETION_COST: value}, "managedFields": [manager] if ours else []}
        conditions = [{"type": "Ready", "status": "False"}]
        if ready is not None:
            conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": stamp(ready)}]
        elif service.name in self.gated:
            conditions.append({"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"})
        elif service.unschedulable:
            conditions.append(CORDONED)
        waits = ready is None and (service.name in self.gated or service.unschedulable)
        spec = service.spec if waits else {**service.spec, "nodeName": "gpu-0"}
        shown = {"metadata": meta, "spec": spec, "status": {"conditions": conditions}}
        self.cache.see_pod(shown, gone=False)

    def drained(self, name: str) -> None:
        """The pods of a service that drain have ended."""
        for each in self.draining.pop(name, ()):
            self.cache.see_pod({"metadata": {"namespace": "chat", "name": each, "uid": each}}, gone=True)

    def set_replicas(self, name: str, replicas: int, by: str = "kubectl") -> None:
        """Somebody, or the operator, changes the Deployment. Who goes is chosen as the ReplicaSet controller does."""
        service = self.services[name]
        service.number.write(replicas, by, self.now)
        while service.replicas > replicas:
            if service.unmade:
                service.unmade -= 1
                continue
            if service.orders:
                victim = pod(name, service.next + len(service.orders) - 1)
                service.orders.pop()
            else:
                gone = min(reversed(service.engines), key=lambda engine: int(service.costs.get(engine.name, ("0",))[0]))
                service.engines.remove(gone)
                victim = gone.name
            service.costs.pop(victim, None)
            if self.drain:
                self.draining.setdefault(name, []).append(victim)
                owner = [{"kind": "ReplicaSet", "uid": f"rs-{name}", "controller": True}]
                ends: dict[str, Any] = {
                    "creationTimestamp": stamp(self.now - 600.0),
                    "deletionTimestamp": stamp(self.now + self.grace),
                }
                ends["deletionGracePeriodSeconds"] = self.grace
                going = {"namespace": "chat", "name": victim, "uid": victim, "ownerReferences": owner, **ends}
                self.cache.see_pod({"metadata": going, "spec": service.spec}, gone=False)
            else:
                self.cache.see_pod({"metadata": {"namespace": "chat", "name": victim, "uid": victim}}, gone=True)
        service.unmade += replicas - service.replicas
        service.place(self.now)
        self.show(name)

    def lose_nodes(self, target: str) -> None:
        """The nodes of a target go: its pods are made anew, and find none."""
        service = self.services[target]
        for engine in service.engines:
            self.cache.see_pod({"metadata": {"namespace": "chat", "name": engine.name, "uid": engine.name}}, gone=True)
        service.orders += [self.now] * len(service.engines)
        service.engines.clear()
        service.unschedulable = True
        self.show(target)

    def admit(self, name: str, quota: float = math.inf) -> None:
        """The quota has changed, and the controller has tried again."""
        self.services[name].quota = quota
        self.services[name].place(self.now)

    def samples(self) -> dict[tuple[str, str], dict[str, ReplicaMetrics]]:
        return {
            ("chat", engine.name): {service.model: self.exports(engine.page(self.now))}
            for service in self.services.values()
            for engine in service.engines
            if engine.name not in self.hidden
        }

    def step(self, minutes: float = 0.25) -> Tick:
        done = Tick()
        for _ in range(round(minutes * 60 / TICK)):
            self.serve_on()
            done = self.ticked()
        return done

    def ticked(self) -> Tick:
        """The loop's tick. A machine that is busy elsewhere takes none of its time."""
        return virtual_time.run(partial(self.loop.tick, self.now))

    def serve_on(self) -> None:
        """Up to the next tick."""
        for service in self.services.values():
            for engine in service.engines:
                engine.serve(service.rate / max(1, len(service.engines)), TICK, 1000.0, 200.0)
        self.pass_a_tick(self.services.values())

    def pass_a_tick(self, services: Iterable[Service]) -> None:
        """Pods that were ordered long enough ago are Ready after it."""
        self.now += TICK
        for service in services:
            while not service.unschedulable and service.orders and self.now >= service.orders[0] + service.start:
                service.orders.pop(0)
                service.engines.append(Engine(pod(service.name, service.next), self.now))
                service.next += 1
            self.show(service.name)

    def remember(self, minutes: int) -> None:
        """Prometheus has seen the services at their rates for so long already."""
        self.now -= minutes * 60.0
        for _ in range(minutes):
            for service in self.services.values():
                for engine in service.engines:
                    engine.serve(service.rate / len(service.engines), 60.0, 1000.0, 200.0)
            self.now += 60.0
            self.prometheus.past.append((self.now, self.samples()))

    def state(self, name: str = "pool") -> PoolState:
        return self.loop.states["chat", name]

    def target(self, name: str = "vllm", pool: str = "pool") -> Ledger:
        """The ledger of a pool's target."""
        return self.state(pool).targets[TargetKey("chat", name)]

    def plan(self, name: str = "pool") -> PoolPlan:
        """The last one for a pool."""
        found = self.state(name).plan
        assert found is not None
        return found

    def decision(self, name: str = "pool") -> Decision:
        """The last one on a pool."""
        return self.plan(name).decision

    def observation(self, name: str = "pool") -> Observation:
        """What a pool was last decided on."""
        return self.plan(name).seen.observation

    def workload(self, name: str = "vllm") -> Workload:
        """A Deployment as the operator knows it."""
        found = self.cache.workload(TargetKey("chat", name))
        assert found is not None
        return found

    def status(self, name: str = "pool") -> Status:
        """As stored."""
        status: Status = self.cache.pools["chat", name].get("status", {})
        return status

    def condition(self, type_: str, name: str = "pool") -> tuple[str, str]:
        return next(
            ((c["status"], c["reason"]) for c in self.status(name)["conditions"] if c["type"] == type_), ("", "")
        )

    def message(self, type_: str, name: str = "pool") -> str:
        return next(str(c["message"]) for c in self.status(name)["conditions"] if c["type"] == type_)

    async def get(self, path: str, **_: str) -> dict[str, Any]:
        raise NotFound(f"Cannot read {path}: 404 Not Found")

    async def scale(self, target: Workload, replicas: int) -> None:
        if "scale" in self.writes.refuse:
            raise self.writes.refuse["scale"]
        key, current = target.key[:2], target.replicas
        self.writes.scales.append((key, current, replicas))
        self.writes.at.append(self.now)
        self.writes.order.append(f"scale {current} -> {replicas}")
        self.set_replicas(key[1], replicas, by=FIELD_MANAGER)

    async def set_deletion_cost(self, pod: Key, uid: str, cost: int | None) -> None:
        assert uid == pod[1]
        if "cost" in self.writes.refuse:
            raise self.writes.refuse["cost"]
        service = next(each for each in self.services.values() if pod[1].startswith(f"{each.name}-"))
        held = service.costs.get(pod[1])
        if cost is not None and held is not None and not held[1]:
            raise Conflict(f"Cannot set the deletion cost of Pod {'/'.join(pod)}: 409 Conflict")
        self.writes.costs.append((pod[1], cost))
        self.writes.order.append(f"{'clear' if cost is None else 'cost'} {pod[1]}")
        if cost is not None:
            service.costs[pod[1]] = (str(cost), True)
        elif held is not None and held[1]:
            del service.costs[pod[1]]
        self.show(service.name)

    async def write_status(self, pool: Key, changes: Status) -> None:
        if "status" in self.writes.refuse:
            raise self.writes.refuse["status"]
        self.writes.statuses.append((pool, changes))
        raw = self.cache.pools[pool]
        self._version += 1
        meta = {**raw["metadata"], "resourceVersion": str(self._version)}
        self.cache.see_pool({**raw, "metadata": meta, "status": merged(raw.get("status"), changes)}, gone=False)

    async def write_budget_status(self, name: str, changes: Status) -> None:
        raw = self.cache.budgets[name]
        self.cache.see_budget({**raw, "status": merged(raw.get("status"), changes)}, gone=False)

    async def post_event(self, pool: Key, uid: str, *, type_: str, reason: str, message: str) -> None:
        if "event" in self.writes.refuse:
            raise self.writes.refuse["event"]
        assert uid == f"uid-{pool[1]}"
        self.writes.events.append((pool, type_, reason, message))


class DrainsWhatRan(FakeCluster):
    """Pods that never ran do not drain."""

    def set_replicas(self, name: str, replicas: int, by: str = "kubectl") -> None:
        service, drain = self.services[name], self.drain
        self.drain = False
        super().set_replicas(name, max(replicas, len(service.engines)), by)
        self.drain = drain
        super().set_replicas(name, replicas, by)


def merged(before: Any, patch: Any) -> Any:
    """RFC 7386, as an API server applies it."""
    if not isinstance(patch, dict):
        return patch
    result = dict(before) if isinstance(before, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result
