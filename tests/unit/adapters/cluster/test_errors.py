"""What a 422 means: both answers are as a real API server gave them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kubernetes.aio.client.exceptions import ApiException

from servingpool.adapters.cluster.errors import ClusterError, Conflict, Invalid, translated

TEST_FAILED: dict[str, Any] = {
    "kind": "Status",
    "message": "the server rejected our request due to an error in our request",
    "reason": "Invalid",
    "details": {},
    "code": 422,
}
DENIED: dict[str, Any] = {
    "kind": "Status",
    "message": "deployments.apps \"vllm\" is forbidden: ValidatingAdmissionPolicy 'freeze' denied request: secret words",
    "reason": "Invalid",
    "details": {"name": "vllm", "group": "apps", "kind": "deployments"},
    "code": 422,
}


def refused(body: str | None) -> ClusterError:
    error = ApiException(status=422, reason="Unprocessable Entity")
    error.body = body
    with pytest.raises(ClusterError) as caught, translated("scale Deployment chat/vllm"):
        raise error
    return caught.value


def test_a_body_that_is_nested_without_end_has_no_words() -> None:
    assert str(refused("[" * 100_000)) == str(refused(None))


def test_a_patch_whose_test_failed_is_a_conflict() -> None:
    assert type(refused(json.dumps(TEST_FAILED))) is Conflict


@pytest.mark.parametrize("body", [None, "", "<html>", "[]", '{"details": null}'])
def test_a_refusal_without_an_object_is_taken_for_a_conflict_too(body: str | None) -> None:
    assert type(refused(body)) is Conflict


def test_a_policy_that_refuses_is_no_conflict_and_is_reported_without_its_words() -> None:
    """As a Conflict it was tried again for ever, and the pool said that all was well."""
    error = refused(json.dumps(DENIED))
    assert type(error) is Invalid
    assert "an admission policy" in str(error)
    assert "secret" not in str(error)


def test_another_object_under_the_same_name_is_a_conflict() -> None:
    causes = [{"reason": "FieldValueInvalid", "message": "field is immutable", "field": "metadata.uid"}]
    body = {"kind": "Status", "details": {"name": "vllm-7cr2f", "kind": "Pod", "causes": causes}, "code": 422}
    assert type(refused(json.dumps(body))) is Conflict
