from typing import Any

import pytest
from pydantic import ValidationError

from servingpool.api.serving_pool import ServingPool
from servingpool.api.spec import Slo
from servingpool.api.status import Status


def raw(**more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "servingpool.dev/v1alpha1",
        "kind": "ServingPool",
        "metadata": {"name": "chat", "namespace": "ml", "uid": "u", "generation": 3, "labels": {}},
        "spec": {"model": "llama", "slo": {"timeToFirstToken": "2s"}, "targets": [{"name": "llama", "max": 8}]},
    } | more


def test_reads_what_the_api_server_sends() -> None:
    pool = ServingPool.read(raw())
    assert pool.key == ("ml", "chat")
    assert pool.metadata.generation == 3
    assert pool.spec.slo.time_to_first_token == 2.0
    assert pool.spec.behavior.scale_down_window == 120.0
    assert pool.status == Status()


def test_a_manifest_survives_the_round_trip() -> None:
    pool = ServingPool.read(raw(status={"fleet": "1/1/8", "profile": {"version": 1, "fit": [0.5]}}))
    assert ServingPool.read(pool.to_dict()) == pool


def test_a_status_that_cannot_be_read_does_not_stop_the_pool() -> None:
    pool = ServingPool.read(raw(status={"replicas": "many", "fleet": "1/1/8"}))
    assert pool.spec.model == "llama"
    assert (pool.status.to_dict(), pool.status.unread) == (Status().to_dict(), True)


def test_the_highest_attainment_is_a_share_within_range() -> None:
    assert Slo.read({"timeToFirstToken": "2s", "attainment": 99.9}).attainment_share == 0.999


def test_another_kind_is_no_pool() -> None:
    with pytest.raises(ValidationError):
        ServingPool.read(raw(kind="Deployment"))


def test_a_figure_that_is_not_a_number_never_reaches_the_status() -> None:
    with pytest.raises(ValidationError):
        Status(attainment=float("nan"))
