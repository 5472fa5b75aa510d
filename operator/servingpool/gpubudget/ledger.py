"""GPUs that the targets of pools hold, over all rounds: as the cluster shows, and requested beyond that."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from servingpool.adapters.cluster.devices import ClaimTemplates, Devices
from servingpool.adapters.cluster.kinds import DEPLOYMENT
from servingpool.adapters.cluster.objects import Pod, TargetKey, Workload
from servingpool.adapters.cluster.scale import Fault, TargetReader
from servingpool.api.gpu_budget import BudgetSpec, GPUBudget
from servingpool.decision.observation import Unknown
from servingpool.gpubudget.holding import Holding
from servingpool.reconcile.keep.orders import Orders

SCHEDULED_WITHIN = 60.0
"""Seconds after its creation for which a pod without a node counts as a pod that will get a node: schedulers take
less."""
NOTHING = frozenset({Fault.UNKNOWN_KIND, Fault.NO_SCALE, Fault.NO_TARGET})
"""Faults of targets that have no pods."""
IMPLICIT = "deviceclass.resource.kubernetes.io/"
"""Begins the extended resource by which a pod asks for devices of a class without a claim of its own (DRA)."""


@dataclass(frozen=True, slots=True)
class Held:
    """A target under a budget."""

    gpus: int
    """GPUs that the target's pods hold."""
    each: int
    """GPUs of a replica."""
    ordered: int
    made: tuple[float, ...] = ()
    """Unix times in seconds of the creation of each replica that has a node, or was just made."""
    refused: str | None = None
    """Why requested replicas hold nothing; None where each has a pod, or is about to get one."""


class Holdings:
    """GPUs that each target holds. They begin with the cluster's pods, as after a change of the leader."""

    def __init__(self, targets: TargetReader, templates: ClaimTemplates, orders: Orders) -> None:
        self._targets, self._cache, self._templates, self._orders = targets, targets.cache, templates, orders
        self._holdings: dict[tuple[str, TargetKey], Holding] = {}
        """Holdings by budget and target: each budget counts its own GPUs."""

    def held(self, key: TargetKey, stated: int | None, budget: GPUBudget, now: float) -> Held | Unknown:
        """GPUs of a budget that a target holds.

        `stated`: GPUs of a replica, as the pool says. `now` is Unix time in seconds.
        """
        known_as = budget.metadata.name, key
        workload, before = self._cache.workload(key), self._holdings.get(known_as, Holding())
        namespace, spec = key.namespace, budget.spec

        def runs(uid: str) -> bool:
            return self._cache.runs(namespace, uid, now)

        if workload is None:
            fault = self._targets.fault(key)
            if fault.fault not in NOTHING:
                return Unknown(f"its target cannot be read: {fault.detail or fault.fault.value}")
            gone = before.gone(runs)
            self._remember(known_as, gone)
            return Held(gone.gpus, 0, 0)
        each = self.of_replica(workload, stated, spec)
        if isinstance(each, Unknown):
            return each

        def gpus(pod: Pod) -> int | Unknown:
            if _elsewhere(pod.nodes, spec):
                return 0
            return self._asked(namespace, pod.devices, spec)

        replicas = self._cache.replicas(workload)
        standing = [{pod.uid: gpus(pod) for pod in pods} for pods in replicas]
        draining = {pod.uid: gpus(pod) for pod in self._cache.draining(workload) if runs(pod.uid)}
        known: list[dict[str, int]] = []
        for pods in (*standing, draining):
            unknown = next((found for found in pods.values() if isinstance(found, Unknown)), None)
            if unknown is not None:
                return unknown
            known.append({uid: found for uid, found in pods.items() if not isinstance(found, Unknown)})
        if workload.devices is None and replicas:
            each = max(sum(pods.values()) for pods in known[:-1])
        sent = self._orders.most(workload, now)
        ordered = max(workload.replicas, sent)
        seen = before.seen(ordered, known[:-1], each, workload.size, runs, known[-1], sent, now)
        self._remember(known_as, seen)
        waits = workload.in_turn and any(pod.ready_since is None for pods in replicas for pod in pods)
        why = f"{ordered - seen.ordered} of its {ordered} replicas have no pod"
        refused = None if waits or seen.ordered == ordered else why
        made = tuple(pods[0].created_at for pods in self._placed(workload, now))
        return Held(seen.gpus, each, ordered, made, refused)

    def assumed(self, key: TargetKey, each: int, budget: GPUBudget, now: float) -> Held:
        """GPUs that a target is assumed to hold while they are unknown: those of its replicas that have a node.

        A replica counts as `each`, and no less than what its pods were known to hold.
        """
        workload = self._cache.workload(key)
        before = self._holdings.get((budget.metadata.name, key), Holding())
        if workload is None:
            return Held(before.gone(lambda uid: self._cache.runs(key.namespace, uid, now)).gpus, each, 0)
        placed, of_pod = self._placed(workload, now), math.ceil(each / workload.size)
        standing = sum(max(each, sum(before.pods.get(pod.uid, 0) for pod in pods)) for pods in placed)
        going = sum(self._cache.runs(key.namespace, pod.uid, now) for pod in self._cache.draining(workload))
        return Held(standing + going * of_pod, each, len(placed), tuple(pods[0].created_at for pods in placed))

    def _placed(self, workload: Workload, now: float) -> list[Sequence[Pod]]:
        """Replicas that have a node, or were just made."""
        return [
            pods
            for pods in self._cache.replicas(workload)
            if any(pod.placed or now - pod.created_at < SCHEDULED_WITHIN for pod in pods)
        ]

    def leaving(self, budget: str, key: TargetKey, now: float) -> int:
        """GPUs of a target's pods that end, though its pool has left the budget. Other pods go with the pool."""
        # Pods of a Deployment that was deleted are not marked at once. Other kinds are not read without a pool.
        deleted = key.sort == DEPLOYMENT and self._cache.workload(key) is None
        ends = self._cache.runs if deleted else self._cache.drains
        gone = self._holdings.get((budget, key), Holding()).gone(lambda uid: ends(key.namespace, uid, now))
        if not gone.pods:
            self._holdings.pop((budget, key), None)
        return gone.gpus

    def not_ending(self, key: TargetKey, now: float) -> list[str]:
        """Pods of a target that their nodes should have ended long ago, and that therefore hold nothing."""
        workload = self._cache.workload(key)
        pods = () if workload is None else self._cache.draining(workload)
        return sorted(
            f"{key.namespace}/{pod.name}" for pod in pods if not self._cache.runs(key.namespace, pod.uid, now)
        )

    def keep(self, budgets: Container[str]) -> None:
        """Forget holdings of any other budget."""
        self._holdings = {known_as: each for known_as, each in self._holdings.items() if known_as[0] in budgets}

    def of_replica(self, workload: Workload, stated: int | None, budget: BudgetSpec) -> int | Unknown:
        """GPUs of a replica; 0 where it uses none of the budget's.

        What its pods ask for counts. `stated` could be any number, so it counts only where no pod template is known,
        and only until a pod stands.
        """
        if workload.nodes and all(_elsewhere(nodes, budget) for nodes in workload.nodes):
            return 0
        if workload.devices is None:
            return stated or Unknown("neither its pods nor targets[].gpusPerReplica tell them")
        return self._asked(workload.key.namespace, workload.devices, budget)

    def _asked(self, namespace: str, devices: Devices, budget: BudgetSpec) -> int | Unknown:
        claimed: int | Unknown = 0
        if devices.templates or devices.shared is not None:
            claimed = self._templates.count(namespace, devices, budget.device_class_name)
        amounts = [claimed, *map(devices.amount, (budget.resource_name, f"{IMPLICIT}{budget.device_class_name}"))]
        unknown = next((one for one in amounts if isinstance(one, Unknown)), None)
        return sum(one for one in amounts if not isinstance(one, Unknown)) if unknown is None else unknown

    def _remember(self, key: tuple[str, TargetKey], holding: Holding) -> None:
        if holding.pods or holding.ordered or holding.leaving:
            self._holdings[key] = holding
        else:
            self._holdings.pop(key, None)


def _elsewhere(nodes: Mapping[str, str], budget: BudgetSpec) -> bool:
    """Whether a pod with this node selector cannot land on a node of the budget."""
    return any(nodes.get(key, value) != value for key, value in budget.node_selector.items())
