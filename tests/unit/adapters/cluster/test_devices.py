"""What pods ask for of accelerators, by limits and by claims."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from servingpool.adapters.cluster.devices import ClaimTemplates, Devices, devices_of, requested, whole
from servingpool.adapters.cluster.errors import ClusterError, NotFound
from servingpool.decision.observation import Unknown


class Api:
    """Has ResourceClaimTemplates of the second version."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}
        self.broken = False
        self.asked = 0

    async def get(self, path: str, **_: str) -> dict[str, Any]:
        self.asked += 1
        if self.broken:
            raise ClusterError("500")
        if "/v1beta2/" not in path or path.rpartition("/")[2] not in self.found:
            raise NotFound("404")
        template: dict[str, Any] = self.found[path.rpartition("/")[2]]
        return template


def template(*requests: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"spec": {"devices": {"requests": list(requests)}}}}


def test_limits_of_containers_beside_each_other_are_added_up() -> None:
    pod = {
        "containers": [{"resources": {"limits": {"nvidia.com/gpu": "2", "cpu": "500m"}}}, {}],
        "initContainers": [
            {"resources": {"limits": {"nvidia.com/gpu": 4}}},
            {"restartPolicy": "Always", "resources": {"limits": {"nvidia.com/gpu": 1}}},
        ],
        "resourceClaims": [{"name": "a", "resourceClaimTemplateName": "one"}],
    }
    found = devices_of([pod, pod])
    assert found == Devices((("nvidia.com/gpu", 6),), ("one", "one"))
    assert (found.amount("nvidia.com/gpu"), found.amount("amd.com/gpu")) == (6, 0)


@pytest.mark.parametrize(
    ("text", "amount"), [(8, 8), ("8", 8), ("1k", 1000), ("1Ki", 1024), ("2000m", 2), ("1e3", 1000)]
)
def test_quantities_are_read_as_kubernetes_writes_them(text: object, amount: int) -> None:
    assert whole(text) == amount


@pytest.mark.parametrize(
    ("request_", "count"),
    [
        ({"exactly": {"deviceClassName": "gpu.nvidia.com", "count": 4}}, 4),
        ({"exactly": {"deviceClassName": "gpu.nvidia.com"}}, 1),
        ({"deviceClassName": "gpu.nvidia.com", "count": 2}, 2),
        ({"exactly": {"deviceClassName": "nic.example.com", "allocationMode": "All"}}, 0),
        (
            {"exactly": {"deviceClassName": "gpu.nvidia.com", "allocationMode": "All"}},
            Unknown("its allocationMode is All"),
        ),
        ({"firstAvailable": []}, Unknown("its request lists alternatives")),
    ],
)
def test_a_claim_asks_for_so_many_devices_of_a_class(request_: dict[str, Any], count: object) -> None:
    assert requested(template(request_), "gpu.nvidia.com") == count


def test_templates_are_unknown_until_read_and_kept_while_the_api_server_fails() -> None:
    api = Api()
    api.found["two"] = template({"exactly": {"deviceClassName": "gpu.nvidia.com", "count": 2}})
    templates, asked = ClaimTemplates(api), Devices(templates=("two", "two"))

    def count(now: float, devices: Devices = asked) -> int | Unknown:
        before = templates.count("chat", devices, "gpu.nvidia.com")
        asyncio.run(templates.read(now))
        after = templates.count("chat", devices, "gpu.nvidia.com")
        return after if isinstance(before, Unknown) or before == after else before

    assert isinstance(templates.count("chat", asked, "gpu.nvidia.com"), Unknown)
    assert count(0.0) == 4
    asked_so_far = api.asked
    assert count(30.0) == 4
    assert api.asked == asked_so_far, "fresh"
    api.broken = True
    assert count(100.0) == 4
    assert count(100.0, Devices(templates=("none",))) == Unknown("ResourceClaimTemplate 'none': 500")
    assert count(100.0, Devices(shared="pool")) == Unknown("ResourceClaim 'pool' may be shared by pods")
