"""A Scale of 0 has no field `replicas` at a real API server: it is scaled all the same, and only from 0."""

from __future__ import annotations

from dataclasses import replace

import pytest

from servingpool.adapters.cluster import objects
from servingpool.adapters.cluster.client import Cluster
from servingpool.adapters.cluster.errors import Conflict
from servingpool.adapters.cluster.objects import Workload
from servingpool_lab.control_plane import ControlPlane

from .operators import deployment


def workload(plane: ControlPlane, namespace: str) -> Workload:
    """As the operator's watch shows it."""
    return objects.workload(plane.client.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/vllm"))


async def test_to_zero_and_back(control_plane: ControlPlane, namespace: str, connection: Cluster) -> None:
    control_plane.apply(deployment(namespace, "vllm", 1))
    await connection.scale(workload(control_plane, namespace), 0)
    at_zero = workload(control_plane, namespace)
    assert at_zero.replicas == 0
    with pytest.raises(Conflict):
        await connection.scale(replace(at_zero, replicas=1), 3)
    await connection.scale(at_zero, 2)
    assert workload(control_plane, namespace).replicas == 2
    with pytest.raises(Conflict):  # somebody else was faster
        await connection.scale(at_zero, 3)
    assert workload(control_plane, namespace).replicas == 2
