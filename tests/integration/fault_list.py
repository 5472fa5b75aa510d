"""The faults of docs/records/faults.md that are played: what breaks and heals, and what the operator tells of it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from aiohttp import web

from servingpool.adapters.cluster.objects import FIELD_MANAGER
from servingpool_lab.processes import SupervisedProcess, wait_until

from .conftest import own_namespace
from .fault_proxy import reset
from .fault_stage import GROWING, NEED, STEADY, Fault, Stage, served
from .operators import PATIENCE, Cluster, serving_pool

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


@contextlib.contextmanager
def rotated_token(stage: Stage) -> Iterator[None]:
    """Prometheus takes another token than the one that is mounted."""

    async def rule(request: web.BaseRequest, _: bytes) -> web.StreamResponse | None:
        if request.headers.get("Authorization") == "Bearer second":
            return None
        return web.Response(status=401)

    token = stage.directory / "token"
    with stage.metrics.breaking(rule):
        yield
        token.write_text("second")  # as the kubelet renews it; Prometheus goes on refusing the first
        stage.cluster.wait_condition(STEADY, "MetricsAvailable", ("True", "ValidMetrics"))


def rows(change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> Callable[[Stage], Any]:
    """Prometheus' answers have other rows."""

    def breaks(stage: Stage) -> Any:
        async def rule(request: web.BaseRequest, body: bytes) -> web.StreamResponse | None:
            status, content = await stage.metrics.ask(request, body)
            answer = json.loads(content)
            with contextlib.suppress(KeyError, TypeError):
                answer["data"]["result"] = change(answer["data"]["result"])
            return web.json_response(answer, status=status)

        return stage.metrics.breaking(rule)

    return breaks


def condition(name: str, type_: str, *bad: str) -> Callable[[Stage], str]:
    """The message of a condition while it has one of these reasons."""

    def told(stage: Stage) -> str:
        _, reason = stage.cluster.condition(name, type_)
        return f"`{reason}`: {stage.cluster.told(name, type_)}" if reason in bad else ""

    return told


def log(pattern: str) -> Callable[[Stage], str]:
    return lambda stage: f"log: {found}" if (found := stage.logged(pattern)) else ""


def remembered(stage: Stage) -> str:
    """The order in the status, as the operator's own though nobody had the answer."""
    for change in stage.cluster.status(GROWING).get("history", []):
        if change["to"] == 2 and change["by"] == FIELD_MANAGER and stage.since(change["at"]):
            return f"`status.history`: {change['from']} -> 2 by {change['by']}"
    return ""


@contextlib.contextmanager
def made_anew(stage: Stage) -> Iterator[None]:
    """The Deployment is deleted, and made again under its name as its manifest has it."""
    stage.plane.client.delete(stage.path(GROWING))
    try:
        yield
    finally:
        stage.plane.apply(served(stage.cluster.namespace, GROWING, 1))


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
    Fault(
        "Prometheus empty",
        "answers without a row",
        rows(lambda _: []),
        condition(STEADY, "MetricsAvailable", "FailedGetMetrics", "NotScraped"),
    ),
    Fault(
        "401 after rotation",
        "Prometheus takes a newer token than the mounted one",
        rotated_token,
        condition(STEADY, "MetricsAvailable", "FailedGetMetrics"),
    ),
    Fault(
        "SIGKILL between patch and status",
        "killed before the answer to a scale",
        killed_amid_a_patch,
        remembered,
        amid=False,
    ),
    Fault(
        "Deployment made anew",
        "the Deployment is deleted and created again with one replica",
        made_anew,
        condition(GROWING, "Ready", "TargetNotFound"),
    ),
    Fault(
        "half of the fleet evicted",
        "a pod of each pool evicted",
        half_evicted,
        lambda stage: (
            f"`status.fleet` {fleet}"
            if (fleet := stage.cluster.status(STEADY)["fleet"]) != f"{NEED}/{NEED}/{NEED}"
            else ""
        ),
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


@contextlib.contextmanager
def thousand_pools(stage: Stage) -> Iterator[None]:
    """In another namespace, without targets, as fast as the API server takes them."""
    with own_namespace(stage.plane) as name:
        path = f"/apis/servingpool.dev/v1alpha1/namespaces/{name}/servingpools"
        for number in range(1000):
            stage.plane.client.create(path, serving_pool(name, f"pool-{number}"))
        stage.others = name
        yield


def last_of_them(stage: Stage) -> str:
    """What the last of the thousand pools is told."""
    other = Cluster(stage.plane, stage.cluster.traffic, stage.others)
    return f"`TargetNotFound`: {other.told('pool-999', 'Ready')}" if other.status("pool-999") else ""


LONG = [
    Fault("1,000 pools at once", "1,000 pools made in another namespace", thousand_pools, last_of_them),
    Fault(
        "API server with an older resourceVersion",
        f"etcd put back to {WRITES} writes before",
        restored,
        log(r"The API server was restored[^\n]*"),
    ),
]
"""Those of `make faults` alone. The last one takes back what was stored."""
