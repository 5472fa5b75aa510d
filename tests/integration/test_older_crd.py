"""An operator that is newer than the custom resource definitions, before a real API server."""

from __future__ import annotations

import copy
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from servingpool.adapters.cluster.client import Cluster
from servingpool.adapters.cluster.errors import Invalid
from servingpool_lab.api_client import ApiError
from servingpool_lab.control_plane import ControlPlane
from servingpool_lab.processes import wait_until

from .operators import PATIENCE, serving_pool

ROOT = Path(__file__).parents[2]
CRD = ROOT / "crds/servingpools.servingpool.dev.yaml"
NOW = "2026-11-26T12:00:00Z"


def condition(type_: str) -> dict[str, Any]:
    return {"type": type_, "status": "True", "reason": "Said", "message": "", "lastTransitionTime": NOW}


@pytest.fixture
def older_crd(control_plane: ControlPlane, namespace: str) -> Iterator[str]:
    """A pool where the condition type DrainReady is not known yet; the namespace."""
    today = yaml.safe_load(CRD.read_text())
    older = copy.deepcopy(today)
    schema = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    types = schema["properties"]["status"]["properties"]["conditions"]["items"]["properties"]["type"]
    types["enum"].remove("DrainReady")
    control_plane.apply(older)
    control_plane.apply(serving_pool(namespace, "chat"))
    path = f"{pool(namespace)}/status?dryRun=All"

    def takes(type_: str) -> bool:
        body = {"status": {"conditions": [condition(type_)]}}
        try:
            control_plane.client.request("PATCH", path, body, content_type="application/merge-patch+json")
        except ApiError:
            return False
        return True

    wait_until(lambda: takes("Ready") and not takes("DrainReady"), PATIENCE, "the older schema is in force")
    yield namespace
    control_plane.apply(today)
    wait_until(lambda: takes("DrainReady"), PATIENCE, "today's schema is in force")


def pool(namespace: str) -> str:
    return f"/apis/servingpool.dev/v1alpha1/namespaces/{namespace}/servingpools/chat"


@pytest.fixture
async def cluster(control_plane: ControlPlane) -> AsyncIterator[Cluster]:
    connection = await Cluster.connect(str(control_plane.kubeconfig))
    yield connection
    await connection.aclose()


async def test_a_condition_that_the_schema_does_not_know_costs_that_condition_alone(
    control_plane: ControlPlane, cluster: Cluster, older_crd: str, caplog: pytest.LogCaptureFixture
) -> None:
    told = [condition("Ready"), condition("DrainReady"), condition("SLOMet")]
    with caplog.at_level(logging.WARNING):
        for replicas in (2, 3):
            await cluster.write_status((older_crd, "chat"), {"replicas": replicas, "conditions": told})
    stored = control_plane.client.get(pool(older_crd))["status"]
    assert [one["type"] for one in stored["conditions"]] == ["Ready", "SLOMet"]
    assert stored["replicas"] == 3
    [once] = [record.getMessage() for record in caplog.records]
    assert "status.conditions[].type" in once
    assert '"DrainReady"' in once


async def test_a_status_of_which_nothing_is_left_is_refused(cluster: Cluster, older_crd: str) -> None:
    with pytest.raises(Invalid):
        await cluster.write_status((older_crd, "chat"), {"replicas": -1})
