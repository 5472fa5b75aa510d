"""A pool whose bounds change by the clock, told on virtual time."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from servingpool.catalogue.metrics import Metric
from servingpool.reconcile.plan.pool_plan import core_pool

from .fake_cluster import FakeCluster
from .test_metrics import exposed


def unix(local: str) -> float:
    """Of a time with its offset."""
    return datetime.fromisoformat(local).timestamp()


def quiet(begin: str, *schedules: dict[str, Any], **spec: Any) -> FakeCluster:
    """One replica with next to nothing to do, from that time on."""
    world = FakeCluster()
    world.now = unix(begin)
    world.serve(replicas=1, rate=0.5)
    world.pool(schedules=list(schedules), **spec)
    return world


def until(world: FakeCluster, end: str) -> None:
    while world.now < unix(end):
        world.step()


def exported(world: FakeCluster, metric: Metric) -> dict[tuple[str, ...], float]:
    """Of its pool: the values by the labels after namespace and name."""
    return {
        tuple(sample.labels.values())[2:]: sample.value
        for family in exposed(world).collect()
        for sample in family.samples
        if sample.name == metric.value
    }


EVENING = {"name": "evening", "timeZone": "Europe/Berlin", "days": ["Tue"], "start": "23:30", "end": "00:30", "min": 4}


def test_replicas_are_there_when_the_window_begins_and_go_after_it_past_midnight() -> None:
    world = quiet("2026-11-24T23:00+01:00", EVENING)
    until(world, "2026-11-24T23:27+01:00")
    assert world.status()["bounds"] == {"min": 1, "max": 10}
    assert world.writes.scales == []
    until(world, "2026-11-24T23:30+01:00")
    assert world.writes.scales == [(("chat", "vllm"), 1, 4)]
    ahead = unix("2026-11-24T23:30+01:00") - world.writes.at[0]
    assert 120.0 <= ahead <= 135.0
    assert len(world.services["vllm"].engines) == 4, "all are ready"
    [event] = [event for event in world.writes.events if event[2] == "SuccessfulRescale"]
    assert f"min is 4 by schedule evening, which begins in {ahead:.0f} s" in event[3]
    until(world, "2026-11-25T00:29+01:00")
    assert world.status()["bounds"] == {"min": 4, "max": 10, "schedule": "evening"}
    assert world.condition("ScalingLimited") == ("True", "TooFewReplicas")
    assert "min is 4 by schedule evening." in world.message("ScalingLimited")
    assert len(world.writes.scales) == 1
    until(world, "2026-11-25T01:30+01:00")
    assert world.status()["bounds"] == {"min": 1, "max": 10}
    assert world.writes.scales[-1][2] == 1


def test_of_windows_that_overlap_the_highest_bounds_are_told_and_exported() -> None:
    night = {"name": "night", "timeZone": "UTC", "start": "20:00", "end": "06:00", "max": 2}
    launch = {"name": "launch", "timeZone": "UTC", "start": "21:00", "end": "23:00", "min": 3, "max": 12}
    for schedules in ((night, launch), (launch, night)):
        world = quiet("2026-11-24T22:00+00:00", *schedules)
        world.step(minutes=1)
        assert world.status()["bounds"] == {"min": 3, "max": 12, "schedule": "launch"}
        assert world.status()["fleet"] == "1/3/12"
        assert exported(world, Metric.MIN_REPLICAS) == {(): 3.0}
        assert exported(world, Metric.MAX_REPLICAS) == {(): 12.0}
        assert exported(world, Metric.SCHEDULE_BOUND) == {("min", "launch"): 3.0, ("max", "launch"): 12.0}
    until(world, "2026-11-24T23:30+00:00")
    assert world.status()["bounds"] == {"min": 1, "max": 2, "schedule": "night"}
    assert exported(world, Metric.SCHEDULE_BOUND) == {("max", "night"): 2.0}
    assert world.writes.scales[-1][2] <= 2


def test_a_window_of_the_price_alone_changes_dollars_and_no_bound() -> None:
    night = {"name": "night", "timeZone": "UTC", "start": "20:00", "end": "06:00", "max": 2}
    cheap = {"name": "cheap", "timeZone": "UTC", "start": "22:00", "end": "06:00", "costFactor": 0.5}
    dear = {"name": "dear", "timeZone": "UTC", "start": "22:00", "end": "23:00", "costFactor": 1.5}
    target = {"name": "vllm", "min": 1, "max": 10, "costPerReplicaHour": 4.0}
    world = quiet("2026-11-24T21:55+00:00", night, cheap, dear, targets=[target])
    for hour, dollars in (("21:58", 4.0), ("22:01", 6.0), ("23:01", 2.0)):
        until(world, f"2026-11-24T{hour}+00:00")
        assert world.status()["cost"] == {"dollarsPerHour": dollars}, "of prices in force the highest"
        assert exported(world, Metric.REPLICA_COST) == {(): dollars}
        assert world.status()["bounds"] == {"min": 1, "max": 2, "schedule": "night"}


def test_prices_up_to_the_last_deadline_are_the_highest_in_force_each_with_its_max() -> None:
    night = {"name": "night", "timeZone": "UTC", "start": "20:00", "end": "06:00", "costFactor": 0.5, "max": 4}
    peak = {"name": "peak", "timeZone": "UTC", "start": "22:00", "end": "23:00", "costFactor": 2}
    launch = {"name": "launch", "timeZone": "UTC", "start": "22:30", "end": "00:00", "min": 3, "max": 12}
    batch = {"finishWithin": "12h", "backlog": {"query": "sum(queue)"}}
    world = quiet("2026-11-24T19:00+00:00", night, peak, launch, slo=None, batch=batch)
    world.step()
    pool = world.state().pool
    assert pool is not None
    found = core_pool(pool, in_charge=True, during=(world.now, world.now + 60.0)).batch
    assert found is not None
    assert [((one.begin - unix("2026-11-24T19:00+00:00")) / 3600.0, *one[1:]) for one in found.tariffs] == [
        (15.0 / 3600.0, 1.0, 10),
        (1.0, 0.5, 4),
        (3.0, 2.0, 4),
        (3.5, 2.0, 12),
        (4.0, 0.5, 12),
        (5.0, 0.5, 4),
        (11.0, 1.0, 10),
    ]


def test_a_zone_that_this_operator_does_not_know_is_told_in_a_condition() -> None:
    """As the API server knows it, its database is newer."""
    world = quiet("2026-11-24T22:00+00:00", EVENING | {"timeZone": "Europe/Newtown"})
    world.step()
    assert world.condition("Ready") == ("False", "InvalidSpec")
    assert "spec.schedules[0].timeZone: must be an IANA time zone" in world.message("Ready")
    assert world.writes.scales == []
