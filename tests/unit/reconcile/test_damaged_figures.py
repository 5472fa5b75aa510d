"""One damaged figure in one scrape: nothing is ordered, and the status names pod and figure."""

from __future__ import annotations

from dataclasses import replace

from .fake_cluster import pod
from .stories import serving


def test_it_orders_nothing_and_is_told() -> None:
    world = serving(4.0, minutes=30, targets=[{"name": "vllm", "min": 1, "max": 60}])
    world.writes.scales.clear()
    first, sound = pod("vllm", 0), world.exports
    world.exports = lambda sample: replace(sample, prompt_tokens=1e12) if sample.replica == first else sample
    world.step()
    told = world.message("MetricsAvailable")
    assert world.condition("MetricsAvailable") == ("True", "PartialMetrics")
    assert f"{first}: 1e+12 prompt tokens in 15 s" in told
    world.exports = sound
    world.step(minutes=10)
    assert world.condition("MetricsAvailable") == ("True", "ValidMetrics")
    assert not any(after > before for _, before, after in world.writes.scales)
