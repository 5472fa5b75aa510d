"""The chart on a real API server: it is accepted, and its rights are enough and no more."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from servingpool_lab.control_plane import ControlPlane
from servingpool_lab.processes import open_local
from servingpool_lab.prometheus import Prometheus

from .operators import ANSWERS, OperatorProcess, install

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "servingpool-operator"
VALUES = sorted((ROOT / "tests/chart/values").glob("*.yaml"))
RELEASE = NAMESPACE = "serving"
FULL_NAME = f"{RELEASE}-servingpool-operator"
TEST = f"{FULL_NAME}-test"

CAN_I = [
    ("deployments.apps", "", "list watch"),
    ("deployments.apps/scale", "", "patch"),
    ("events", "", "create list"),
    ("horizontalpodautoscalers.autoscaling", "", "list watch"),
    ("pods", "", "list watch patch"),
    ("replicasets.apps", "", "list watch"),
    ("scaledobjects.keda.sh", "", "list watch"),
    ("servingpools.servingpool.dev", "", "list watch"),
    ("servingpools.servingpool.dev/status", "", "patch"),
    ("statefulsets.apps", "", "get"),
    ("statefulsets.apps/scale", "", "get patch"),
]
"""Resource, name and verbs of what `kubectl auth can-i --list` shows for the operator where it watches, besides what
every account may."""
EVERYWHERE = [
    ("customresourcedefinitions.apiextensions.k8s.io", "", "list watch"),
    ("gpubudgets.servingpool.dev", "", "list watch"),
    ("gpubudgets.servingpool.dev/status", "", "patch"),
    ("namespaces", "", "list watch"),
    ("resourceclaimtemplates.resource.k8s.io", "", "get"),
]
AT_HOME = [("leases.coordination.k8s.io", "", "create"), ("leases.coordination.k8s.io", FULL_NAME, "get update")]
"""In the namespace of its release too."""
ROW = re.compile(r"(\S+) +\[\] +\[(.*)\] +\[(.*)\]")
"""Rows of URLs begin with a blank: what every account may read of the API itself."""


Helm = Callable[..., str]


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """With the custom resources: Helm does not install them here, for other tests have them without it."""
    names = (NAMESPACE, "team-a", "team-b")
    for name in names:
        install(control_plane, name)
    yield control_plane
    for name in names:
        control_plane.client.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture(scope="module")
def helm(plane: ControlPlane, binaries: dict[str, Path]) -> Helm:
    """Runs Helm; returns its output, or fails with what it said."""
    home = {f"HELM_{part}_HOME": str(plane.directory / f"helm-{part}") for part in ("CACHE", "CONFIG", "DATA")}
    environment = {**os.environ, **home, "KUBECONFIG": str(plane.kubeconfig)}

    def run(*arguments: str | Path) -> str:
        image = ("--set=image.repository=servingpool-operator",)[: arguments[0] != "uninstall"]
        command = [str(binaries["helm"]), *map(str, arguments), *image]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, f"helm {' '.join(command[1:])}: {done.stderr}"
        return done.stdout

    return run


def rendered(helm: Helm, *arguments: str | Path) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(helm("template", *arguments)) if each]


@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)
def test_the_api_server_takes_every_object(plane: ControlPlane, helm: Helm, values: Path) -> None:
    """Strictly: an unknown or doubled field is an error. Monitoring kinds are not Kubernetes' own, so it knows none."""
    objects = rendered(helm, "servingpool-operator", CHART, "--namespace=servingpool-system", f"--values={values}")
    for each in objects:
        if not each["apiVersion"].startswith("monitoring.coreos.com"):
            try_out(plane, each)
        if each["kind"] == "Deployment":
            # The namespace refuses pods that are not restricted, but not their Deployments.
            metadata = {
                **each["spec"]["template"]["metadata"],
                "name": "operator",
                "namespace": each["metadata"]["namespace"],
            }
            try_out(
                plane,
                {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": each["spec"]["template"]["spec"]},
            )


def try_out(plane: ControlPlane, manifest: dict[str, Any]) -> None:
    if manifest["kind"] == "Pod":
        # Its account is another object of the release, or one that the user brings.
        manifest = {**manifest, "spec": {**manifest["spec"], "serviceAccountName": "default"}}
    path = f"{plane.client.path_of(manifest)}?dryRun=All&fieldValidation=Strict&fieldManager=test&force=true"
    plane.client.request("PATCH", path, manifest, content_type="application/apply-patch+yaml")


@pytest.fixture(params=[(), ("--set=watchNamespaces={team-a}",)], ids=["cluster", "namespaced"])
def scoped(request: pytest.FixtureRequest, plane: ControlPlane, helm: Helm) -> Iterator[tuple[str, ...]]:
    """A release that watches the whole cluster, and one that watches one namespace."""
    arguments: tuple[str, ...] = request.param
    helm("install", RELEASE, CHART, f"--namespace={NAMESPACE}", "--set=crds.enabled=false", *arguments)
    yield arguments
    helm("uninstall", RELEASE, f"--namespace={NAMESPACE}")


def listed(plane: ControlPlane, kubectl: Path, namespace: str) -> list[tuple[str, ...]]:
    """`kubectl auth can-i --list` as the operator, without what every account may: review itself, read the API.

    Every row: two of one resource are two grants.
    """
    kubeconfig = plane.service_account_kubeconfig(NAMESPACE, FULL_NAME)
    command = [str(kubectl), f"--kubeconfig={kubeconfig}", "auth", "can-i", "--list", f"--namespace={namespace}"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[1:]
    rows = [match.groups() for line in lines if not line.startswith(" ") and (match := ROW.fullmatch(line.strip()))]
    assert len(rows) == sum(not line.startswith(" ") for line in lines), lines
    return sorted(row for row in rows if not row[0].startswith("self"))


def test_the_operator_may_what_is_written_and_no_more(
    plane: ControlPlane, binaries: dict[str, Path], scoped: tuple[str, ...]
) -> None:
    everywhere = [] if scoped else [*CAN_I, *EVERYWHERE]
    kubectl = binaries["kubectl"]
    assert listed(plane, kubectl, "team-a") == sorted(everywhere or CAN_I)
    assert listed(plane, kubectl, "team-b") == sorted(everywhere)
    assert listed(plane, kubectl, NAMESPACE) == sorted([*everywhere, *AT_HOME])


def test_the_rights_suffice_to_judge_the_pool_of_helm_test(
    plane: ControlPlane, helm: Helm, tmp_path: Path, scoped: tuple[str, ...]
) -> None:
    """The operator with the release's rights and configuration, and the test as its pod would run it."""
    objects = rendered(helm, RELEASE, CHART, f"--namespace={NAMESPACE}", *scoped)
    [config] = [each for each in objects if (each["kind"], each["metadata"]["name"]) == ("ConfigMap", FULL_NAME)]
    settings = yaml.safe_load(config["data"]["config.yaml"])
    settings |= {"interval": "1s", "leaderElection": {**settings["leaderElection"], "namespace": NAMESPACE}}
    kubeconfig = plane.service_account_kubeconfig(NAMESPACE, FULL_NAME)
    operator = OperatorProcess(plane, tmp_path, settings, kubeconfig=kubeconfig)
    hooks = [each for each in objects if "helm.sh/hook" in each["metadata"].get("annotations", {})]
    [pod] = [each for each in hooks if (each["kind"], each["metadata"]["name"]) == ("Pod", TEST)]
    plane.apply([each for each in hooks if each["kind"] != "Pod"])
    [container] = pod["spec"]["containers"]
    environment = {each["name"]: each["value"] for each in container["env"]}
    environment["KUBECONFIG"] = str(plane.service_account_kubeconfig(NAMESPACE, TEST))
    try:
        operator.start()
        done = subprocess.run(
            [sys.executable, str(CHART / "files" / "test_pool.py")],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        operator.process.stop()
        for each in hooks:
            if each["kind"] != "Pod":
                plane.client.delete(plane.client.path_of(each))
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{operator.log()}"
    assert "Ready=False (TargetNotFound)" in done.stdout
    # What other tests' namespaces that end refuse is no missing right.
    assert not [line for line in operator.log().splitlines() if "forbidden: user" in line.lower()]
    namespace = environment["POOL_NAMESPACE"]
    assert not plane.client.items(f"/apis/servingpool.dev/v1alpha1/namespaces/{namespace}/servingpools")


def expressions(helm: Helm) -> list[str]:
    """Of every alert, and of every panel as Grafana would send it."""
    [rule] = [
        each
        for each in rendered(helm, RELEASE, CHART, f"--values={ROOT / 'tests/chart/values/monitoring.yaml'}")
        if each["kind"] == "PrometheusRule"
    ]
    alerts = [alert["expr"] for group in rule["spec"]["groups"] for alert in group["rules"]]
    panels = json.loads((CHART / "files/dashboard.json").read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    grafana = {"$__rate_interval": "5m", "$cluster": ".*", "$namespace": ".*", "$pool": ".*"}
    for name, value in grafana.items():
        queries = [query.replace(name, value) for query in queries]
    return [*alerts, *queries]


def test_prometheus_understands_every_alert_and_panel(prometheus: Prometheus, helm: Helm) -> None:
    found = expressions(helm)
    assert len(found) > 30
    for expression in found:
        query = urllib.parse.urlencode({"query": expression})
        with open_local(f"{prometheus.url}/api/v1/query?{query}", ANSWERS) as response:  # a 400 raises
            assert json.loads(response.read())["status"] == "success"
