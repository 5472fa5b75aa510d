"""One damaged figure in one scrape: nothing is ordered, and the status names pod and figure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from .fake_cluster import FakeCluster, pod


@pytest.mark.parametrize(
    ("figure", "said"),
    [
        ("prompt_tokens", "1e+12 prompt tokens in 15 s"),
        ("waiting", "1e+12 requests waiting after one scrape is more than can have come"),
    ],
)
def test_it_orders_nothing_and_is_told(figure: str, said: str) -> None:
    world = FakeCluster()
    world.serve(replicas=2, rate=4.0)
    world.pool(targets=[{"name": "vllm", "min": 1, "max": 60}])
    world.step(minutes=30)
    world.writes.scales.clear()
    pages = world.samples

    def damaged() -> Any:
        found, key, change = pages(), ("chat", pod("vllm", 0)), {figure: 1e12}
        return found | {key: {name: replace(page, **change) for name, page in found[key].items()}}  # type: ignore[arg-type]

    world.samples = damaged  # type: ignore[method-assign]
    world.step()
    told = world.message("MetricsAvailable")
    assert world.condition("MetricsAvailable") == ("True", "PartialMetrics")
    assert f"{pod('vllm', 0)}: {said}" in told
    world.samples = pages  # type: ignore[method-assign]
    world.step(minutes=10)
    assert world.condition("MetricsAvailable") == ("True", "ValidMetrics")
    assert not any(after > before for _, before, after in world.writes.scales)
