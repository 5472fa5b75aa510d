"""Mode Recommend posts what it would have done, once per change."""

from __future__ import annotations

import logging
from itertools import pairwise

import pytest

from .fake_cluster import FakeCluster
from .stories import settled

HPA = "kube-controller-manager"


def advised(world: FakeCluster) -> list[str]:
    return [message for _, _, reason, message in world.writes.events if reason == "Recommended"]


def test_what_auto_would_have_done_is_an_event_and_a_log_line_once(caplog: pytest.LogCaptureFixture) -> None:
    world = settled(mode="Recommend")
    caplog.set_level(logging.INFO, "servingpool")
    world.services["vllm"].rate = 30.0
    while not advised(world):
        world.step()
    (said,) = advised(world)
    wanted = world.status()["desiredReplicas"]
    assert said.startswith(f"Recommended {wanted} replicas, 2 are requested; reason: scale up 2 -> {wanted}: ")
    assert [record.getMessage() for record in caplog.records] == [said]
    world.step(minutes=30)
    sizes = [int(each.split()[1]) for each in advised(world)]
    assert all(before != after for before, after in pairwise(sizes))
    assert world.writes.scales == []


def test_an_hpa_that_moves_while_the_recommendation_stands_is_no_change_of_it() -> None:
    world = settled(mode="Recommend")
    world.set_replicas("vllm", 6, by=HPA)
    world.step(minutes=10)
    told = advised(world)
    assert told, "what stands is no longer what was right"
    wanted = world.status()["desiredReplicas"]
    world.set_replicas("vllm", 7, by=HPA)
    world.step()
    assert world.status()["desiredReplicas"] == wanted, "else this story tells something else"
    assert advised(world) == told


def test_a_restart_does_not_repeat_it() -> None:
    world = settled(mode="Recommend")
    world.set_replicas("vllm", 6, by=HPA)
    world.step(minutes=10)
    told = advised(world)
    world.restart()
    world.step(minutes=3)
    assert [each for each in advised(world)[len(told) :] if each.split()[2] == told[-1].split()[2]] == []


def test_other_modes_post_none() -> None:
    for mode in ("Auto", "Paused"):
        world = settled(mode=mode)
        world.services["vllm"].rate = 30.0
        world.step(minutes=5)
        assert advised(world) == []


def test_an_unknown_need_recommends_nothing() -> None:
    world = settled(mode="Recommend")
    world.prometheus.silent = "Prometheus backend 'default' cannot be reached"
    world.step()
    told = advised(world)
    for replicas in (3, 4, 5):
        world.set_replicas("vllm", replicas, by=HPA)
        world.step(minutes=1)
    assert advised(world) == told
