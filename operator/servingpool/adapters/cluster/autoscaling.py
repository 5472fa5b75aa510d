"""Other autoscalers of a workload, and the tools that manage an object: all of it read from the objects alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from servingpool.adapters.cluster.objects import FIELD_MANAGER, Raw, holders

AUTOSCALERS = {
    "scaledobject": ("keda.sh/v1alpha1", "scaledobjects", "ScaledObject"),
    "hpa": ("autoscaling/v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"),
}
"""API group with version, plural and kind."""
PAUSED, PAUSED_REPLICAS = "autoscaling.keda.sh/paused", "autoscaling.keda.sh/paused-replicas"
"""KEDA's annotations. The first ends its scale loop and deletes its HPA, and replicas stay. The second does so too, and
KEDA sets that number of replicas. `paused-scale-in` and `paused-scale-out` keep the HPA, so that it goes on scaling."""
NOT_PAUSED = {"0", "f", "F", "false", "FALSE", "False"}
"""Values that KEDA takes for false. It takes all others for true."""
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
MARKS = (
    ("annotations", "argocd.argoproj.io/tracking-id", "Argo CD application"),
    ("labels", "argocd.argoproj.io/instance", "Argo CD application"),
    ("labels", "kustomize.toolkit.fluxcd.io/name", "Flux Kustomization"),
    ("labels", "helm.toolkit.fluxcd.io/name", "Flux HelmRelease"),
    ("annotations", "meta.helm.sh/release-name", "Helm release"),
)
"""Labels and annotations by which tools mark the objects that they manage, with the tools' names."""
SCALERS = {FIELD_MANAGER, "kube-controller-manager", "keda", "keda-operator", "servingpool-cli"}
"""Field managers that set replicas as autoscalers do."""


def made_by_keda(raw: Raw) -> str | None:
    """Name of the ScaledObject that an HPA was made of; None for a person's own."""
    owners = raw["metadata"].get("ownerReferences", ())
    return next((str(owner["name"]) for owner in owners if owner.get("kind") == "ScaledObject"), None)


def pause_asked(raw: Raw) -> bool:
    """Whether this is a ScaledObject that KEDA is to pause with the replicas that stand."""
    annotations = raw["metadata"].get("annotations") or {}
    asked = PAUSED_REPLICAS not in annotations and annotations.get(PAUSED, "0") not in NOT_PAUSED
    return asked and raw["kind"] == "ScaledObject"


def paused(raw: Raw) -> bool:
    """Whether KEDA has paused this ScaledObject: it sets no replicas. Its HPA may still be there."""
    conditions = {one.get("type"): one.get("status") for one in (raw.get("status") or {}).get("conditions") or ()}
    return pause_asked(raw) and conditions.get("Paused") == "True"


def bounds_of(raw: Raw) -> tuple[int, int]:
    """The min and max replicas of an HPA or a ScaledObject, with Kubernetes' and KEDA's defaults."""
    spec = raw.get("spec", {})
    if raw.get("kind") == "ScaledObject":
        return int(spec.get("minReplicaCount", 0)), int(spec.get("maxReplicaCount", 100))
    return int(spec.get("minReplicas", 1)), int(spec.get("maxReplicas", 1))


def copy_of(raw: Raw) -> dict[str, Any]:
    """Copy that gives an autoscaler back: an HPA's manifest; a ScaledObject's name and pause annotations."""
    meta = raw["metadata"]
    if raw["kind"] == "ScaledObject":
        annotations = meta.get("annotations") or {}
        held = {name: annotations.get(name) for name in (PAUSED, PAUSED_REPLICAS)}
        return {"kind": raw["kind"], "metadata": {"name": meta["name"], "annotations": held}}
    kept = {name: meta[name] for name in ("name", "labels", "annotations") if meta.get(name)}
    return {"apiVersion": AUTOSCALERS["hpa"][0], "kind": raw["kind"], "metadata": kept, "spec": raw["spec"]}


def managers(raw: Raw) -> list[str]:
    """GitOps tools and Helm releases that manage an object, by their marks on it, such as `Helm release 'chat'`."""
    found = []
    for where, mark, name in MARKS:
        value = (raw["metadata"].get(where) or {}).get(mark)
        if value:
            found.append(f"{name} '{str(value).partition(':')[0]}'")
    return list(dict.fromkeys(found))


def manifest_writers(target: Raw, path: Sequence[str]) -> list[str]:
    """Programs whose manifest sets a target's replicas at this path, by field manager: each would set them again.

    Left out are autoscalers, and people who scale, edit or create with kubectl.
    """
    found = [str(each.get("manager")) for each in holders(target["metadata"], *path) if _applies(each)]
    applied = (target["metadata"].get("annotations") or {}).get(LAST_APPLIED)
    if applied is not None and _sets(applied, path):
        found.append("kubectl-client-side-apply")
    return sorted(set(found))


def controller_of(raw: Raw) -> str | None:
    """Kind and name of the controller that makes this object; None where there is none."""
    for owner in raw["metadata"].get("ownerReferences", ()):
        if owner.get("controller"):
            return f"{owner['kind']} '{owner['name']}'"
    return None


def _applies(entry: Raw) -> bool:
    manager, operation = str(entry.get("manager")), entry.get("operation")
    if manager in SCALERS or entry.get("subresource") == "scale":
        return False
    by_hand = manager.startswith("kubectl") and manager != "kubectl-client-side-apply"
    return operation == "Apply" or not by_hand


def _sets(applied: str, path: Sequence[str]) -> bool:
    try:
        held = json.loads(applied)
        for name in path:
            held = held[name]
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
    return True
