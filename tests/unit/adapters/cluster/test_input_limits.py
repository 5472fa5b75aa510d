"""What people write into objects is read in linear time and bounded, for it is read on the event loop of all tenants."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from servingpool.adapters.cluster import drain, input_limits, objects, quantity, selector
from servingpool.adapters.cluster.accelerators import counted
from servingpool.adapters.cluster.arguments import batch_limit, words
from servingpool.adapters.cluster.autoscaling import LAST_APPLIED, manifest_writers
from servingpool.adapters.cluster.cache import ClusterCache
from servingpool.adapters.cluster.devices import devices_of
from servingpool.adapters.cluster.errors import said
from servingpool.adapters.cluster.objects import TargetKey

from ...linear_time import in_about_linear_time  # noqa: TID252, tests are no package of an installed name


def shell(script: str) -> dict[str, Any]:
    return {"name": "vllm", "image": "vllm/vllm-openai", "command": ["sh", "-c"], "args": [script]}


def deployment(*containers: dict[str, Any], **meta: Any) -> dict[str, Any]:
    metadata = {"namespace": "chat", "name": "vllm", "uid": "d-1", "generation": 1, **meta}
    return {"metadata": metadata, "spec": {"replicas": 0, "template": {"spec": {"containers": list(containers)}}}}


def pod(**meta: Any) -> dict[str, Any]:
    times = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": {"namespace": "chat", "name": "p", "uid": "p-1", **times, **meta}, "spec": {"containers": []}}


def init_containers(number: int, **more: Any) -> dict[str, Any]:
    return {"initContainers": [{"resources": {"limits": {f"nvidia.com/{i}": 1}}, **more} for i in range(number)]}


PARSERS: dict[str, Callable[[int], object]] = {
    "a quoted word in a script": lambda n: objects.workload(deployment(shell("'" + "a" * n + " '"))),
    "a word in a script": lambda n: objects.workload(deployment(shell("a" * n + " b"))),
    "a quote that is not closed": lambda n: objects.workload(deployment(shell("'" + "a " * (n // 2)))),
    "short words in a script": lambda n: objects.workload(deployment(shell("a " * (n // 2)))),
    "many arguments": lambda n: objects.workload(deployment({"name": "a", "args": ["--a=b"] * (n // 5)})),
    "variables that grow": lambda n: words({"env": [{"name": "A", "value": "b" * n}], "args": ["$(A)" * (n // 4)]}),
    "a variable that is not closed": lambda n: words({"args": ["$(" * (n // 2), "${" + "a" * n]}),
    "a hook": lambda n: drain.read_drain({"containers": [{"lifecycle": {"preStop": {"exec": shell("a " * n)}}}]}),
    "a selector of values": lambda n: selector.parse(f"app in ({','.join('a' * (n // 2))})"),
    "a selector of terms": lambda n: selector.parse(",".join(["!a"] * (n // 3))),
    "a selector of blanks": lambda n: selector.parse("a" + " " * n + "b"),
    "a selector that opens": lambda n: selector.parse("a in " + "(" * n),
    "a quantity": lambda n: quantity.whole("9" * n),
    "resources": lambda n: devices_of([{"containers": [{"resources": {"limits": {f"a/{i}": 1 for i in range(n)}}}]}]),
    "init containers": lambda n: devices_of([init_containers(n // 64)]),
    "sidecars": lambda n: devices_of([init_containers(n // 64, restartPolicy="Always")]),
    "a name of a resource": lambda n: counted({f"nvidia.com/{'-' * n}gpu": 1, "." * n + "tencent.com/gpu": 1}),
    "a deletion cost": lambda n: objects.pod(pod(annotations={objects.DELETION_COST: "1" * n})),
    "owners": lambda n: objects.pod(pod(ownerReferences=[{"kind": "A", "uid": "b"}] * (n // 16))),
    "managers": lambda n: objects.workload(deployment(managedFields=[{"manager": "a", "fieldsV1": {}}] * (n // 16))),
    "an applied manifest": lambda n: manifest_writers(
        {"metadata": {"annotations": {LAST_APPLIED: "[" * n}}}, ("spec", "replicas")
    ),
    "an answer of the API server": lambda n: said("\x1b" * n),
}


@pytest.mark.parametrize("name", PARSERS)
def test_a_text_of_four_times_the_length_is_read_in_about_four_times_the_time(name: str) -> None:
    """Quadratic code takes 16 times as long. A word of a megabyte took two minutes, in which no tenant was served."""
    in_about_linear_time(PARSERS[name])


def test_a_megabyte_of_script_tells_nothing_and_is_said_to() -> None:
    found = objects.workload(deployment(shell("vllm serve --max-num-seqs=8 '" + "a" * 1_000_000 + " '")))
    assert found.batch_limit == math.inf
    assert found.drain.shutdown_timeout == drain.ARGUMENTS_LONG
    assert found.left_out == ("arguments of container vllm: longer than 16384 characters",)


def test_a_long_word_beside_options_hides_them_not() -> None:
    """Such as a chat template that is given in full."""
    container = {"args": ["--chat-template", "x" * 1_000_000, "--max-num-seqs=64"], "image": "vllm/vllm-openai"}
    assert batch_limit([container]) == 64.0


def test_variables_do_not_make_more_of_a_command_than_is_read() -> None:
    found = words({"env": [{"name": "A", "value": "b" * 5_000}], "args": ["$(A)" * 1_000, "$(A)", "--a=$(B)"]})
    assert found is not None
    assert [len(word) for word in found] == [input_limits.WORD, input_limits.WORD, 8]
    assert words({"env": [{"name": "A", "value": "b" * 5_000}], "args": ["$(A)"] * 5}) is None


@pytest.mark.parametrize(
    "text", ["app in (" + ",".join("a" * 400_000) + ")", ",".join(["app=a"] * 65), "a" * 5_000, "x" * 3_000_000]
)
def test_a_selector_that_nobody_writes_selects_nothing(text: str) -> None:
    assert selector.parse(text) is None


MEGABYTE = {f"key-{i}": "v" * 63 for i in range(10_000)}
LONG_OWNER = [{"kind": "ReplicaSet", "uid": "b", "name": "a" * 1_000_000, "controller": True}]


@pytest.mark.parametrize(
    "raw",
    [
        {**pod(), "spec": {"nodeSelector": MEGABYTE}},
        {**pod(), "spec": {"overhead": {f"nvidia.com/{'a' * 40}{i}": 1 for i in range(1_000)}}},
        pod(ownerReferences=LONG_OWNER),
        pod(labels=MEGABYTE),
    ],
    ids=["node selector", "devices", "owner", "labels"],
)
def test_a_pod_of_which_too_much_would_be_kept_is_left_out_by_name(raw: dict[str, Any]) -> None:
    cache = ClusterCache()
    cache.see_pod({"kind": "Pod", **raw}, gone=False)
    assert cache.left_out.around("chat")[1] == 1
    assert len(repr(cache._spaces)) < 10_000


def test_a_deployment_of_which_too_much_would_be_kept_is_left_out_by_name() -> None:
    cache, raw = ClusterCache(), deployment()
    cache.see_workload(raw, gone=False)
    raw["metadata"]["generation"], raw["spec"]["template"]["spec"]["nodeSelector"] = 2, MEGABYTE
    cache.see_workload(raw, gone=False)
    assert cache.workload(TargetKey("chat", "vllm")) is None
    assert cache.left_out.around("chat") == (
        ["Deployment vllm: more than 32768 characters of it would be kept"],
        1,
    )
