"""All pools of all clusters at a glance, from the operators' own metrics alone."""

from __future__ import annotations

import json

import pytest

from ..gpubudget.test_budgets import two  # noqa: TID252, tests are no package of an installed name
from ..reconcile.stories import settled  # noqa: TID252
from .recorder import Recorder

TARGET = {"name": "vllm", "min": 1, "max": 2, "costPerReplicaHour": 12.0}


def test_clusters_of_one_prometheus_are_one_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool at max in one cluster, and in another two pools that wait for GPUs of a budget."""
    eu, us = Recorder(settled(targets=[TARGET])), Recorder(two(gpus=16, high=30.0, low=30.0))
    eu.world.services["vllm"].rate = 30.0
    us.world.step(minutes=15)
    eu.added, us.added = (lambda labels, of=name: {**labels, "cluster": of} for name in ("eu", "us"))
    eu.run(5)
    us.run(5)
    eu.scraped[eu.world.now] += us.scraped[us.world.now]
    found = json.loads(eu.ask(monkeypatch, "fleet", "-o", "json", pool="").stdout)
    plan = eu.world.plan()
    load, safe, output = (getattr(plan.decision.figures, name) for name in ("load", "safe_load", "generation_rate"))
    first, second = (list(one.values()) for one in found["models"])
    headroom = pytest.approx(output / load * (safe - load))
    assert first == ["eu", "chat", "llama", 1, 2.0, 2.0, output, 8.0, 24.0, headroom]
    assert (second[:6], second[8]) == (["us", "chat", "llama", 2, 4.0, 4.0], None), "nobody has said what it costs"
    assert found["budgets"] == [{"cluster": "us", "budget": "h100", "gpus": 16.0, "held": 16.0, "free": 0.0}]
    trouble = {(one["cluster"], one["pool"], one["state"]): one["for"] for one in found["trouble"]}
    assert trouble["eu", "chat/pool", "at max"] == "4m45s"
    assert {place[1] for place in trouble if place[2] == "waits for GPUs"} == {"chat/high", "chat/low"}
    told = eu.ask(monkeypatch, "fleet", pool="").stdout
    assert "us       h100    16    16    0" in told
