"""A replica whose gauges nothing moves is named in the status, and goes first."""

from __future__ import annotations

from typing import Any

from .fake_cluster import FakeCluster, pod


def test_a_replica_that_shows_requests_and_makes_no_progress_is_named_and_removed_first() -> None:
    world = FakeCluster()
    world.serve(replicas=4, rate=6.0)
    world.pool(targets=[{"name": "vllm", "min": 4, "max": 10}])
    world.step(minutes=30)
    stale = pod("vllm", 0)
    pages = world.samples

    def samples() -> Any:
        found = pages()
        for (_, name), models in found.items():
            for model, page in models.items():
                gauges = {"running": 106.0, "waiting": 1.0} if name == stale else {"running": 5.0, "waiting": 0.0}
                models[model] = type(page)(**{field: getattr(page, field) for field in page.__slots__} | gauges)
        return found

    world.samples = samples  # type: ignore[method-assign]
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
