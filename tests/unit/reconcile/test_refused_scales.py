"""The API server refuses a scale, or the target changed meanwhile."""

from __future__ import annotations

import pytest

from servingpool.adapters.cluster.errors import ClusterError, Conflict, Forbidden

from .stories import settled


def test_a_lasting_conflict_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    """A webhook that says no with a bare 422 looks like one."""
    world = settled()
    world.services["vllm"].rate = 30.0
    world.writes.refuse["scale"] = Conflict("Cannot scale Deployment chat/vllm: 422 Unprocessable Entity")
    while not world.target().conflicts:
        world.step()
    world.step()
    assert world.condition("Ready")[0] == "True"
    assert world.failures["scale"] == 0
    world.step()
    assert world.condition("Ready") == ("False", "FailedUpdateScale")
    assert world.message("Ready") == "Cannot scale Deployment chat/vllm: 422 Unprocessable Entity, 3 times in a row."
    assert world.failures["scale"] == 1, "of this there is an alert"
    assert "422 Unprocessable Entity, 3 times in a row" in caplog.text
    world.step()
    assert world.writes.reasons("pool").count("FailedUpdateScale") == 1
    world.set_replicas("vllm", len(world.services["vllm"].engines) + 1)
    world.step()
    assert world.condition("Ready")[0] == "True", "now somebody has changed the number"


def test_a_webhook_that_refuses_is_reported_even_if_every_third_read_fails() -> None:
    """Each look that failed began the count anew."""
    world = settled()
    world.services["vllm"].rate = 30.0
    world.writes.refuse["scale"] = Conflict("422 Unprocessable Entity")
    seen = set()
    for tick in range(24):
        world.prometheus.silent = "it did not answer" if tick % 3 == 2 else None
        world.step()
        seen.add(world.condition("Ready"))
    assert ("False", "FailedUpdateScale") in seen


def test_conflicts_with_something_else_between_them_are_not_in_a_row() -> None:
    world = settled()
    world.services["vllm"].rate = 30.0
    world.writes.refuse["scale"] = Conflict("409")
    while world.target().conflicts < 2:
        world.step()
    world.writes.refuse["scale"] = ClusterError("500")
    world.step()
    assert world.target().conflicts == 0


def test_a_refused_scale_is_reported_until_it_succeeds() -> None:
    world = settled()
    world.services["vllm"].rate = 30.0
    world.writes.refuse["scale"] = Forbidden("Cannot scale Deployment chat/vllm: 403 Forbidden")
    world.step(minutes=3)
    assert world.condition("Ready") == ("False", "FailedUpdateScale")
    assert world.message("Ready") == "Cannot scale Deployment chat/vllm: 403 Forbidden."
    assert world.writes.reasons("pool").count("FailedUpdateScale") == 1
    assert world.failures["scale"] > 1
    world.writes.refuse.clear()
    world.step()
    assert world.condition("Ready") == ("True", "SucceededGetScale")
