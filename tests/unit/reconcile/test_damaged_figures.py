"""One damaged figure in one scrape: nothing is ordered, and the status names pod and figure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from .fake_cluster import pod
from .stories import serving


@pytest.mark.parametrize(
    ("figure", "said"),
    [
        ("prompt_tokens", "1e+12 prompt tokens in 15 s"),
        ("waiting", "1e+12 requests waiting after one scrape is more than can have come"),
    ],
)
def test_it_orders_nothing_and_is_told(figure: str, said: str) -> None:
    world = serving(4.0, minutes=30, targets=[{"name": "vllm", "min": 1, "max": 60}])
    world.writes.scales.clear()
    first, change, sound = pod("vllm", 0), {figure: 1e12}, world.exports
    world.exports = lambda sample: replace(sample, **change) if sample.replica == first else sample  # type: ignore[arg-type]
    world.step()
    told = world.message("MetricsAvailable")
    assert world.condition("MetricsAvailable") == ("True", "PartialMetrics")
    assert f"{first}: {said}" in told
    world.exports = sound
    world.step(minutes=10)
    assert world.condition("MetricsAvailable") == ("True", "ValidMetrics")
    assert not any(after > before for _, before, after in world.writes.scales)
