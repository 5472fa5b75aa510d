"""deploy/ on a real API server: it is accepted, runs as restricted, and may do what it must and no more."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from servingpool_lab.control_plane import ControlPlane
from servingpool_lab.processes import wait_until

from .operators import PATIENCE

DEPLOY = Path(__file__).parents[2] / "deploy"
NAMESPACE = "servingpool-system"
OPERATOR = f"system:serviceaccount:{NAMESPACE}:servingpool-operator"

ALLOWED = [
    ("list", "servingpool.dev", "servingpools", "", "ml"),
    ("watch", "servingpool.dev", "servingpools", "", "ml"),
    ("patch", "servingpool.dev", "servingpools/status", "", "ml"),
    ("list", "apps", "deployments", "", "ml"),
    ("patch", "apps", "deployments/scale", "", "ml"),
    ("watch", "", "pods", "", "ml"),
    ("list", "autoscaling", "horizontalpodautoscalers", "", "ml"),
    ("list", "keda.sh", "scaledobjects", "", "ml"),
    ("create", "", "events", "", "ml"),
    ("create", "coordination.k8s.io", "leases", "", NAMESPACE),
    ("update", "coordination.k8s.io", "leases", "servingpool-operator", NAMESPACE),
]
DENIED = [
    ("patch", "servingpool.dev", "servingpools", "", "ml"),
    ("patch", "apps", "deployments", "", "ml"),
    ("delete", "", "pods", "", "ml"),
    ("get", "", "secrets", "", "ml"),
    ("get", "", "configmaps", "", NAMESPACE),
    ("create", "coordination.k8s.io", "leases", "", "ml"),
    ("update", "coordination.k8s.io", "leases", "another", NAMESPACE),
    # Never asked by the operator: it patches with a test of the number, and replaces its Lease.
    ("get", "apps", "deployments/scale", "", "ml"),
    ("patch", "coordination.k8s.io", "leases", "servingpool-operator", NAMESPACE),
]


def test_kustomize_takes_the_folder_as_it_is(binaries: dict[str, Path]) -> None:
    """`kubectl apply -k deploy/`, as the README has it, without a cluster: nothing is left out, nothing is changed."""
    command = [str(binaries["kubectl"]), "kustomize", str(DEPLOY)]
    made = yaml.safe_load_all(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    resources = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())["resources"]
    given = [each for name in resources for each in yaml.safe_load_all((DEPLOY / name).read_text())]
    assert sorted(made, key=named) == sorted(given, key=named)
    assert {path.name for path in DEPLOY.glob("*.yaml")} == {*resources, "kustomization.yaml"}


def named(manifest: dict[str, Any]) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]


@pytest.fixture(scope="module", autouse=True)
def installed(control_plane: ControlPlane) -> None:
    # Without the Deployment, which would leave two pods to the tests of others.
    for name in ("namespace", "rbac", "config", "networkpolicy"):
        control_plane.apply(DEPLOY / f"{name}.yaml")


def may(control_plane: ControlPlane, verb: str, group: str, resource: str, name: str, namespace: str) -> bool:
    resource, _, subresource = resource.partition("/")
    attributes = {
        "verb": verb,
        "group": group,
        "resource": resource,
        "subresource": subresource,
        "name": name,
        "namespace": namespace,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": OPERATOR, "groups": ["system:authenticated"], "resourceAttributes": attributes},
    }
    answer = control_plane.client.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


@pytest.mark.parametrize("request_", ALLOWED, ids=" ".join)
def test_the_operator_may(control_plane: ControlPlane, request_: tuple[str, str, str, str, str]) -> None:
    # The API server takes roles up a moment after they were stored.
    wait_until(lambda: may(control_plane, *request_), PATIENCE, " ".join(request_))


@pytest.mark.parametrize("request_", DENIED, ids=" ".join)
def test_the_operator_may_not(control_plane: ControlPlane, request_: tuple[str, str, str, str, str]) -> None:
    assert not may(control_plane, *request_)


def test_the_operators_pod_passes_restricted_pod_security(control_plane: ControlPlane) -> None:
    deployment = yaml.safe_load((DEPLOY / "deployment.yaml").read_text())
    options = "dryRun=All&fieldValidation=Strict"
    control_plane.client.create(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments?{options}", deployment)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "operator"}} | deployment["spec"]["template"]
    pod["metadata"] = pod["metadata"] | {"name": "operator"}
    control_plane.client.create(f"/api/v1/namespaces/{NAMESPACE}/pods?{options}", pod)


def test_the_sample_deployment_is_accepted_as_it_is(control_plane: ControlPlane, namespace: str) -> None:
    paths = {"Deployment": "/apis/apps/v1", "Service": "/api/v1"}
    samples: list[dict[str, Any]] = list(yaml.safe_load_all((DEPLOY / "samples/vllm-deployment.yaml").read_text()))
    for sample in samples:
        collection = f"{paths[sample['kind']]}/namespaces/{namespace}/{sample['kind'].lower()}s"
        control_plane.client.create(f"{collection}?dryRun=All&fieldValidation=Strict", sample)
