"""What the loop does to a fleet, told on virtual time."""

from __future__ import annotations

import asyncio
import copy
import functools
import logging
from dataclasses import dataclass, replace
from typing import Any

import pytest

from servingpool.adapters.cluster.errors import NotFound
from servingpool.adapters.cluster.objects import Key, unix
from servingpool.adapters.prometheus.samples import PARTS
from servingpool.api.serving_pool import Metadata
from servingpool.decision.observation import NOT_EXPOSED
from servingpool.loop import reconciler
from servingpool.status.write_rate import WriteRate

from ..adapters.cluster.virtual_time import now as virtual_now  # noqa: TID252
from ..adapters.cluster.virtual_time import run  # noqa: TID252
from .fake_cluster import TICK, FakeCluster, stamp
from .stories import ONE_MINUTE, amid_reading, serving, settled, without_ttft


def test_scales_up_when_load_grows_and_says_so_once() -> None:
    world = settled()
    before = len(world.services["vllm"].engines)
    world.services["vllm"].rate = 30.0
    world.step(minutes=3)
    first = world.writes.scales[-1]
    assert first[2] > first[1] >= before
    scaled = [event for event in world.writes.events if event[2] == "SuccessfulRescale"]
    assert len(scaled) == len(world.writes.scales)
    assert scaled[-1][1] == "Normal"
    assert scaled[-1][3].startswith(f"New size: {first[2]}; reason: ")
    assert world.status()["lastScaleTime"]
    assert world.status()["desiredReplicas"] == first[2]


def test_a_change_writes_one_log_line_and_a_quiet_tick_none(caplog: pytest.LogCaptureFixture) -> None:
    world = settled()
    caplog.set_level(logging.INFO, "servingpool")
    world.writes.scales.clear()
    world.step(minutes=2)
    assert caplog.records == []
    world.services["vllm"].rate = 30.0
    world.step(minutes=3)
    assert len(caplog.records) == len(world.writes.scales) > 0
    assert vars(caplog.records[0])["pool"] == "chat/pool"
    assert vars(caplog.records[0])["to"] == world.writes.scales[0][2]


@pytest.mark.parametrize("fault", ["silent", "unscraped", "partly scraped"])
def test_never_scales_down_on_unknown(fault: str) -> None:
    world = settled()
    world.set_replicas("vllm", 6)
    world.step(minutes=2)
    orders = world.services["vllm"].replicas
    world.writes.scales.clear()
    if fault == "silent":
        world.prometheus.silent = "Prometheus backend 'default' cannot be reached"
    names = [engine.name for engine in world.services["vllm"].engines]
    world.hidden = set(names if fault == "unscraped" else names[:1] if fault == "partly scraped" else ())
    world.services["vllm"].rate = 0.5
    world.step(minutes=20)
    assert world.writes.scales == []
    assert len(world.services["vllm"].engines) == orders
    expected = ("True", "PartialMetrics") if fault == "partly scraped" else ("False", "FailedGetMetrics")
    assert world.condition("MetricsAvailable") == expected


def test_a_flapping_fault_posts_a_warning_every_ten_minutes_at_most() -> None:
    world = settled()
    for minute in range(18):
        world.prometheus.silent = "Prometheus backend 'default' cannot be reached" if minute % 2 else None
        world.step(minutes=ONE_MINUTE)
    assert world.writes.reasons("pool").count("FailedGetMetrics") == 2


def test_follower_never_writes_nor_reads() -> None:
    world = FakeCluster()
    world.leading = False
    world.serve(rate=30.0)
    world.pool()
    world.pool("broken", slo={})
    done = world.step(minutes=10)
    assert done.pools == 2
    assert world.writes.count() == 0
    assert world.prometheus.asked == []


def test_a_leader_deposed_in_a_tick_does_not_write() -> None:
    world = settled()
    world.services["vllm"].rate = 30.0
    writes = world.writes.count()
    amid_reading(world, lambda: setattr(world, "leading", False))
    for _ in range(8):
        world.leading = True
        world.step()
    assert world.writes.count() == writes


def test_a_pool_paused_while_prometheus_is_read_is_not_scaled() -> None:
    world = settled()
    world.services["vllm"].rate = 30.0
    amid_reading(world, lambda: world.pool(mode="Paused"))
    for _ in range(8):
        world.pool()
        world.step()
    assert world.writes.scales == []


def test_an_api_server_that_hangs_leaves_the_rest_for_the_next_tick(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = settled()
    world.services["vllm"].rate = 30.0

    async def hangs(*_: Any, **__: Any) -> None:
        await asyncio.sleep(60.0)

    with monkeypatch.context() as patch:
        patch.setattr(reconciler, "LONGEST_ACTING", 0.05)
        patch.setattr(world, "scale", hangs)
        world.step(minutes=2)
    assert "The API server is slow" in caplog.text
    world.step()
    assert len(world.writes.scales) == 1


def test_a_namespace_with_very_many_pools_to_write_delays_no_others_round(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """1,500 pools of one tenant that are told that they have no target: the round took three ticks, for all."""
    world = settled()
    one = copy.deepcopy(world.cache.pools["chat", "pool"])
    for number in range(400):
        meta = {"name": f"far-{number}", "namespace": "tenant", "uid": f"far-{number}"}
        spec = {**one["spec"], "targets": [{"name": f"none-{number}", "max": 1}]}
        world.cache.see_pool({"metadata": {**one["metadata"], **meta}, "spec": spec, "status": {}}, gone=False)
    written: set[str] = set()
    write_status = world.write_status

    async def slow(pool: Key, changes: Any) -> None:
        await asyncio.sleep(1.0)
        written.add(pool[1])
        await write_status(pool, changes)

    monkeypatch.setattr(world, "write_status", slow)
    decided: list[int] = []

    async def ticks() -> None:
        for tick in range(4):
            world.serve_on()
            decided.append((await world.loop.tick(world.now)).decided)
            await asyncio.sleep(15.0 * (tick + 1) - virtual_now())

    run(ticks)
    assert decided == [1, 1, 1, 1]
    assert {f"far-{number}" for number in range(400)} <= written
    assert "No time is left in this round: of 401 pools" in caplog.text


@dataclass(frozen=True)
class Write:
    """A stand-in for a planned write, with the fields that `write_order` reads."""

    name: str
    grows: bool = False

    @property
    def meta(self) -> Metadata:
        namespace, _, name = self.name.partition("/")
        return Metadata(namespace=namespace, name=name)


def test_a_namespace_that_grows_by_very_many_pools_delays_no_other() -> None:
    due: list[Any] = [(None, Write(f"tenant/{number}", grows=True)) for number in range(1000)]
    due += [(None, Write("chat/down")), (None, Write("chat/late")), (None, Write("chat/up", grows=True))]
    order = [each.meta.key for _, each in reconciler.write_order(due, {("chat", "late")})]
    assert [name for namespace, name in order[:6] if namespace == "chat"] == ["up", "late", "down"]
    assert len(order) == len(due)


def test_a_pool_that_was_not_read_keeps_its_status_until_its_samples_are_stale() -> None:
    """Decided on what was read last, a fleet shrank on what was 45 s old; told as unknown, its status was written
    twice a minute."""
    world = settled()
    before = world.status()
    world.prometheus.busy = True
    for _ in range(3):
        assert world.step().decided == 0
        assert world.status() == before
    world.step(minutes=1)
    assert world.condition("MetricsAvailable") == ("False", "FailedGetMetrics")
    assert "was busy with other queries" in world.message("MetricsAvailable")
    world.prometheus.busy = False
    world.step()
    assert world.condition("MetricsAvailable")[0] == "True"


def test_paused_observes_and_touches_nothing() -> None:
    world = serving(30.0, minutes=5, mode="Paused")
    assert world.writes.scales == []
    assert world.condition("Ready") == ("True", "Paused")
    assert world.status()["throughput"]["generationTokensPerSecond"] > 0


def test_no_status_write_when_nothing_changed() -> None:
    world = settled()
    world.writes.statuses.clear()
    world.step(minutes=10)
    told = [set(changes) for _, changes in world.writes.statuses]
    assert len(told) <= 2, "what was learned is kept every few minutes"
    assert all(changes <= {"profile", "lastDecision"} for changes in told), told


def test_an_idle_pool_tells_the_age_of_its_decision_within_minutes() -> None:
    """Its status was written once, and looked as that of an operator that is dead."""
    world = settled()
    world.services["vllm"].rate = 0.0
    world.step(minutes=90)
    for _ in range(4):
        world.step(minutes=17)
        assert world.now - unix(world.status()["lastDecision"]["at"]) <= 600.0 + TICK


def test_figures_that_move_are_written_once_a_minute_at_most() -> None:
    world = settled()
    written = len(world.writes.statuses)
    for minute in range(10):
        world.services["vllm"].rate = 6.0 if minute % 2 else 4.0
        world.step(minutes=ONE_MINUTE)
    assert 0 < len(world.writes.statuses) - written <= 12


def test_a_deleted_pool_is_forgotten_and_its_workload_kept() -> None:
    world = settled()
    world.services["vllm"].rate = 30.0
    world.delete()
    fleet = len(world.services["vllm"].engines)
    writes = world.writes.count()
    world.step(minutes=5)
    assert world.loop.states == {}
    assert world.writes.count() == writes
    assert len(world.services["vllm"].engines) == fleet


def test_a_pool_that_the_api_server_no_longer_has_is_forgotten_at_once() -> None:
    """It was deleted while its watch was broken: nothing else tells of that."""
    world = settled()
    world.writes.refuse["status"] = NotFound("Cannot write the status of ServingPool chat/pool: 404 Not Found")
    world.autoscaler("HorizontalPodAutoscaler")  # which is told at once
    world.step()
    assert world.cache.pools == {}
    assert world.loop.states == {}, "its figures are exported no longer"
    world.autoscaler("HorizontalPodAutoscaler", gone=True)
    world.services["vllm"].rate = 30.0
    world.step(minutes=5)
    assert world.writes.scales == []


def test_a_pool_deleted_while_prometheus_is_read_stops_nobody() -> None:
    world = settled()
    world.serve("other", rate=3.0)
    world.pool("other", target="other")
    world.step()
    amid_reading(world, lambda: world.delete("pool") if ("chat", "pool") in world.cache.pools else None)
    assert world.step().decided == 1


def test_samples_that_lack_a_series_are_not_valid_metrics() -> None:
    world = settled()
    said = "Prometheus has the pods without {}. Replicas stay as they are. Keep them in the monitor{}."
    either = ", update the engine, or switch them on"
    parts = {PARTS[part]: f"the {part} of time to first token" for part in PARTS}
    for lost, told in {NOT_EXPOSED: "time to first token", **parts}.items():
        world.exports = functools.partial(replace, time_to_first_token=lost)
        world.step(minutes=ONE_MINUTE)
        assert world.condition("MetricsAvailable") == ("False", "MissingFigures")
        assert world.message("MetricsAvailable") == said.format(told, "" if lost in parts else either)
    whole = world.services["vllm"].engines[0].name
    world.exports = lambda sample: sample if sample.replica == whole else without_ttft(sample)
    world.step(minutes=ONE_MINUTE)
    assert world.condition("MetricsAvailable") == ("True", "PartialMetrics")
    assert world.message("MetricsAvailable") == (
        "Prometheus has the pods without time to first token. Scale-down is blocked until all metrics are read."
    )


def test_the_cost_of_tokens_is_reported() -> None:
    world = settled(targets=[{"name": "vllm", "min": 1, "max": 10, "costPerReplicaHour": 36.0}])
    throughput, ready = world.status()["throughput"], world.status()["readyReplicas"]
    rate = throughput["generationTokensPerSecond"]
    assert throughput["tokensPerSecondPerGpu"] == pytest.approx(rate / (ready * 4), rel=0.01)
    assert throughput["dollarsPerMillionTokens"] == pytest.approx(ready * 0.01 / rate * 1e6, rel=0.01)


def test_the_status_counts_ready_wanted_and_most_replicas() -> None:
    world = serving()
    world.set_replicas("vllm", 3)
    world.step()
    status = world.status()
    assert status["fleet"] == f"2/{status['desiredReplicas']}/10"
    assert (status["replicas"], status["readyReplicas"]) == (3, 2)
    assert status["observedGeneration"] == 1


def test_a_thousand_new_pools_do_not_delay_the_pool_that_must_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them is told that it has no target; the status of the pool that scales is written in the same tick."""
    world = settled()
    monkeypatch.setattr(world.reporter, "rate", WriteRate(most=2.0))
    one = copy.deepcopy(world.cache.pools["chat", "pool"])
    for number in range(100):
        meta = {"name": f"new-{number}", "uid": f"uid-new-{number}"}
        spec = {**one["spec"], "targets": [{"name": f"none-{number}", "max": 1}]}
        world.cache.see_pool({"metadata": {**one["metadata"], **meta}, "spec": spec, "status": {}}, gone=False)
    world.services["vllm"].rate = 30.0
    told: list[int] = []
    while len(told) < 8:
        before = len(world.writes.statuses)
        world.step()
        if world.writes.at and world.writes.at[-1] == world.now:
            assert world.status()["lastScaleTime"] == stamp(world.now), "who scales waits for nobody"
        told.append(len({pool for pool, _ in world.writes.statuses[before:] if pool[1] != "pool"}))
    assert world.writes.scales
    assert max(told) <= 30
    assert all(world.status(f"new-{number}")["conditions"] for number in range(100))
    assert told[6:] == [0, 0], "what is told is not told again"


def test_a_condition_that_waits_for_its_write_keeps_the_time_of_its_change(monkeypatch: pytest.MonkeyPatch) -> None:
    world = settled()
    monkeypatch.setattr(world.reporter, "rate", WriteRate(most=0.0))
    world.autoscaler("HorizontalPodAutoscaler")
    world.step()
    changed = world.now
    world.step(minutes=4)
    assert world.condition("Ready") == ("True", "SucceededGetScale")
    monkeypatch.setattr(world.reporter, "rate", WriteRate())
    world.step()
    [ready] = [one for one in world.status()["conditions"] if one["type"] == "Ready"]
    assert (ready["status"], ready["lastTransitionTime"]) == ("False", stamp(changed))
