"""GPUs that were ordered after each write to a scale, by the API server's audit log alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from servingpool_lab import audit, kwok

SCALE = "deployments/scale"


@dataclass(frozen=True)
class ScaleWrite:
    """A write to a Deployment's scale, and what was ordered once it was answered."""

    at: float
    """Unix time in seconds."""
    user: str
    target: str
    before: int
    after: int
    gpus: int
    """Of all targets: as the budget counts, see `HeldReplicas`."""
    draining: int
    """Of these, GPUs of pods that drain or that are still there although they were ordered away."""


@dataclass(slots=True)
class HeldReplicas:
    """What one Deployment holds, as the budget counts it.

    Pods that load, wait for a node, serve or drain; replicas that were ordered and have no pod yet; and pods that were
    ordered away until they are gone.
    """

    ordered: int = 0
    live: set[str] = field(default_factory=set)
    draining: set[str] = field(default_factory=set)

    @property
    def replicas(self) -> int:
        """All of them."""
        return held_replicas(self.ordered, len(self.live), len(self.draining))


def held_replicas(ordered: int, live: int, draining: int) -> int:
    """Replicas of a Deployment that hold GPUs: of those that are live and those that are ordered, the larger number."""
    return draining + max(ordered, live)


def scale_writes(log: Iterable[audit.Write], gpus: Mapping[str, int]) -> list[ScaleWrite]:
    """Every write to a scale in a log in the order of its answers.

    `gpus`: of a replica, by Deployment; others are left out. The log begins before the Deployments exist and has their
    pods too, see `audit.flags_with_pods`.
    """
    held = {name: HeldReplicas() for name in gpus}
    found = []
    for one in log:
        if one.resource == "pods":
            _note_pod(held, one)
        elif one.replicas is not None and one.name in held:
            before, held[one.name].ordered = held[one.name].ordered, one.replicas
            if one.resource == SCALE:
                total = sum(gpus[name] * each.replicas for name, each in held.items())
                ordered = sum(gpus[name] * each.ordered for name, each in held.items())
                found.append(ScaleWrite(one.seconds, one.user, one.name, before, one.replicas, total, total - ordered))
    return found


def _note_pod(held: Mapping[str, HeldReplicas], one: audit.Write) -> None:
    if one.verb == "create":
        app = kwok.app_of(one.answer)
        if app in held:
            held[app].live.add(one.answer["metadata"]["name"])
        return
    for each in held.values():
        if one.name in each.live | each.draining:
            each.live.discard(one.name)
            if one.gone:
                each.draining.discard(one.name)
            else:
                each.draining.add(one.name)


def over(writes: Iterable[ScaleWrite], budget: int) -> list[ScaleWrite]:
    """Those after which more than the budget was ordered."""
    return [one for one in writes if one.gpus > budget]
