"""The objects that a lab creates in its cluster. The vLLM Deployment is the sample of `deploy/samples`, made larger."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from servingpool.api import duration
from servingpool.api.group import API_VERSION, KIND
from servingpool_lab import kwok
from servingpool_lab.scenario import Scenario
from servingpool_simulation.prices import price

NODE_GPUS = 8
OPERATOR_NAMESPACE = "servingpool-system"
OPERATOR_ACCOUNT = "servingpool-operator"
EMULATOR = "emulator"

Manifest = dict[str, Any]


class ManifestsError(RuntimeError):
    """The checkout's manifests are not where they should be."""


def deploy_directory() -> Path:
    """The folder `deploy/`: $SERVINGPOOL_DEPLOY, else this checkout's.

    Raises:
        ManifestsError: there is none, as in an installed wheel.
    """
    configured = os.environ.get("SERVINGPOOL_DEPLOY")
    directory = Path(configured) if configured else Path(__file__).resolve().parents[3] / "deploy"
    if not (directory / "rbac.yaml").is_file():
        raise ManifestsError(
            f"no manifests in {directory}: run from a checkout of the repository, "
            "or set SERVINGPOOL_DEPLOY to its deploy/ folder"
        )
    return directory


def operator_manifests() -> list[Manifest]:
    """Namespace, ServiceAccount and rights of the operator, as `kubectl apply -k deploy/` would create them."""
    directory = deploy_directory()
    return [
        manifest
        for name in ("namespace.yaml", "rbac.yaml", "admissionpolicy.yaml")
        for manifest in yaml.safe_load_all((directory / name).read_text())
        if manifest
    ]


def nodes(scenario: Scenario) -> list[Manifest]:
    """Fake nodes with room for the largest fleet, one more for the replicas that drain."""
    workload = scenario.workload
    count = -(-workload.maximum * workload.gpus_per_replica // NODE_GPUS) + 1
    return [kwok.gpu_node(f"gpu-{k}", NODE_GPUS, gpu_product=workload.gpu_product) for k in range(count)]


@dataclass(frozen=True, slots=True)
class Engines:
    """A Deployment of engines, as its manifest needs it."""

    name: str
    model: str
    gpus: int
    """Of a replica."""
    replicas: int
    load_seconds: float
    """From the start of a replica's container to Ready."""
    load_jitter: float
    """Seconds that it may take longer."""
    namespace: str = "default"


def deployment(scenario: Scenario) -> Manifest:
    """The Deployment of the scenario's workload, with its GPUs and its load time."""
    workload = scenario.workload
    return engines(
        Engines(
            workload.name,
            workload.model,
            workload.gpus_per_replica,
            workload.initial,
            scenario.load_seconds,
            scenario.load_jitter,
            scenario.namespace,
        )
    )


def page_server(name: str, image: str) -> Manifest:
    """A Deployment of one pod that is no engine, with a page that is scraped. It is Ready after a second."""
    labels = {kwok.APP_LABEL: name}
    annotations = {"prometheus.io/scrape": "true", kwok.LOAD_SECONDS_ANNOTATION: "1"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, "annotations": annotations},
                "spec": {"containers": [{"name": image, "image": image}]},
            },
        },
    }


def engines(wanted: Engines) -> Manifest:
    """The sample vLLM Deployment, made into the one that is wanted."""
    samples = yaml.safe_load_all((deploy_directory() / "samples" / "vllm-deployment.yaml").read_text())
    sample: Manifest = copy.deepcopy(next(each for each in samples if each["kind"] == "Deployment"))
    labels = {kwok.APP_LABEL: wanted.name}
    sample["metadata"] = {"name": wanted.name, "namespace": wanted.namespace, "labels": labels}
    spec = sample["spec"]
    spec["replicas"] = wanted.replicas
    spec["selector"]["matchLabels"] = labels
    template = spec["template"]
    template["metadata"] = {
        "labels": labels,
        "annotations": {
            "prometheus.io/scrape": "true",
            kwok.LOAD_SECONDS_ANNOTATION: f"{wanted.load_seconds:g}",
            kwok.LOAD_JITTER_SECONDS_ANNOTATION: f"{wanted.load_jitter:g}",
        },
    }
    container = template["spec"]["containers"][0]
    container["args"] = [
        f"--served-model-name={wanted.model}" if argument.startswith("--served-model-name=") else argument
        for argument in container["args"]
    ]
    container["resources"]["limits"][kwok.GPU_RESOURCE] = wanted.gpus
    return sample


def serving_pool(scenario: Scenario) -> Manifest:
    """The ServingPool that the operator is to hold."""
    workload, slo = scenario.workload, scenario.workload.slo
    bounds = {"timeToFirstToken": slo.time_to_first_token, "timePerOutputToken": slo.time_per_output_token}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": workload.name, "namespace": scenario.namespace},
        "spec": {
            "model": workload.model,
            "mode": scenario.mode.value,
            "slo": {
                **{name: duration.write(seconds) for name, seconds in bounds.items() if seconds is not None},
                "attainment": round(slo.attainment * 100, 3),
            },
            "targets": [
                {
                    "name": workload.name,
                    "min": 1,
                    "max": workload.maximum,
                    "costPerReplicaHour": price(workload.profile),
                }
            ],
        },
    }


def emulator_rights(namespace: str) -> list[Manifest]:
    """What a kubelet does when a container has exited: it removes the pod."""
    metadata = {"name": EMULATOR, "namespace": namespace}
    group = "rbac.authorization.k8s.io"
    return [
        {
            "apiVersion": f"{group}/v1",
            "kind": "Role",
            "metadata": metadata,
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch", "delete"]}],
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": EMULATOR},
            "subjects": [{"kind": "User", "name": EMULATOR, "apiGroup": group}],
        },
    ]


def operator_configuration(prometheus_url: str, health_port: int, metrics_port: int) -> Mapping[str, Any]:
    """The operator's own configuration: the one Prometheus of the lab."""
    return {
        "interval": "15s",
        "backends": [{"name": "default", "url": prometheus_url}],
        "leaderElection": {"namespace": OPERATOR_NAMESPACE},
        "healthPort": health_port,
        "metricsPort": metrics_port,
    }
