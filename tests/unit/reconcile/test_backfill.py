"""What Prometheus remembers, taught within bounds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from servingpool.adapters.prometheus.engines import profile_of, shipped, usable
from servingpool.adapters.prometheus.promql import Queries, Scope
from servingpool.api.serving_pool import ServingPool
from servingpool.loop import backfill
from servingpool.loop.backfill import PendingPool
from servingpool.reconcile.keep.state import PoolState

from ..decision.world import plain  # noqa: TID252, the one comparison of memories with arrays
from .fake_cluster import FakeCluster


def pools(count: int, *, replicas: int = 2) -> FakeCluster:
    """New ones, each with a model and a Deployment of its own."""
    world = FakeCluster(history=3600.0)
    for number in range(count):
        world.serve(f"vllm-{number}", model=f"model-{number}", replicas=replicas)
        world.pool(f"pool-{number}", target=f"vllm-{number}", model=f"model-{number}")
    return world


def warm(world: FakeCluster) -> list[bool]:
    return [state.backfilled for _, state in sorted(world.loop.states.items())]


def writes(world: FakeCluster, pool: str) -> int:
    return sum(name == pool for (_, name), _ in world.writes.statuses)


def test_history_is_learned_before_the_first_decision() -> None:
    world = FakeCluster(history=3600.0)
    world.serve(rate=6.0)
    world.pool()
    world.remember(minutes=50)
    world.step()
    assert world.state().memory.profile.learned > 2000
    assert world.state().memory.profile.engine.fit.known
    assert world.condition("Calibrating") == ("False", "Learned")
    assert isinstance(world.status()["lastDecision"]["need"], float)
    world.step(minutes=5)
    assert world.prometheus.asked.count("history") == 1


def test_history_of_another_deployment_is_not_learned() -> None:
    worlds = FakeCluster(history=3600.0), FakeCluster(history=3600.0)
    worlds[1].serve("vllm-canary", rate=30.0)
    worlds[1].pool("canary", target="vllm-canary")
    for world in worlds:
        world.serve(rate=6.0)
        world.pool()
        world.remember(minutes=50)
        world.step()
    alone, beside = (world.state().memory.profile for world in worlds)
    assert plain(beside) == plain(alone)
    canary = worlds[1].state("canary").memory.profile.engine
    assert canary.fit.known, "it has a past of its own"
    assert canary.fit != alone.engine.fit


def test_a_large_history_of_another_deployment_costs_a_pool_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the pages of all its namesakes in the answer it was refused, three times, and nobody had a past."""
    monkeypatch.setattr(backfill, "SAMPLES_AT_ONCE", 700)
    world = pools(2)
    world.serve("vllm-0-large", model="model-0", replicas=30)
    world.remember(minutes=50)
    world.step()
    assert [state.memory.profile.learned > 2000 for _, state in sorted(world.loop.states.items())] == [True, True]


@pytest.mark.parametrize("engine", usable(shipped()))
def test_a_query_is_no_longer_than_victoriametrics_accepts(engine: str) -> None:
    world = FakeCluster(history=600.0)
    for number in range(40):
        name, model = f"llama-3-1-8b-instruct-{number}", f"meta-llama/Llama-3.1-8B-Instruct-{number}"
        world.serve(name, model=model, replicas=1)
        world.pool(name, target=name, model=model)
    world.step()
    written = Queries(profile_of(engine))
    buckets = {source: ["0.5", "1.0", "2.5", "+Inf"] for source in written.sources}
    queries = [
        written.samples(buckets, Scope((), ("chat",), tuple(asked.models), asked.pods))
        for asked in world.prometheus.requests
    ]
    assert len(queries) > 1
    assert max(len(query.encode()) for query in queries) < 16 * 1024


def test_history_that_is_too_large_does_not_affect_others(caplog: pytest.LogCaptureFixture) -> None:
    """Each counted as a failure of its Prometheus, and behind the third nobody's past was asked for."""
    world = pools(8)
    world.remember(minutes=50)
    world.prometheus.huge = {f"model-{number}" for number in range(6)}
    world.step(2)
    learned = [state.memory.profile.learned > 1000 for _, state in sorted(world.loop.states.items())]
    assert learned == [False] * 6 + [True] * 2
    assert "begin without a past" not in caplog.text


def test_if_prometheus_is_down_at_the_start_conditions_say_so_and_history_is_read_later() -> None:
    world = FakeCluster(history=3600.0)
    world.serve(rate=6.0)
    world.pool()
    world.remember(minutes=50)
    world.prometheus.silent = "Prometheus backend 'default' cannot be reached"
    world.step()
    assert world.condition("MetricsAvailable") == ("False", "FailedGetMetrics")
    assert world.writes.scales == []
    assert "history" not in world.prometheus.asked
    world.prometheus.silent = None
    world.step()
    assert world.state().memory.profile.learned > 2000, "the past is asked for as soon as there is an answer"


def test_history_that_the_profile_has_seen_is_not_learned_twice() -> None:
    world = FakeCluster(history=3600.0)
    world.serve(rate=6.0)
    world.pool()
    world.remember(minutes=50)
    world.step(minutes=12)
    kept = world.status()["profile"]["learned"]
    world.restart()
    world.step()
    assert world.state().memory.profile.learned < kept + 1000


def test_a_new_pool_that_waits_for_its_turn_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfill, "SAMPLES_AT_ONCE", 2 * 240)
    monkeypatch.setattr(backfill, "LONGEST_TICK", 0.0)
    world = pools(3)
    world.prometheus.slow = 0.001
    world.step()
    decided, *waiting = (world.condition("Ready", f"pool-{number}") for number in range(3))
    assert decided != ("Unknown", "ReadingHistory")
    assert waiting == [("Unknown", "ReadingHistory")] * 2
    assert world.status("pool-2")["why"] == "ReadingHistory"
    assert writes(world, "pool-2") == 1
    world.step()
    assert world.condition("Ready", "pool-2") == ("Unknown", "ReadingHistory")
    assert writes(world, "pool-2") == 1
    world.step(3)
    assert all(warm(world))
    assert world.condition("Ready", "pool-2") != ("Unknown", "ReadingHistory")


def test_a_pool_that_waits_after_a_restart_keeps_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    world = pools(2)
    world.step()
    told, written = world.status("pool-1"), writes(world, "pool-1")
    monkeypatch.setattr(backfill, "SAMPLES_AT_ONCE", 2 * 240)
    monkeypatch.setattr(backfill, "LONGEST_TICK", 0.0)
    world.prometheus.slow = 0.001
    world.restart()
    world.step()
    assert warm(world) == [True, False]
    assert (world.status("pool-1"), writes(world, "pool-1")) == (told, written)


def test_the_more_pools_wait_the_shorter_their_history(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfill, "BACKLOG", 1000)
    for count, looks in ((1, 240), (10, 100), (50, 40)):
        world = pools(count)
        world.step()
        start, end = world.prometheus.spans[0]
        assert (end - start) / backfill.STEP == looks
        assert all(warm(world))


def test_a_large_fleet_reads_a_shorter_history(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfill, "SAMPLES_AT_ONCE", 600)
    world = pools(2, replicas=6)
    world.step()
    assert [(end - start) / backfill.STEP for start, end in world.prometheus.spans] == [100, 100]


def test_times_lie_on_the_grid_of_their_step() -> None:
    """VictoriaMetrics and Thanos move others onto it, and answer of times that nobody asked for."""
    world = pools(1)
    world.now += 7.3
    world.step()
    start, end = world.prometheus.spans[0]
    assert start % backfill.STEP == end % backfill.STEP == 0.0
    assert backfill.ENDS <= world.now - end < backfill.ENDS + backfill.STEP


def test_after_a_restart_only_unseen_history_is_read_known_pools_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = FakeCluster(history=3600.0)
    world.serve(rate=6.0)
    world.pool("z-managed")
    world.remember(minutes=50)
    world.step(minutes=12)
    world.serve("new", rate=6.0, model="new")
    world.pool("new", target="new", model="new")
    world.restart()
    monkeypatch.setattr(backfill, "SAMPLES_AT_ONCE", 2 * 240)
    world.prometheus.spans.clear()
    world.step()
    managed, new = world.prometheus.spans
    assert managed[0] == pytest.approx(world.status("z-managed")["profile"]["at"] - 600.0, abs=2 * backfill.STEP)
    assert new[1] - new[0] == 3600.0


def test_a_backend_without_history_is_asked_once_a_tick_and_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(backfill, "SAMPLES_AT_ONCE", 1)
    world = pools(5)
    world.prometheus.poison = {f"model-{number}" for number in range(5)}
    assert [world.step().decided for _ in range(4)] == [0, 0, 5, 5]
    assert world.prometheus.asked.count("history") == backfill.PATIENCE
    assert "failed 3 times; 5 pools start without history" in caplog.text


def test_a_pool_whose_history_cannot_be_read_does_not_affect_others() -> None:
    world = pools(3)
    world.prometheus.poison = {"model-0"}
    world.step()
    assert warm(world) == [False, False, False], "asked for together, and none was told"
    ticks = 0
    while not all(warm(world)):
        world.step()
        ticks += 1
        assert ticks < 10
    unheard = [state.failed_backfills for _, state in sorted(world.loop.states.items())]
    assert unheard == [backfill.PATIENCE, 1, 1], "from then on each was asked for alone"


def test_no_more_history_is_learned_at_once_than_a_tick_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfill, "OBSERVATIONS_AT_ONCE", 2 * 240)
    world = pools(5, replicas=1)
    world.step()
    assert world.prometheus.asked.count("history") == 3
    assert all(warm(world))


def test_pools_with_history_act_before_others_read_theirs() -> None:
    world = FakeCluster(history=3600.0)
    service = world.serve(rate=2.0)
    world.pool()
    world.step(minutes=8)
    service.rate = 60.0
    while not world.writes.scales:
        world.serve("new", model="new")
        world.pool("new", target="new", model="new")
        world.loop.states.pop(("chat", "new"), None)
        world.step()
    assert world.prometheus.scaled_before[-1] == 1


def test_a_namespace_with_many_new_pools_waits_for_itself() -> None:
    """Their pasts are read one label set after the other, and the other tenant's came behind all of them."""

    def fresh(namespace: str, name: str, failed: int = 0) -> PendingPool:
        meta = {"namespace": namespace, "name": name, "uid": f"{namespace}-{name}", "generation": 1}
        spec = {"model": "m", "slo": {"timeToFirstToken": "2s"}, "targets": [{"name": name, "max": 2}]}
        spec["metrics"] = {"matchLabels": {"team": name}}
        state = cast("PoolState", SimpleNamespace(failed_backfills=failed))
        return PendingPool(ServingPool.read({"metadata": meta, "spec": spec}), state, 1)

    many = [fresh("evil", f"p{number}") for number in range(500)]
    order = backfill._in_turn([*many, fresh("chat", "own"), fresh("chat", "failed", 1)])
    assert [one.pool.key for one in order[:2]] == [("evil", "p0"), ("chat", "own")]
    assert order[-1].pool.key == ("chat", "failed")
