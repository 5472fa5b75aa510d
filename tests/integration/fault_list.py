"""Faults that are played before a running operator: what breaks and heals, and what the operator tells of it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

from aiohttp import web

from servingpool.adapters.cluster.objects import FIELD_MANAGER
from servingpool_lab.processes import SupervisedProcess, wait_until

from .fault_proxy import reset
from .fault_stage import GROWING, NEED, STEADY, Fault, Stage
from .operators import PATIENCE

WRITES = 500
"""More than an API server has within the minute in which the operator compares."""


def is_scale(request: web.BaseRequest) -> bool:
    return request.method == "PATCH" and request.path.endswith("/scale")


@contextlib.contextmanager
def killed_amid_a_patch(stage: Stage) -> Iterator[None]:
    """The order is carried out, and the operator is gone before it has the answer."""
    pid = stage.operator.process.pid
    assert pid is not None

    async def rule(request: web.BaseRequest, body: bytes) -> web.StreamResponse | None:
        if not is_scale(request):
            return None
        await stage.api.ask(request, body)
        os.kill(pid, signal.SIGKILL)
        return reset(request)

    with stage.api.breaking(rule, cut=False):
        yield
        wait_until(lambda: not stage.operator.process.running, PATIENCE, "it is killed")


def remembered(stage: Stage) -> bool:
    """Whether the order is in the status, as the operator's own though nobody had the answer."""
    changes = stage.cluster.status(GROWING).get("history", [])
    return any(one["to"] == 2 and one["by"] == FIELD_MANAGER and stage.since(one["at"]) for one in changes)


@contextlib.contextmanager
def half_evicted(stage: Stage) -> Iterator[None]:
    """One pod of `steady` and the one of `growing`, as a drain of their node does it.

    The kubelets stand still meanwhile: they replace a pod faster than an operator on a busy machine looks.
    """
    kubelets = of_plane(stage, "kwok").pid
    assert kubelets is not None
    os.kill(kubelets, signal.SIGSTOP)
    try:
        for name in (STEADY, GROWING):
            pod = min(stage.cluster.ready(name))
            path = f"/api/v1/namespaces/{stage.cluster.namespace}/pods/{pod}/eviction"
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
            stage.plane.client.create(path, eviction)
        yield
    finally:
        os.kill(kubelets, signal.SIGCONT)


QUICK = [
    Fault("SIGKILL between patch and status", killed_amid_a_patch, remembered, amid=False),
    Fault(
        "half of the fleet evicted",
        half_evicted,
        lambda stage: stage.cluster.status(STEADY)["fleet"] != f"{NEED}/{NEED}/{NEED}",
    ),
]
"""Those of `make test`."""


def of_plane(stage: Stage, name: str) -> SupervisedProcess:
    """A part of the control plane."""
    return next(one for one in stage.plane._group._processes if one.name == name)


def leads(stage: Stage) -> bool:
    with contextlib.suppress(OSError):
        return stage.operator.figure("servingpool_leader") == 1
    return False


@contextlib.contextmanager
def restored(stage: Stage) -> Iterator[None]:
    """etcd is put back to what it was some minutes' writes ago, and all but the operator are started again."""
    etcd, kept = of_plane(stage, "etcd"), stage.directory / "kept"
    data = stage.plane.directory / "etcd"
    of_plane(stage, "kube-apiserver")._ready_timeout_seconds = PATIENCE

    def swap(source: Path, to: Path) -> None:
        stage.plane.stop_apiserver()
        etcd.stop()
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(source, to)
        etcd.start().wait_ready()
        stage.plane.start_apiserver()

    swap(data, kept)
    wait_until(stage.well, PATIENCE, "the operator goes on")
    for number in range(WRITES):
        annotation = {"metadata": {"annotations": {"example.com/write": str(number)}}}
        stage.plane.client.patch(stage.cluster.path(STEADY), annotation)
    # Seen only by a watch that is open again, and for such alone the state is an older one afterwards.
    spec = {"spec": {"behavior": {"scaleDownWindow": "2m"}}}
    seen = stage.plane.client.patch(stage.cluster.path(STEADY), spec)["metadata"]["generation"]
    wait_until(lambda: stage.cluster.status(STEADY)["observedGeneration"] == seen, PATIENCE, "it watches again")
    wait_until(lambda: leads(stage), PATIENCE, "it leads")
    others = [of_plane(stage, name) for name in ("kube-controller-manager", "kube-scheduler", "kwok")]
    stage.prometheus.stop()
    for part in others:
        part.stop()
    swap(kept, data)
    for part in others:
        part.start().wait_ready()
    stage.prometheus.start()
    stage.forget_orders()
    yield


LONG = [
    Fault(
        "API server with an older resourceVersion", restored, lambda stage: stage.logged("The API server was restored")
    )
]
"""That of `make faults` alone."""
