"""What a user does first."""

from __future__ import annotations

import pytest

from .cluster import Cluster
from .conftest import FIRST
from .helm import Helm
from .images import Images, sizes
from .pools import condition, status
from .release import CHART, NAMESPACE, RELEASE, OperatorRelease
from .results import Results
from .shell import CommandError

OURS_MB = 260
"""On top of the base; measured are 238, half of them the Kubernetes client."""
READY_S, LEADS_S = 20, 15
"""From the start of the container, on two cores; measured are 5, which is one period of the probe, and 2."""


def test_one_install_and_one_apply_give_a_pool_that_decides(cluster: Cluster, operator: OperatorRelease) -> None:
    """The operator fixture did and timed it."""
    operator.wait_up()
    found = status(cluster, FIRST, FIRST)
    assert found["lastDecision"]["reason"]
    assert condition(cluster, FIRST, FIRST, "Ready") == ("True", "Recommending")


def test_the_image_is_small_and_starts_soon(images: Images, operator: OperatorRelease, results: Results) -> None:
    operator.wait_up()
    size, ours = sizes(images.operator)
    ready, led = operator.start_up()
    results.add(
        scenario="the operator's image, and its start",
        outcome=f"{size:.0f} MB, of which {size - ours:.0f} are the base",
        image_mb=size,
        base_mb=size - ours,
        ready_s=ready,
        **({} if led is None else {"leads_s": led}),
    )
    assert ours < OURS_MB
    assert ready <= READY_S
    assert led is None or led <= LEADS_S


def test_helm_test_passes(helm: Helm, operator: OperatorRelease, results: Results) -> None:
    said = helm("test", RELEASE, f"--namespace={NAMESPACE}", "--timeout=120s")
    assert "Succeeded" in said
    results.add(scenario="helm test", outcome="passes")


@pytest.mark.usefixtures("operator")
def test_helm_test_fails_with_a_wrong_prometheus_url(
    cluster: Cluster, helm: Helm, images: Images, results: Results
) -> None:
    """A release without operators is enough: Prometheus is asked first, and no pool is created."""
    name, url = "wrong-url", "http://prometheus.nowhere:9090"
    namespace = cluster.namespace(name)
    repository, _, tag = images.operator.rpartition(":")
    values = {
        "image": {"repository": repository, "tag": tag},
        "replicas": 0,
        "watchNamespaces": [namespace],
        "crds": {"enabled": False},
        "rbac": {"aggregate": False},
        "backends": [{"name": "default", "url": url}],
    }
    helm.install(name, CHART, namespace, values)
    pod = f"{name}-servingpool-operator-test-prometheus"
    try:
        with pytest.raises(CommandError, match=f"pod {pod} failed"):
            helm("test", name, f"--namespace={namespace}", "--timeout=120s")
        said = f"Prometheus backend 'default' cannot be reached. URL: {url}. "
        assert said in cluster.logs(namespace, pod)
    finally:
        helm("uninstall", name, f"--namespace={namespace}", "--wait")
    results.add(scenario="helm test with a wrong Prometheus URL", outcome="fails, and names it")
