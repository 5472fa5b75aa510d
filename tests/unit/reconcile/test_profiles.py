"""What was learned outlives a restart, and belongs to one pool and one model."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from .fake_cluster import merged
from .stories import ONE_MINUTE, settled


@pytest.mark.parametrize("change", ["another model", "deleted and made again"])
def test_what_was_learned_is_of_one_pool_and_one_model(change: str) -> None:
    """A typo in the model's name, corrected, had cost the measured start-up time: it is the workload's."""
    world = settled()
    world.services["vllm"].rate = 30.0
    world.step(minutes=6)
    starts = world.state().memory.profile.cold_start
    assert starts.seconds
    if change == "another model":
        world.services["vllm"].model = "mistral"
        world.pool(model="mistral")
    else:
        world.store(status={})
        world.state().uid = "an earlier one"
    world.step(minutes=ONE_MINUTE)
    assert world.state().memory.profile.learned < 100
    assert (world.state().memory.profile.cold_start == starts) == (change == "another model")
    assert world.condition("Calibrating") == ("True", "Learning")


def test_resumes_with_its_profile_after_a_restart() -> None:
    world = settled()
    world.step(minutes=12)
    learned = world.status()["profile"]["learned"]
    assert learned > 300
    world.restart()
    world.step()
    assert world.state().memory.profile.learned >= learned
    assert world.condition("Calibrating") == ("False", "Learned")
    writes = len(world.writes.statuses)
    world.step(minutes=5)
    assert len(world.writes.statuses) - writes <= 2, "a restart is no reason to write every pool"


@pytest.mark.parametrize("damage", [{"version": 99}, {"curve": {"requests": "nonsense"}}, {"model": "another"}])
def test_a_profile_that_cannot_be_used_is_dropped(damage: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    world = settled()
    world.step(minutes=12)
    world.store(status=merged(world.status(), {"profile": damage}))
    world.restart()
    world.step()
    assert "The learned profile is discarded" in caplog.text
    assert world.state().memory.profile.learned == 0.0


def test_stopping_writes_what_was_learned() -> None:
    world = settled()
    world.status().pop("profile", None)
    world.state().kept.written = {}
    asyncio.run(world.loop.stop())
    assert world.status()["profile"]["learned"] > 400


def test_a_follower_that_stops_writes_nothing() -> None:
    world = settled()
    world.state().kept.written = {}
    writes = world.writes.count()
    world.leading = False
    asyncio.run(world.loop.stop())
    assert world.writes.count() == writes
