"""A backtest as an indexed Kubernetes Job: each index replays its share of the pools and prints a line for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from servingpool.cli.usage import wrong

NAME = "servingpool-backtest"
SHARDS = 8
"""Indexes where nothing tells how many pools there are."""
AT_ONCE = 8
"""Indexes that run at the same time, at most: each asks Prometheus for a history."""
DROPPED = ("--as-job", "--shards", "--report", "--output", "-o", "--kubeconfig", "--context", "--jobs")
"""Options of the command line that the pods get otherwise; each has a value."""
WORK = "/work"
READ = {
    "apps": (["deployments", "deployments/scale", "statefulsets", "statefulsets/scale"], ["get", "list"]),
    "leaderworkerset.x-k8s.io": (["leaderworkersets", "leaderworkersets/scale"], ["get", "list"]),
    "": (["pods"], ["list"]),
    "autoscaling": (["horizontalpodautoscalers"], ["list"]),
    "keda.sh": (["scaledobjects"], ["list"]),
}
"""By API group what `servingpool record` reads."""


def refuse(**files: object) -> None:
    """End the command where an option names a file: the pods have none of them."""
    for name, given in files.items():
        if given:
            option = "--from" if name == "source" else f"--{name}"
            wrong(f"--as-job cannot be used with {option}: the Job's pods do not have the file")


def manifest(image: str, namespace: str, arguments: Sequence[str], shards: int, *, cluster_wide: bool) -> str:
    """YAML of a ServiceAccount that may read what is recorded, and of the Job. `arguments`: as the user typed them."""
    scope = "Cluster" if cluster_wide else ""
    where = {"name": NAME, "namespace": namespace}
    rules = [{"apiGroups": [group], "resources": kinds, "verbs": verbs} for group, (kinds, verbs) in READ.items()]
    if cluster_wide:
        rules.append({"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]})
    api = "rbac.authorization.k8s.io"
    named = {"name": NAME} if cluster_wide else where
    return yaml.safe_dump_all(
        [
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": where},
            {"apiVersion": f"{api}/v1", "kind": f"{scope}Role", "metadata": named, "rules": rules},
            {
                "apiVersion": f"{api}/v1",
                "kind": f"{scope}RoleBinding",
                "metadata": named,
                "roleRef": {"apiGroup": api, "kind": f"{scope}Role", "name": NAME},
                "subjects": [{"kind": "ServiceAccount", **where}],
            },
            _job(image, where, [*_kept(arguments), "--shards", str(shards), "--output", "lines"], shards),
        ],
        sort_keys=False,
        width=120,
    )


def _job(image: str, where: dict[str, str], arguments: list[str], shards: int) -> dict[str, Any]:
    container = {
        "name": "backtest",
        "image": image,
        "args": arguments,
        "workingDir": WORK,
        "env": [{"name": name, "value": WORK} for name in ("HOME", "MPLCONFIGDIR", "NUMBA_CACHE_DIR")],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "work", "mountPath": WORK}],
    }
    pod = {
        "restartPolicy": "Never",
        "serviceAccountName": NAME,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "fsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": "work", "emptyDir": {"sizeLimit": "4Gi"}}],
    }
    spec = {
        "completionMode": "Indexed",
        "completions": shards,
        "parallelism": min(shards, AT_ONCE),
        "backoffLimitPerIndex": 1,
        "maxFailedIndexes": shards,
        "ttlSecondsAfterFinished": 86_400,
        "template": {"spec": pod},
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": where, "spec": spec}


def _kept(arguments: Sequence[str]) -> list[str]:
    """The command line without the options that the pods get otherwise."""
    kept, rest = [], iter(arguments)
    for one in rest:
        if one in DROPPED:
            next(rest, None)
        elif not one.startswith(tuple(f"{option}=" for option in DROPPED)):
            kept.append(one)
    return kept
