"""What the operator does where the cluster is not as it should be: each case has its own words in the Ready condition."""

from __future__ import annotations

import pytest

from servingpool.api.status import Status

from ..decision.world import START  # noqa: TID252
from .fake_cluster import FakeCluster
from .stories import hungry, serving


def test_a_missing_target_is_waited_for() -> None:
    world = FakeCluster()
    world.pool()
    world.step()
    assert world.condition("Ready") == ("False", "TargetNotFound")
    assert world.message("Ready") == "Deployment vllm does not exist in namespace chat."
    world.step(minutes=5)
    assert world.writes.reasons("pool") == ["TargetNotFound"], "warned of once"
    world.serve()
    world.step()
    assert world.condition("Ready") == ("True", "SucceededGetScale")


@pytest.mark.parametrize(
    ("kind", "reason"), [("HorizontalPodAutoscaler", "OwnedByHPA"), ("ScaledObject", "OwnedByKEDA")]
)
def test_a_deployment_with_another_autoscaler_is_not_scaled(kind: str, reason: str) -> None:
    world = hungry()
    world.autoscaler(kind)
    world.step(minutes=5)
    assert world.writes.scales == []
    assert world.condition("Ready") == ("False", reason)
    assert f"{kind} 'x' scales" in world.message("Ready")
    assert world.writes.reasons("pool") == [reason]
    assert world.status()["desiredReplicas"] > 2, "what would be right is told all the same"
    world.autoscaler(kind, gone=True)
    world.step()
    assert len(world.writes.scales) == 1


def test_of_two_pools_with_one_target_the_older_acts() -> None:
    world = hungry()
    world.pool("younger", created=START + 60.0, targets=[{"name": "vllm", "min": 1, "max": 3}])
    world.step(minutes=5)
    assert world.condition("Ready", "pool") == ("True", "SucceededGetScale")
    assert world.condition("Ready", "younger") == ("False", "AmbiguousOwner")
    assert world.message("Ready", "younger").startswith("The older ServingPool 'pool' scales")
    assert world.writes.reasons("younger") == ["AmbiguousOwner"]
    assert len({after for _, _, after in world.writes.scales}) == len(world.writes.scales), "no tug of war"
    world.delete("pool")
    world.step()
    assert world.condition("Ready", "younger") == ("True", "SucceededGetScale")


def test_two_pools_made_in_the_same_second_are_told_apart_by_name() -> None:
    world = hungry()
    world.pool("another")
    world.step()
    assert world.condition("Ready", "another") == ("True", "SucceededGetScale")
    assert world.condition("Ready", "pool") == ("False", "AmbiguousOwner")


@pytest.mark.parametrize(
    "spec",
    [{"metrics": {"backend": "nowhere"}}, {"slo": {"timeToFirstToken": "20m"}}, {"mode": "auto"}, {"mode": "Paused"}],
    ids=["unknown backend", "invalid SLO", "invalid mode", "paused"],
)
def test_the_older_pool_owns_its_target_even_while_it_cannot_act(spec: dict[str, object]) -> None:
    """A younger pool with other limits took over the fleet for as long as the older one had a typing error."""
    world = hungry(**spec)
    world.pool("younger", created=START + 60.0)
    world.step(minutes=5)
    assert world.condition("Ready", "younger") == ("False", "AmbiguousOwner")
    assert world.writes.scales == []
    world.delete("pool")
    world.step()
    assert world.condition("Ready", "younger") == ("True", "SucceededGetScale")


@pytest.mark.parametrize(
    "targets",
    [None, [], "vllm", [None], [{"name": 1}], [{"name": "vllm", "kind": "StatefulSet"}]],
    ids=["null", "none", "a text", "a null", "a number as name", "another kind"],
)
def test_a_pool_that_names_no_deployment_owns_nothing(targets: object) -> None:
    world = hungry(targets=targets)
    world.pool("younger", created=START + 60.0)
    world.step(minutes=5)
    assert world.condition("Ready", "pool") == ("False", "InvalidSpec")
    assert world.condition("Ready", "younger") == ("True", "SucceededGetScale")


def test_zero_replicas_by_hand_pause_as_with_an_hpa() -> None:
    world = hungry()
    world.set_replicas("vllm", 0)
    world.step(minutes=5)
    assert world.writes.scales == []
    assert world.condition("Ready") == ("False", "ScalingDisabled")
    assert world.message("Ready") == "Deployment vllm has 0 replicas, so scaling is off. Scale it to 1 to resume."
    world.set_replicas("vllm", 1)
    world.step()
    assert world.condition("Ready")[0] == "True"


def test_no_replicas_are_added_while_pods_are_unschedulable() -> None:
    world = hungry()
    world.services["vllm"].unschedulable = True
    world.step(minutes=4)
    assert world.writes.scales != [], "the first order finds out"
    assert world.condition("Ready") == ("True", "WaitingForNode"), "a cluster autoscaler takes minutes"
    cause = Status.found(world.status()).cause
    assert cause is not None
    assert cause.message.endswith(" unschedulable; waiting for a node. The scheduler says: 3 nodes are cordoned.")
    assert world.status()["why"] == "WaitingForNode", "from the first minute"
    assert world.writes.reasons("pool") == ["SuccessfulRescale"] * len(world.writes.scales)
    world.step(minutes=2)
    orders = len(world.writes.scales)
    world.services["vllm"].rate = 60.0
    world.step(minutes=10)
    assert len(world.writes.scales) == orders
    assert world.condition("Ready") == ("False", "Unschedulable")
    assert "pods are unschedulable; no more are added. The scheduler says: 3 nodes" in world.message("Ready")
    assert any(limit["name"] == "Unschedulable" for limit in world.status()["lastDecision"]["limits"])
    world.services["vllm"].unschedulable = False
    world.step(minutes=5)
    assert world.condition("Ready") == ("True", "SucceededGetScale")


def test_a_node_may_take_as_long_as_a_replica_takes_to_start() -> None:
    """Where an image alone takes ten minutes, a scale-up that goes as ever would be a warning each time."""
    world = hungry(behavior={"coldStart": "12m"})
    world.services["vllm"].unschedulable = True
    world.step(minutes=11)
    assert world.condition("Ready") == ("True", "WaitingForNode")
    world.step(minutes=6)
    assert world.condition("Ready") == ("False", "Unschedulable")


def test_in_a_rollout_the_fleet_may_grow_and_does_not_shrink() -> None:
    world = serving(minutes=8)
    world.set_replicas("vllm", 6)
    world.rollout()
    world.writes.scales.clear()
    world.step(minutes=10)
    assert world.writes.scales == []
    assert world.condition("Ready") == ("True", "RolloutInProgress")
    assert any(limit["name"] == "RolloutInProgress" for limit in world.status()["lastDecision"]["limits"])
    world.rollout(over=True)
    world.step(minutes=5)
    assert world.writes.scales[-1][2] < 6


def test_an_unknown_backend_is_refused_with_the_known_ones() -> None:
    world = hungry(metrics={"backend": "thanos"})
    world.step(minutes=5)
    assert world.condition("Ready") == ("False", "UnknownBackend")
    assert world.message("Ready") == ("spec.metrics.backend 'thanos' cannot be used: known backends are default.")
    assert world.writes.scales == []


def test_a_backend_of_other_namespaces_is_not_read() -> None:
    world = FakeCluster(namespaces=("team-*",))
    world.serve(rate=30.0)
    world.pool()
    world.step(minutes=5)
    assert world.condition("Ready") == ("False", "UnknownBackend")
    assert world.message("Ready") == (
        "spec.metrics.backend 'default' cannot be used: it does not allow namespace chat."
    )
    assert world.prometheus.asked == []


def test_a_wrong_model_name_is_reported_with_the_right_one() -> None:
    world = hungry(model="lama")
    world.step(minutes=5)
    assert world.writes.scales == []
    assert world.condition("MetricsAvailable") == ("False", "NoSeriesForModel")
    assert "The pods export model_name 'llama', and spec.model is 'lama': set spec.model to 'llama' (" in world.message(
        "MetricsAvailable"
    )
    assert world.writes.reasons("pool") == ["NoSeriesForModel"]


def test_below_min_is_brought_up_without_any_metrics() -> None:
    world = serving(1.0, replicas=1, targets=[{"name": "vllm", "min": 3, "max": 10}])
    world.prometheus.silent = "Prometheus backend 'default' cannot be reached"
    world.step()
    assert world.writes.scales == [(("chat", "vllm"), 1, 3)]


ADVICE = "Recommend mode: computes a replica count and does not apply it."


@pytest.mark.parametrize(
    ("kind", "reason"), [("HorizontalPodAutoscaler", "OwnedByHPA"), ("ScaledObject", "OwnedByKEDA")]
)
def test_recommend_beside_an_autoscaler_says_that_auto_would_be_blocked(kind: str, reason: str) -> None:
    world = hungry(mode="Recommend")
    world.step(minutes=5)
    assert world.message("Ready") == ADVICE
    world.autoscaler(kind)
    world.step(minutes=1.25)
    assert world.condition("Ready") == ("True", "Recommending")
    assert (world.writes.scales, world.status()["lastDecision"]["verdict"]) == ([], "ScaleUp")
    assert world.status()["desiredReplicas"] > 2, "so that the two can be compared"
    first = "pause or delete it first." if kind == "ScaledObject" else "delete it first."
    assert world.message("Ready") == (
        f"{ADVICE} Auto would be blocked ({reason}): {kind} 'x' scales Deployment vllm; {first}"
    )
    assert set(world.writes.reasons("pool")) == {"Recommended"}, "it does what it is asked for"
    world.pool(mode="Auto")
    world.step()
    assert world.condition("Ready") == ("False", reason)
    assert world.message("Ready") == f"{kind} 'x' scales Deployment vllm; {first}"


def test_recommend_beside_a_pool_that_scales_the_same_deployment_says_so() -> None:
    world = hungry()
    world.pool("younger", created=START + 60.0, mode="Recommend")
    world.step()
    assert world.condition("Ready", "younger") == ("True", "Recommending")
    assert world.message("Ready", "younger") == (
        f"{ADVICE} Auto would be blocked (AmbiguousOwner): "
        "The older ServingPool 'pool' scales Deployment vllm already. Delete this pool, or set its mode to Recommend."
    )


def test_an_older_pool_that_recommends_owns_nothing_and_would_own_the_deployment_in_auto() -> None:
    world = hungry(mode="Recommend")
    world.pool("younger", created=START + 60.0)
    world.step(minutes=5)
    assert world.message("Ready") == ADVICE
    assert world.condition("Ready", "younger") == ("True", "SucceededGetScale")
    assert world.writes.scales != []
    world.pool(mode="Auto")
    world.step()
    assert world.condition("Ready", "younger") == ("False", "AmbiguousOwner")


def test_recommend_says_what_would_limit_auto() -> None:
    world = hungry(mode="Recommend")
    world.services["vllm"].unschedulable = True
    world.set_replicas("vllm", 3)
    world.step(minutes=8)
    assert world.condition("Ready") == ("True", "Recommending")
    assert world.message("Ready").startswith(f"{ADVICE} Auto would be limited (Unschedulable): ")


def test_a_paused_pool_says_as_well_what_would_stop_it() -> None:
    world = hungry(mode="Paused")
    world.autoscaler("HorizontalPodAutoscaler")
    world.step()
    assert world.condition("Ready") == ("True", "Paused")
    assert world.message("Ready") == (
        "Paused mode: observes and does not scale. "
        "Auto would be blocked (OwnedByHPA): HorizontalPodAutoscaler 'x' scales Deployment vllm; delete it first."
    )
