"""What a 422 means: both answers are as a real API server gave them."""

from __future__ import annotations

import gc
import json
import weakref
from typing import Any

import pytest

from servingpool.adapters.cluster.errors import ClusterError, Conflict, Invalid, NotFound, answer, refusal

TEST_FAILED: dict[str, Any] = {
    "kind": "Status",
    "message": "the server rejected our request due to an error in our request",
    "reason": "Invalid",
    "details": {},
    "code": 422,
}
DENIED: dict[str, Any] = {
    "kind": "Status",
    "message": "deployments.apps \"vllm\" is forbidden: ValidatingAdmissionPolicy 'freeze' denied request: no changes in December",
    "reason": "Invalid",
    "details": {"name": "vllm", "group": "apps", "kind": "deployments"},
    "code": 422,
}


def refused(body: str) -> ClusterError:
    return refusal("scale Deployment chat/vllm", 422, "Unprocessable Entity", body.encode())


def test_a_body_that_is_nested_without_end_has_no_words() -> None:
    assert str(refused("[" * 100_000)) == str(refused(""))


def test_a_patch_whose_test_failed_is_a_conflict() -> None:
    assert type(refused(json.dumps(TEST_FAILED))) is Conflict


@pytest.mark.parametrize("body", ["", "<html>", "[]", '{"details": null}', '{"details": {"causes": [7]}}'])
def test_a_refusal_without_an_object_is_taken_for_a_conflict_too(body: str) -> None:
    assert type(refused(body)) is Conflict


def test_a_policy_that_refuses_is_no_conflict_and_is_reported_in_its_words() -> None:
    """As a Conflict it was tried again for ever, and the pool said that all was well."""
    error = refused(json.dumps(DENIED))
    assert type(error) is Invalid
    assert "an admission policy" in str(error)
    assert str(error).endswith("denied request: no changes in December")


def test_another_object_under_the_same_name_is_a_conflict() -> None:
    causes = [{"reason": "FieldValueInvalid", "message": "field is immutable", "field": "metadata.uid"}]
    body = {"kind": "Status", "details": {"name": "vllm-7cr2f", "kind": "Pod", "causes": causes}, "code": 422}
    assert type(refused(json.dumps(body))) is Conflict


def test_a_failure_leaves_no_cycle_that_only_the_garbage_collector_ends() -> None:
    def fail() -> weakref.ref[ClusterError]:
        try:
            answer("read x", 404, "Not Found", b"")
        except NotFound as error:
            return weakref.ref(error)
        raise AssertionError

    gc.disable()
    try:
        assert fail()() is None
    finally:
        gc.enable()


def test_a_message_is_told_bounded_and_without_controls() -> None:
    """A webhook writes it, and it stands in conditions, logs and terminals."""
    told = str(refused(json.dumps({"message": "no\x1b]0;owned\x07\r\nFAKE\u202e line" + "x" * 100_000})))
    assert told.isprintable()
    assert len(told) < 600
    assert told.startswith("Cannot scale Deployment chat/vllm: 422 Unprocessable Entity: no\\x1b]0;owned")


def test_the_api_servers_sentence_is_told_where_its_status_says_little() -> None:
    message = 'the spec replicas field ".spec.replicas" does not exist'
    error = refusal("read it", 500, "Internal Server Error", json.dumps({"message": message}).encode())
    assert str(error) == f"Cannot read it: 500 Internal Server Error: {message}"
