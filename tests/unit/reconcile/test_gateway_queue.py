"""Requests that wait in a gateway before the engines."""

from __future__ import annotations

from servingpool.adapters.prometheus import GatewayQueue, GatewayReading
from servingpool.decision.observation import Unknown

from .fake_cluster import FakeCluster

ONE_MINUTE = 1.0


def test_requests_held_at_the_gateway_are_demand() -> None:
    queue = GatewayQueue(metric="queue_size", namespace_label="namespace")
    world = FakeCluster(gateway=queue)
    world.serve(rate=6.0)
    world.pool()
    world.prometheus.queue = GatewayReading({("chat", "llama"): 0.0}, by_namespace=True)
    world.step(minutes=8)
    replicas = world.status()["desiredReplicas"]
    world.prometheus.queue = GatewayReading({("chat", "llama"): 500.0}, by_namespace=True)
    world.step(minutes=ONE_MINUTE)
    assert world.status()["queueDepth"] >= 500
    assert world.status()["desiredReplicas"] > replicas


def test_a_gateway_that_does_not_answer_is_unknown_not_empty() -> None:
    world = FakeCluster(gateway=GatewayQueue(metric="queue_size"))
    world.serve(rate=6.0)
    world.pool()
    world.prometheus.queue = Unknown("Prometheus backend 'default' did not answer within 10 s")
    world.step(minutes=ONE_MINUTE)
    observation = world.state().observation
    assert observation is not None
    assert observation.gateway.queue == world.prometheus.queue


def test_a_gateway_without_a_queue_of_the_model_is_reported() -> None:
    """It forbids scale-downs, and stood in the last decision's sentence only."""
    world = FakeCluster(gateway=GatewayQueue(metric="queue_size"))
    world.serve(rate=6.0)
    world.pool()
    world.prometheus.queue = GatewayReading({(None, "llama-2"): 0.0}, by_namespace=False)
    world.step(minutes=ONE_MINUTE)
    assert world.condition("MetricsAvailable") == ("True", "PartialMetrics")
    assert world.message("MetricsAvailable") == (
        "The number of queued requests is unknown: the gateway exports no queue for model 'llama'. "
        "Scale-down is blocked until all metrics are read."
    )
    world.prometheus.queue = GatewayReading({(None, "llama"): 0.0}, by_namespace=False)
    world.step(minutes=ONE_MINUTE)
    assert world.condition("MetricsAvailable") == ("True", "ValidMetrics")


def test_a_gateway_that_answers_now_and_then_is_not_written_at_every_tick() -> None:
    world = FakeCluster(gateway=GatewayQueue(metric="queue_size"))
    world.serve(rate=6.0)
    world.pool()
    world.prometheus.queue = GatewayReading({(None, "llama"): 0.0}, by_namespace=False)
    world.step(minutes=12)
    before = len(world.writes.statuses)
    for tick in range(40):
        known = GatewayReading({(None, "llama"): 0.0}, by_namespace=False)
        world.prometheus.queue = Unknown("503") if tick % 2 else known
        world.step()
    assert len(world.writes.statuses) - before <= 12
