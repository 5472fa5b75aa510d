"""What pods ask for of accelerators, by limits and by claims."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from servingpool.adapters.cluster.devices import ClaimTemplates, Devices, devices_of, requested
from servingpool.adapters.cluster.errors import ClusterError, NotFound
from servingpool.adapters.cluster.quantity import whole
from servingpool.decision.observation import Unknown

from . import virtual_time


class Api:
    """Has ResourceClaimTemplates of the second version."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}
        self.broken, self.late = False, 0.0
        self.asked = 0

    async def get(self, path: str, **_: str) -> dict[str, Any]:
        self.asked += 1
        await asyncio.sleep(self.late)
        if self.broken:
            raise ClusterError("500")
        if "/v1beta2/" not in path or path.rpartition("/")[2] not in self.found:
            raise NotFound("404")
        template: dict[str, Any] = self.found[path.rpartition("/")[2]]
        return template


def template(*requests: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"spec": {"devices": {"requests": list(requests)}}}}


GPU = "nvidia.com/gpu"


def asks(gpus: object, **more: Any) -> dict[str, Any]:
    return {"resources": {"limits": {GPU: gpus}}, **more}


SIDECAR = {"restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("pod", "amount"),
    [
        ({"initContainers": [asks(4)], "containers": [asks(1)]}, 4),
        ({"initContainers": [asks(4)], "containers": [asks(1), asks(6)]}, 7),
        ({"initContainers": [asks(2, **SIDECAR), asks(3)], "containers": [asks(1)]}, 5),
        ({"initContainers": [asks(3), asks(2, **SIDECAR)], "containers": [asks(1)]}, 3),
        ({"initContainers": [asks(1, **SIDECAR), asks(1, **SIDECAR), asks(1)], "containers": [asks(2)]}, 4),
        ({"initContainers": [asks(8, **SIDECAR)]}, 8),
        ({"containers": [asks(1)], "overhead": {GPU: "1", "memory": "120Mi"}}, 2),
        ({"containers": [asks(1)], "initContainers": None, "overhead": None, "resources": {"limits": {GPU: 8}}}, 1),
        ({"containers": [asks("nonsense")]}, Unknown("an amount of nvidia.com/gpu is no quantity")),
    ],
)
def test_a_pod_holds_what_kubernetes_reserves_for_it(pod: dict[str, Any], amount: object) -> None:
    """The greater of what runs together, and of each init container with the sidecars before it."""
    assert devices_of([pod]).amount(GPU) == amount
    assert devices_of([pod]).gpus == (amount if isinstance(amount, int) else 0)


@pytest.mark.parametrize(
    ("limits", "gpus"),
    [
        ({"nvidia.com/gpu": "8"}, 8),
        ({"nvidia.com/gpu.shared": "1"}, 1),
        ({"nvidia.com/mig-1g.5gb": "2"}, 2),
        ({"nvidia.com/mig-3g.20gb.shared": "1"}, 1),
        ({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "50"}, 1),
        ({"nvidia.com/gpu": "2", "nvidia.com/gpumem-percentage": "50", "nvidia.com/priority": "1"}, 2),
        ({"nvidia.com/gpumem": "3k"}, 1),
        ({"volcano.sh/vgpu-number": "2", "volcano.sh/vgpu-memory": "16384", "volcano.sh/vgpu-cores": "50"}, 2),
        ({"aliyun.com/gpu-mem": "16"}, 1),
        ({"aliyun.com/gpu-count": "2", "aliyun.com/gpu-mem": "16"}, 2),
        (
            {
                "huawei.com/Ascend910B4": "1",
                "huawei.com/Ascend910B4-memory": "16384",
                "huawei.com/Ascend910B4-core": 50,
            },
            1,
        ),
        ({"huawei.com/Ascend910B": "1", "huawei.com/Ascend910B-memory": "16k"}, 1),
        ({"huawei.com/Ascend910-2c": "1"}, 1),
        ({"huawei.com/npu-core": "8"}, 1),
        ({"amd.com/cpx_nps4": "2"}, 2),
        ({"gpu.intel.com/i915": "1", "gpu.intel.com/millicores": "100", "gpu.intel.com/memory.max": "8Gi"}, 1),
        ({"gpu.intel.com/xe": "1", "gpu.intel.com/tiles": "2"}, 1),
        ({"gpu.intel.com/i915_monitoring": "1"}, 0),
        ({"habana.ai/gaudi": "8"}, 8),
        ({"aws.amazon.com/neuron": "16"}, 16),
        ({"aws.amazon.com/neuroncore": "2"}, 2),
        ({"tke.cloud.tencent.com/qgpu-core": "50", "tke.cloud.tencent.com/qgpu-memory": "8"}, 1),
        ({"tke.cloud.tencent.com/qgpu-core": "200"}, 2),
        ({"tencent.com/vcuda-core": "100", "tencent.com/vcuda-memory": "64"}, 1),
        ({"koordinator.sh/gpu": "200"}, 2),
        ({"koordinator.sh/gpu-shared": "2", "koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory": "8Gi"}, 2),
        ({"cambricon.com/vmlu": "1", "cambricon.com/mlu.smlu.vcore": "10", "cambricon.com/mlu.smlu.vmemory": "20"}, 1),
        ({"cambricon.com/mlu370": "2", "cambricon.com/mlu370.smlu.vmemory": "20"}, 2),
        ({"hygon.com/dcunum": "1", "hygon.com/dcumem": "2000", "hygon.com/dcucores": "60"}, 1),
        ({"iluvatar.ai/MR-V100-vgpu": "1", "iluvatar.ai/MR-V100.vMem": "64", "iluvatar.ai/MR-V100.vCore": "50"}, 1),
        ({"metax-tech.com/sgpu": "1", "metax-tech.com/vcore": "60", "metax-tech.com/vmemory": "4"}, 1),
        ({"enflame.com/vgcu": "1", "enflame.com/vgcu-percentage": "22"}, 1),
        ({"example.com/rdma": "4", "nvidia.com/hostdev": "2", "cpu": "8", "hugepages-2Mi": "1Gi"}, 0),
    ],
)
def test_devices_are_counted_and_their_attributes_are_not(limits: dict[str, object], gpus: int) -> None:
    assert devices_of([{"containers": [{"resources": {"limits": limits}}]}]).gpus == gpus


def test_limits_of_pods_are_added_up() -> None:
    pod = {
        "containers": [{"resources": {"limits": {"nvidia.com/gpu": "2", "cpu": "500m"}}}, {}],
        "initContainers": [
            {"resources": {"limits": {"nvidia.com/gpu": 4}}},
            {"restartPolicy": "Always", "resources": {"limits": {"nvidia.com/gpu": 1}}},
        ],
        "resourceClaims": [{"name": "a", "resourceClaimTemplateName": "one"}],
    }
    found = devices_of([pod, pod])
    assert found == Devices((("nvidia.com/gpu", 8),), ("one", "one"), gpus=8)
    assert (found.amount("nvidia.com/gpu"), found.amount("amd.com/gpu")) == (8, 0)


UNREADABLE: tuple[object, ...] = ("9" * 65, "9" * 1_000_000, True, None, [], {}, "9E999", "inf", float("nan"))


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        *((8, 8), ("8", 8), ("1k", 1000), ("1Ki", 1024), ("2000m", 2), ("1e3", 1000), ("1E3", 1000), ("1E", 10**18)),
        *(("16k", 16000), ("1.5Gi", 3 * 2**29), ("+2", 2), (".5", 1), ("5.", 5), ("1n", 1), ("1u", 1), ("2e-1", 1)),
        *((1.0, 1), ("0", 0), ("1e+2", 100), ("9223372036854775807", 2**63 - 1)),
        *((wrong, None) for wrong in ("", "k", "1K", "1KiB", "-1", "1 k", " 1", "1_000", "٣", "NaN", "1e999999999")),
        *((wrong, None) for wrong in UNREADABLE),
    ],
)
def test_quantities_are_read_as_kubernetes_writes_them(text: object, amount: int | None) -> None:
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
        ({"exactly": None}, Unknown("its fields are not as expected (AttributeError)")),
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


def test_whoever_names_thousands_of_templates_waits_for_himself() -> None:
    api = Api()
    api.found["mine"], api.late, templates = template(), 0.01, ClaimTemplates(api)
    templates.wanted = {("a", str(number)) for number in range(5_000)} | {("b", "mine")}
    virtual_time.run(lambda: templates.read(0.0))
    assert api.asked <= 1_001, "it has a deadline"
    assert templates.count("b", Devices(templates=("mine",)), "gpu.nvidia.com") == 0
