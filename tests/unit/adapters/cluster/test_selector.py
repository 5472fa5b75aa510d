"""What a scale subresource writes as status.selector, as Kubernetes reads it."""

from __future__ import annotations

import pytest

from servingpool.adapters.cluster.selector import parse

LABELS = {"app": "vllm", "role": "decode", "leaderworkerset.sigs.k8s.io/worker-index": "0", "empty": ""}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("app=vllm", True),
        ("app==vllm", True),
        ("app=other", False),
        ("app=vllm,leaderworkerset.sigs.k8s.io/worker-index=0", True),
        ("app=vllm,leaderworkerset.sigs.k8s.io/worker-index=1", False),
        ("app!=vllm", False),
        ("absent!=vllm", True),
        ("role in (decode,prefill)", True),
        ("role in (prefill, router),app=vllm", False),
        ("app=vllm,role notin (prefill)", True),
        ("absent notin (x)", True),
        ("role", True),
        ("absent", False),
        ("!absent,app", True),
        ("!role", False),
        ("empty=", True),
        ("role=", False),
    ],
)
def test_a_selector_admits_what_it_says(text: str, expected: bool) -> None:
    selector = parse(text)
    assert selector is not None
    assert selector.admits(LABELS) is expected


@pytest.mark.parametrize("text", ["", " ", ",", "a=b=c", "role in decode", "two words"])
def test_what_is_no_selector_selects_no_pod(text: str) -> None:
    assert parse(text) is None
