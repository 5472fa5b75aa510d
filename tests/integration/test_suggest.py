"""`servingpool suggest` and `record` on real pods behind a real Prometheus, with a real HPA."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from servingpool.cli.main import app
from servingpool.cli.record import read
from servingpool_lab.control_plane import ControlPlane
from servingpool_lab.processes import wait_until
from servingpool_lab.prometheus import Prometheus

from .conftest import own_namespace
from .operators import PATIENCE, deployment, ready_pods

ROOT = Path(__file__).parents[2]
CRD = ROOT / "crds/servingpools.servingpool.dev.yaml"
ENGINES = Path(__file__).parents[1] / "fixtures" / "engines"
SGLANG = (ENGINES / "sglang-0.5.23.txt").read_text()

Command = Callable[..., Result]


@pytest.fixture(scope="module")
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """One for all: the commands change nothing in it."""
    with own_namespace(control_plane) as name:
        yield name


@pytest.fixture(scope="module")
def pods(
    control_plane: ControlPlane, prometheus: Prometheus, namespace: str, pod_metrics: dict[tuple[str, str], str]
) -> Iterator[list[str]]:
    """Of the Deployment llama, Ready and scraped, with an HPA from 2 to 5."""
    control_plane.apply(CRD)
    control_plane.apply(deployment(namespace, "llama", 2))
    control_plane.apply(
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "llama", "namespace": namespace},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "llama"},
                "minReplicas": 2,
                "maxReplicas": 5,
            },
        }
    )
    names = ready_pods(control_plane, namespace, 2)
    pod_metrics.update({(namespace, pod): SGLANG for pod in names})
    query = f'count by (pod) (sglang:num_running_reqs{{namespace="{namespace}"}})'
    wait_until(lambda: len(prometheus.query(query)) == 2, PATIENCE, query)
    yield names
    for pod in names:
        pod_metrics.pop((namespace, pod), None)


@pytest.fixture
def servingpool(control_plane: ControlPlane, prometheus: Prometheus) -> Command:
    def run(*arguments: str) -> Result:
        options = ["--prometheus", prometheus.url, "--kubeconfig", str(control_plane.kubeconfig)]
        return CliRunner().invoke(app, [*arguments, *options])

    return run


@pytest.mark.parametrize("target", ["deployment/llama", "hpa/llama"])
def test_what_it_prints_is_a_pool_that_the_api_server_takes(
    servingpool: Command, control_plane: ControlPlane, namespace: str, pods: list[str], target: str
) -> None:
    done = servingpool("suggest", target, "-n", namespace)
    assert done.exit_code == 0, done.stderr
    found = yaml.safe_load(done.stdout)
    control_plane.client.request(
        "POST", f"/apis/servingpool.dev/v1alpha1/namespaces/{namespace}/servingpools?dryRun=All", found
    )
    spec = found["spec"]
    assert (spec["engine"], spec["model"], spec["mode"]) == ("sglang", "org/model", "Recommend")
    assert (spec["targets"][0]["min"], spec["targets"][0]["max"]) == (2, 5)
    assert "From HorizontalPodAutoscaler llama." in done.stdout


def test_a_recording_names_the_engine_the_pods_and_the_autoscaler(
    servingpool: Command, namespace: str, pods: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "llama.rec"
    done = servingpool("record", "deployment/llama", "-n", namespace, "--since", "10m", "-f", str(path))
    assert done.exit_code in {0, 1}, done.stderr
    header, chunks = read(path)
    assert (header.engine, header.model, header.target, header.bounds) == ("sglang", "org/model", "llama", (2, 5))
    assert len(header.starts) == 2
    assert list(chunks)
