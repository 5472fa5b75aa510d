"""From an older release to this one and back, and away, under way."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from chart import crd
from servingpool.api.group import CRD_NAME

from .cluster import Cluster, seconds_since
from .images import ROOT
from .pools import path, status
from .release import CHART, OperatorRelease
from .results import Results
from .steady import NAME, Steady, unharmed
from .waiting import eventually, throughout

pytestmark = pytest.mark.disruptive

DEFINITION = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{CRD_NAME}"


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """This chart as it would have been before pools showed their queue and their drain."""
    chart = tmp_path / "older"
    shutil.copytree(CHART, chart)
    manifest = yaml.safe_load((ROOT / "crds" / f"{CRD_NAME}.yaml").read_text())
    [version] = manifest["spec"]["versions"]
    columns = version["additionalPrinterColumns"]
    version["additionalPrinterColumns"] = [each for each in columns if each["name"] != "Queue"]
    del version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["queueDepth"]
    text = yaml.safe_dump(manifest, sort_keys=False, width=120)
    (chart / "templates" / "crd.yaml").write_text(crd.template(text))
    return chart


def kept(cluster: Cluster) -> tuple[str, int]:
    """What no upgrade may touch: the pool and its fleet."""
    return cluster.client.get(path(NAME, NAME))["metadata"]["uid"], cluster.replicas(NAME, NAME)


def version(cluster: Cluster) -> dict[str, Any]:
    [found] = cluster.client.get(DEFINITION)["spec"]["versions"]
    return dict(found)


def test_the_custom_resource_is_upgraded_and_pools_keep_what_they_learned(
    cluster: Cluster, operator: OperatorRelease, steady: Steady, results: Results, older: Path
) -> None:
    operator.wait_up()
    moment, before = time.time(), kept(cluster)
    eventually(lambda: status(cluster, NAME, NAME).get("profile"), 120, "a learned profile")
    eventually(lambda: "queueDepth" in status(cluster, NAME, NAME), 120, "the field that the older release has not")
    # Another annotation, for a release has another image, and so its pods are replaced.
    operator.install(chart=older, podAnnotations={"release": "older"})
    assert "Queue" not in [column["name"] for column in version(cluster)["additionalPrinterColumns"]]
    assert kept(cluster) == before
    eventually(lambda: "queueDepth" not in status(cluster, NAME, NAME), 30, "no such field under the older definition")
    # It is not shown, but stored until the next write: else it would come back without anyone writing it.
    cluster.client.patch(path(NAME, NAME), {"metadata": {"annotations": {"example.com/release": "older"}}})
    learned = status(cluster, NAME, NAME)["profile"]
    started = time.monotonic()
    operator.install()
    upgraded = seconds_since(started)
    assert "Queue" in [column["name"] for column in version(cluster)["additionalPrinterColumns"]]
    assert kept(cluster) == before
    eventually(lambda: "queueDepth" in status(cluster, NAME, NAME), 120, "the new field is written")
    assert goes_on(cluster, operator, learned) > 0
    started = time.monotonic()
    operator.rollback()
    rolled_back = seconds_since(started)
    assert "Queue" not in [column["name"] for column in version(cluster)["additionalPrinterColumns"]]
    assert kept(cluster) == before
    goes_on(cluster, operator, learned)
    figures = unharmed(steady.since(moment))
    results.add(
        scenario="CRD upgraded by helm upgrade, and helm rollback",
        outcome="same pool, same fleet, its learned profile kept by both; the new field is written",
        seconds=upgraded,
        rolled_back_s=rolled_back,
        **figures,
    )


def goes_on(cluster: Cluster, operator: OperatorRelease, learned: dict[str, Any]) -> float:
    """Seconds that the pool has learned for. Who had not taken its profile up would say so, or leave one from 0 s."""
    eventually(lambda: operator.says(f"{NAME}/{NAME}"), 60, "the new operator has taken the pool up")
    profile = status(cluster, NAME, NAME)["profile"]
    assert profile["learned"] >= learned["learned"]
    assert "The learned profile is discarded" not in operator.logs()
    return float(profile["learned"])


def test_uninstalled_it_leaves_pools_and_pods_as_they_are(
    cluster: Cluster, operator: OperatorRelease, steady: Steady, results: Results
) -> None:
    """Nothing is left that scales: only the pages' own test comes after it."""
    moment, before = time.time(), (kept(cluster), pods(cluster), status(cluster, NAME, NAME)["profile"])
    started = time.monotonic()
    operator.uninstall()
    gone = seconds_since(started)
    assert operator.pods() == []
    throughout(lambda: pods(cluster) == before[1], 10, "the same pods")
    assert (kept(cluster), pods(cluster)) == before[:2]
    assert status(cluster, NAME, NAME)["profile"]["learned"] >= before[2]["learned"]
    results.add(
        scenario="helm uninstall",
        outcome="same pool, same profile, same pods; nothing scales any more",
        seconds=gone,
        **unharmed(steady.since(moment)),
    )


def pods(cluster: Cluster) -> set[str]:
    return {pod["metadata"]["uid"] for pod in cluster.pods(NAME)}
