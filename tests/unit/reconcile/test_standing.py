"""A replica whose gauges nothing moves is named in the status, and goes first."""

from __future__ import annotations

from dataclasses import replace

from .fake_cluster import pod
from .stories import serving


def test_a_replica_that_shows_requests_and_makes_no_progress_is_named_and_removed_first() -> None:
    world = serving(replicas=4, minutes=30, targets=[{"name": "vllm", "min": 4, "max": 10}])
    stale = pod("vllm", 0)
    gauges = {True: {"running": 106.0, "waiting": 1.0}, False: {"running": 5.0, "waiting": 0.0}}
    world.exports = lambda sample: replace(sample, **gauges[sample.replica == stale])  # type: ignore[arg-type]
    world.services["vllm"].engines[0].serve = lambda *_: None  # type: ignore[method-assign]
    world.step(minutes=6)
    assert world.condition("MetricsAvailable") == ("True", "NoProgress")
    assert f"No counter of {stale} (107 requests since " in world.message("MetricsAvailable")
    assert world.status()["lastDecision"]["reason"].count(f"no progress at {stale}") == 1
    world.services["vllm"].rate = 1.0
    world.pool()
    world.step(minutes=30)
    assert world.writes.costs[0][0] == stale
    assert stale not in [engine.name for engine in world.services["vllm"].engines]
    assert world.condition("MetricsAvailable") == ("True", "ValidMetrics")
