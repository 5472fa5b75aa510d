"""The custom resource definitions are deleted and made again while the operator runs, on a real API server."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from servingpool_lab.api_client import ApiError
from servingpool_lab.control_plane import ControlPlane
from servingpool_lab.processes import wait_until

from .operators import PATIENCE, OperatorProcess, install, serving_pool, settings_on

CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/servingpools.servingpool.dev"


@pytest.fixture
def plane(control_plane: ControlPlane, namespace: str) -> Iterator[ControlPlane]:
    install(control_plane, namespace)
    yield control_plane
    install(control_plane, namespace)


def taken(do: Callable[..., object], *given: object) -> bool:
    """Whether the API server does it by now."""
    try:
        do(*given)
    except ApiError:
        return False
    return True


@pytest.mark.parametrize("gone", [0.0, 15.0], ids=["at once", "later"])
def test_pools_of_a_definition_that_is_made_again_are_served(
    plane: ControlPlane, namespace: str, tmp_path: Path, gone: float
) -> None:
    """Perhaps after a restart: kopf ends if it asks for a kind that is gone."""
    settings = settings_on("http://127.0.0.1:9")
    path = f"/apis/servingpool.dev/v1alpha1/namespaces/{namespace}/servingpools/chat"
    with OperatorProcess(plane, tmp_path, settings, hurried=True).running() as operator:
        plane.client.delete(CRD)
        wait_until(lambda: not taken(plane.client.get, CRD), PATIENCE, "the definition is gone")
        back = time.monotonic() + gone

        def revived() -> bool:
            operator.revive()
            return time.monotonic() >= back

        wait_until(revived, PATIENCE, "it is gone for long")
        install(plane, namespace)
        wait_until(lambda: taken(plane.apply, serving_pool(namespace, "chat")), PATIENCE, "a pool is taken")

        def served() -> bool:
            operator.revive()
            return bool(plane.client.get(path).get("status", {}).get("conditions"))

        wait_until(served, PATIENCE, "the pool is judged")
        assert len(operator.restarts) <= 2, operator.restarts
        log = operator.log()
        if "exit 1" in operator.restarts:
            assert re.search(r"The operator stops: .*/servingpools", log), log
        assert "exit 0" not in operator.restarts, "its probe failed"
