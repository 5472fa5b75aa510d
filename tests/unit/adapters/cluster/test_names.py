"""A pod's name tells its Deployment, as far as Kubernetes leaves it whole."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servingpool.adapters.cluster.kinds import DEPLOYMENT, LEADER_WORKER_SET, STATEFUL_SET, Sort
from servingpool.adapters.cluster.names import LONGEST_BASE, pods_of, pods_of_any

ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
NAMES = st.from_regex("[a-z0-9]([-a-z0-9]{0,78}[a-z0-9])?", fullmatch=True)
HASHES = st.text(ALPHABET, min_size=1, max_size=10)
DRAWS = st.text(ALPHABET, min_size=5, max_size=5)


def may_be_of(deployment: str, pod: str) -> bool:
    return re.fullmatch(pods_of(deployment), pod) is not None


@given(NAMES, HASHES, DRAWS)
def test_every_pod_of_a_deployment_may_be_its(name: str, revision: str, drawn: str) -> None:
    pod = f"{name}-{revision}-"[:LONGEST_BASE] + drawn
    assert may_be_of(name, pod)
    assert re.fullmatch(pods_of_any([(name, DEPLOYMENT), ("another", STATEFUL_SET)]), pod)


def test_the_pods_of_many_are_asked_for_in_few_words() -> None:
    names = [f"model-{number:02}" for number in range(20)]
    assert len(pods_of_any((name, DEPLOYMENT) for name in names)) <= sum(map(len, names)) + 40
    assert re.fullmatch(pods_of_any([("vllm", DEPLOYMENT)]), "vllm-canary-6d4cf7b9c8-x2x7q") is None
    assert re.fullmatch(pods_of_any([("a.b", DEPLOYMENT)]), "axb-6d4cf7b9c8-x2x7q") is None


@pytest.mark.parametrize("length", range(44, 64))
def test_however_long_its_name_is(length: int) -> None:
    name = "a" * length
    for revision in ("6d4cf7b9c8", "6d4c"):
        assert may_be_of(name, f"{name}-{revision}-"[:LONGEST_BASE] + "x2x7q")
        assert not may_be_of("b" + name[1:], f"{name}-{revision}-"[:LONGEST_BASE] + "x2x7q")


@pytest.mark.parametrize(
    "other",
    [
        "vllm-canary-6d4cf7b9c8-x2x7q",  # of a Deployment that begins with the same word
        "vllm-prefill-x2x7q",  # of a Job or a DaemonSet
        "vllm-12345-x2x7q",
        "vllm-6d4cf7b9c82-x2x7q",  # eleven characters are no hash
        "vllm-x2x7q",
        "vllm-6d4cf7b9c8-abcde",
        "vllm-0",  # of a StatefulSet
        "vllm-0-1",  # of a LeaderWorkerSet
        "",
    ],
)
def test_anothers_pod_is_not(other: str) -> None:
    assert not may_be_of("vllm", other)


def test_a_name_that_is_cut_may_be_that_of_another() -> None:
    assert may_be_of("a" * 57 + "bc", "a" * 57 + "b" + "x2x7q")
    assert may_be_of("a" * 57 + "bd", "a" * 57 + "b" + "x2x7q")


def test_a_dot_is_a_dot() -> None:
    assert may_be_of("qwen2.5", "qwen2.5-6d4cf7b9c8-x2x7q")
    assert not may_be_of("qwen2.5", "qwen2x5-6d4cf7b9c8-x2x7q")


@pytest.mark.parametrize(
    ("sort", "pod", "expected"),
    [
        (STATEFUL_SET, "vllm-0", True),
        (STATEFUL_SET, "vllm-canary-0", False),
        (LEADER_WORKER_SET, "vllm-11", True),
        (LEADER_WORKER_SET, "vllm-0-1", False),  # a worker: it serves nothing
        (("workload.serving.volcano.sh", "ModelServing"), "vllm-0-decode-0-0", True),
        (("workload.serving.volcano.sh", "ModelServing"), "vllm", False),
    ],
)
def test_pods_of_other_kinds_are_named_as_their_controllers_do(sort: Sort, pod: str, expected: bool) -> None:
    assert (re.fullmatch(pods_of("vllm", sort), pod) is not None) is expected
    assert (re.fullmatch(pods_of_any([("vllm", sort)]), pod) is not None) is expected
