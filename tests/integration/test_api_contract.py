"""The real API server's half of the contract that the unit tests' fake cluster keeps."""

from __future__ import annotations

import json
from typing import Any

import pytest

from servingpool.adapters.cluster import objects
from servingpool_lab.control_plane import ControlPlane
from servingpool_lab.processes import wait_until

from ..unit.reconcile.api_contract import ApiContract, Owner  # noqa: TID252, tests are no package of an installed name
from .operators import PATIENCE, deployment

APPLY = "application/apply-patch+yaml"


class RealObject:
    """One Deployment or StatefulSet of a namespace."""

    def __init__(self, plane: ControlPlane, namespace: str, kind: str) -> None:
        self.plane, self.namespace, self.kind = plane, namespace, kind
        self.folder = f"/apis/apps/v1/namespaces/{namespace}/{kind.lower()}s"

    def _manifest(self, replicas: int | None) -> dict[str, Any]:
        made = {**deployment(self.namespace, "thing", 0), "kind": self.kind}
        spec = {name: value for name, value in made["spec"].items() if name != "replicas"}
        return {**made, "spec": spec | ({} if replicas is None else {"replicas": replicas})}

    def create(self, replicas: int | None, by: str) -> None:
        self.plane.client.create(f"{self.folder}?fieldManager={by}", self._manifest(replicas))

    def apply(self, replicas: int | None, by: str, *, force: bool = False) -> None:
        path = f"{self.folder}/thing?fieldManager={by}&force={json.dumps(force)}"
        self.plane.client.request("PATCH", path, self._manifest(replicas), content_type=APPLY)

    def update(self, replicas: int, by: str) -> None:
        self.plane.client.patch(f"{self.folder}/thing?fieldManager={by}", {"spec": {"replicas": replicas}})

    def scale(self, replicas: int, by: str) -> None:
        self.plane.client.patch(f"{self.folder}/thing/scale?fieldManager={by}", {"spec": {"replicas": replicas}})

    def raw(self) -> dict[str, Any]:
        return self.plane.client.get(f"{self.folder}/thing")

    def found(self) -> tuple[int, set[Owner]]:
        raw = self.raw()
        owners = objects.holders(raw["metadata"], "spec", "replicas")
        return raw["spec"]["replicas"], {
            (str(one["manager"]), str(one["operation"]), one.get("subresource")) for one in owners
        }

    def scale_spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.plane.client.get(f"{self.folder}/thing/scale")["spec"]
        return spec


class TestRealApiServer(ApiContract):
    @pytest.fixture(params=["Deployment", "StatefulSet"])
    def thing(self, control_plane: ControlPlane, namespace: str, request: pytest.FixtureRequest) -> RealObject:
        return RealObject(control_plane, namespace, request.param)


@pytest.fixture
def thing(control_plane: ControlPlane, namespace: str) -> RealObject:
    return RealObject(control_plane, namespace, "Deployment")


def test_an_object_that_is_being_deleted_says_so(
    control_plane: ControlPlane, namespace: str, thing: RealObject
) -> None:
    thing.create(1, "helm")
    before = objects.workload(thing.raw())
    control_plane.client.patch(f"{thing.folder}/thing", {"metadata": {"finalizers": ["example.com/hold"]}})
    control_plane.client.request("DELETE", f"{thing.folder}/thing", {"propagationPolicy": "Foreground"})
    after = objects.workload(thing.raw())
    assert (before.ending, after.ending) == (False, True)
    assert after.generation > before.generation, "so what was decided on before is no longer what stands"
    control_plane.client.patch(f"{thing.folder}/thing", {"metadata": {"finalizers": None}})


def test_a_pod_holds_its_gpus_until_its_grace_is_over_twice(
    control_plane: ControlPlane, namespace: str, thing: RealObject
) -> None:
    """As ResourceQuota counts it. The deletion's time has the grace period in it."""
    thing.create(1, "helm")
    pods = f"/api/v1/namespaces/{namespace}/pods"
    wait_until(lambda: bool(control_plane.client.items(pods)), PATIENCE, "a pod")
    name = control_plane.client.items(pods)[0]["metadata"]["name"]
    control_plane.client.patch(f"{pods}/{name}", {"metadata": {"finalizers": ["example.com/dead-node"]}})
    control_plane.client.request("DELETE", f"{pods}/{name}", {"gracePeriodSeconds": 30})
    raw = control_plane.client.get(f"{pods}/{name}")
    asked = objects.unix(raw["metadata"]["deletionTimestamp"]) - raw["metadata"]["deletionGracePeriodSeconds"]
    created = objects.unix(raw["metadata"]["creationTimestamp"])
    assert created <= asked <= created + 60.0
    assert objects.pod(raw).holds_until == asked + 2 * raw["metadata"]["deletionGracePeriodSeconds"]
    control_plane.client.patch(f"{pods}/{name}", {"metadata": {"finalizers": None}})
