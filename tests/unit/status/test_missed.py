"""A missed SLO is explained by its state, through the whole loop on virtual time: what is the cause now, and what to do."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

from servingpool.decision.observation import Histogram, ReplicaMetrics

from ..gpubudget.test_budgets import budget  # noqa: TID252, tests are no package of an installed name
from ..reconcile.fake_cluster import FakeCluster  # noqa: TID252
from ..reconcile.stories import serving, settled  # noqa: TID252


def pool(most: int = 8, **spec: Any) -> FakeCluster:
    """Two calm replicas that may become so many."""
    return settled(targets=[{"name": "vllm", "min": 1, "max": most}], **spec)


def until(world: FakeCluster, reason: str, rate: float, minutes: float = 20.0) -> str:
    """The message of SLOMet once it has this reason, at that rate. The status stores it at once."""
    world.services["vllm"].rate = rate
    for _ in range(round(4 * minutes)):
        world.step()
        if world.condition("SLOMet")[1] == reason:
            return world.message("SLOMet")
    raise AssertionError((world.condition("SLOMet"), world.message("SLOMet")))


def first_tokens(sample: ReplicaMetrics) -> Histogram:
    found = sample.time_to_first_token
    assert isinstance(found, Histogram)
    return found


def late(world: FakeCluster, share: float = 1.0) -> None:
    """From now on this share of the first tokens is late, whatever the load."""
    counted = {one.replica: first_tokens(one).count for models in world.samples().values() for one in models.values()}

    def exported(sample: ReplicaMetrics) -> ReplicaMetrics:
        found, before = first_tokens(sample), counted.get(sample.replica, 0.0)
        missed = share * (found.count - before)
        on_time = found.count - missed
        return replace(
            sample, time_to_first_token=Histogram(found.bounds, (on_time,) * 2, found.total + 2.5 * missed, found.count)
        )

    world.exports = exported


def test_a_fleet_whose_last_replica_is_ready_recovers_and_nothing_is_to_be_done() -> None:
    """It was told "Raise max, or relax the SLO" at 3 of 8 replicas, with the clients fine again for a minute."""
    world = pool()
    said = until(world, "ReplicasStarting", 28.0)
    assert re.search(r" (\d) of (\d) replicas are starting, ready in about (2m|1m\d+s)\.", said), said
    until(world, "Recovering", 28.0)
    world.step(minutes=1.5)
    ordered = world.services["vllm"].replicas
    status, said, told = world.status(), world.message("SLOMet"), set()
    assert status["fleet"] == f"{ordered}/{ordered}/8"
    assert status["attainment"] < 80.0
    assert status["lastDecision"]["figures"]["attainmentMinute"] > 0.99
    assert re.match(r"\d\d\.\d% of the last hour's requests met the SLO, of the last 5 minutes \d\d\.\d%, ", said), said
    assert "of the last minute 99.8%; the objective is 95%. Since " in said
    assert f"the load is within what the {ordered} ready replicas hold: the misses are from before." in said
    assert "max" not in said
    while world.condition("SLOMet") == ("False", "Recovering"):
        told.add(world.status()["why"])
        world.step()
    assert told == {"ScaleDownWindow", "Recovering"}, "and not Hold"
    assert world.condition("SLOMet") == ("True", "ObjectiveMet")


def test_too_few_requests_in_the_last_minute_are_unknown_and_not_zero() -> None:
    world = pool()
    until(world, "Recovering", 28.0)
    world.services["vllm"].rate = 0.1
    world.step(minutes=2)
    assert "of the last minute unknown (too few requests in 60 s); " in world.message("SLOMet")
    assert "attainmentMinute" not in world.status()["lastDecision"]["figures"]
    assert world.condition("SLOMet") == ("False", "Recovering")


def test_misses_count_as_present_where_a_minute_has_too_few_requests_to_tell() -> None:
    """Recovering was told for 16 minutes in which every request missed."""
    world = pool()
    world.services["vllm"].rate = 0.2
    world.step(minutes=60)
    late(world)
    told = []
    for _ in range(80):
        world.step()
        told.append(world.condition("SLOMet"))
    assert "of the last 5 minutes 0.0%, of the last minute unknown" in world.message("SLOMet")
    assert ("False", "ObjectiveMissed") in told
    assert ("False", "Recovering") not in told


def test_the_beginning_of_a_low_load_is_told_as_long_as_it_is_known() -> None:
    """After 20 minutes "Since 22:46 (19m45s)" moved on with each minute."""
    world = pool()
    said = until(world, "Recovering", 28.0)
    assert re.search(r"Since \d\d\d\d-\d\d-\d\d \d\d:\d\d UTC \(1m(15s)?\) the load is", said), said
    world.step(minutes=22)
    for _ in range(40):
        world.step()
        assert world.condition("SLOMet") == ("False", "Recovering")
        assert "For 19m or more the load is within what the " in world.message("SLOMet")


def test_max_is_named_where_it_binds_with_the_one_that_would_do() -> None:
    world = pool()
    until(world, "MaxTooLow", 60.0)
    world.step(minutes=5)
    said = world.message("SLOMet")
    told = re.search(r"needs (\d+) replicas; max allows 8\. Raise max to \1, or relax the SLO\.", said)
    assert told
    assert 8 < int(told[1]) < 32
    assert world.condition("ScalingLimited") == ("True", "TooManyReplicas")
    assert world.message("ScalingLimited") == f"The traffic needs {told[1]} replicas; max allows 8."


def test_a_need_at_the_end_of_what_was_weighed_has_no_figure() -> None:
    """At a max of 3 at most 12 replicas are weighed. "Raise max to 12" was told where 33 were needed, and where 10 were."""
    world = pool(most=3)
    until(world, "MaxTooLow", 60.0)
    world.step(minutes=5)
    assert world.decision().need == 12.0
    said = "The traffic needs more than 3 replicas; max allows 3."
    assert f"{said} Raise max in steps, or relax the SLO." in world.message("SLOMet")
    assert world.message("ScalingLimited") == said


def test_a_first_guess_above_max_is_no_fault_of_max() -> None:
    """A new pool was told to raise max to 16 while only its first steps limited it."""
    world = serving(60.0, replicas=1, targets=[{"name": "vllm", "min": 1, "max": 4}])
    told = []
    for _ in range(4):
        world.step()
        limits = world.decision().limits
        if limits and "TooManyReplicas" not in [one.name for one in limits]:
            told.append((world.condition("ScalingLimited"), world.condition("SLOMet")[1], limits[-1].name))
            assert f" {told[-1][2]} holds the fleet back: " in world.message("SLOMet")
    assert {one[:2] for one in told} == {(("False", "DesiredWithinRange"), "ScaleUpHeldBack")}
    assert told[-1][2] == "LearningStep"


def test_replicas_that_only_min_asks_for_are_no_cause() -> None:
    """ "The traffic needs 1 replica; 6 are desired, 2 are ready. WaitingForNode holds the fleet back" was told."""
    world = pool()
    world.services["vllm"].unschedulable = True
    world.services["vllm"].rate = 1.0
    world.pool(targets=[{"name": "vllm", "min": 6, "max": 8}])
    world.step(minutes=5)
    late(world)
    said = until(world, "ObjectiveMissed", 1.0)
    assert world.decision().replicas == 6
    assert world.message("ScalingLimited") in {f"The traffic needs {n}; min is 6." for n in ("1 replica", "2 replicas")}
    assert "that the traffic needs (2 ready), and requests are still late." in said


def test_every_text_has_the_raw_need_also_where_another_limit_comes_before_max() -> None:
    """A pool of 4 that needed 16 was told that the required replicas are within min and max."""
    world = pool(most=4)
    world.services["vllm"].unschedulable = True
    world.services["vllm"].rate = 60.0
    world.step(minutes=20)
    limits = world.decision().limits
    assert limits[-1].name == "Unschedulable"
    assert all(one.after == other.before for one, other in pairwise(limits))
    assert f"scale-up stops at {limits[-1].after:.0f}: " in limits[-1].reason
    assert world.message("ScalingLimited") == "The traffic needs more than 4 replicas; max allows 4."
    said = world.message("SLOMet")
    assert "The traffic needs more than 4 replicas (" in said
    assert "Unschedulable holds the fleet back: " in said
    assert "Or lower targets[].max." in said


def test_a_budget_that_holds_the_fleet_back_is_named() -> None:
    world = pool()
    budget(world, 8, "h100")  # four GPUs a replica
    said = until(world, "ScaleUpHeldBack", 60.0)
    assert (
        "GPUBudget holds the fleet back: GPUBudget h100 allows 2: 8 of 8 GPUs are in use, all by this pool. Raise "
        in said
    )
    assert "max" not in said


def test_a_budget_below_min_that_allows_what_the_traffic_needs_is_told_with_min() -> None:
    world = pool()
    budget(world, 12, "h100")
    world.pool(targets=[{"name": "vllm", "min": 6, "max": 8}])
    world.step(minutes=5)
    assert world.condition("ScalingLimited") == ("True", "GPUBudget")
    assert re.match(
        r"The traffic needs \d replicas?; min is 6\. GPUBudget h100 allows 3: ", world.message("ScalingLimited")
    )


def test_a_step_limit_that_holds_the_fleet_back_is_named() -> None:
    world = pool(behavior={"maxChangePerStep": 1})
    said = until(world, "ScaleUpHeldBack", 60.0)
    assert re.search(r"MaxChangePerStep holds the fleet back: this step stops at \d: maxChangePerStep is 1\.", said)


def test_replicas_that_crash_as_they_start_come_before_what_waits_for_them_and_before_max() -> None:
    """OneColdStart was named, for which nothing is to be done: "The next replicas follow as these become ready"."""
    world = pool()
    world.services["vllm"].rate, world.services["vllm"].start = 60.0, math.inf
    world.step(minutes=30)
    assert "6 of 8 replicas are starting for 2" in world.message("SLOMet")


def test_a_rollout_that_keeps_replicas_from_ready_is_named() -> None:
    world = pool()
    until(world, "ReplicasStarting", 28.0)
    world.rollout()
    assert "RolloutInProgress holds the fleet back: Rollout in progress" in until(world, "ScaleUpHeldBack", 28.0)


def test_what_a_mode_does_not_apply_is_no_fault_of_max() -> None:
    world = pool(mode="Recommend")
    said = until(world, "ScaleUpHeldBack", 28.0)
    assert re.search(r"needs (\d) replicas \(\1 desired, 2 ready\)\. Recommending holds the fleet back", said), said
    assert "Set spec.mode to Auto when you trust the recommendations." in said


def test_a_fleet_without_a_ready_replica_starts_and_its_metrics_hold_nothing_back() -> None:
    world = pool()
    until(world, "ReplicasStarting", 60.0)
    world.step(minutes=1)
    service = world.services["vllm"]
    for engine in service.engines:
        world.cache.see_pod({"metadata": {"namespace": "chat", "name": engine.name, "uid": engine.name}}, gone=True)
    service.orders += [world.now] * len(service.engines)
    service.engines.clear()
    world.step()
    status = world.status()
    assert (world.condition("SLOMet"), status["readyReplicas"]) == (("False", "ReplicasStarting"), 0)
    assert re.search(r"(\d+) of \1 replicas are starting, ready in about ", world.message("SLOMet"))


def test_that_no_fleet_size_holds_the_slo_is_told_with_the_time_since_when_it_is_certain() -> None:
    """Also by the next process."""
    world = settled(slo={"timeToFirstToken": "2s", "timePerOutputToken": "10ms"})
    assert world.condition("SLOMet") == ("False", "ObjectiveUnattainable")
    since, said = world.status()["unattainableSince"], world.message("SLOMet")
    assert "even an idle engine takes 16 ms per token. Set a bound above that, or use faster replicas." in said
    assert f"So since {since[:10]} {since[11:16]} UTC." in said
    world.step(minutes=30)
    world.restart()
    world.step(minutes=10)
    assert world.status()["unattainableSince"] == since
    assert f"So since {since[:10]} {since[11:16]} UTC." in world.message("SLOMet")


def test_no_attainment_to_set_is_named_while_more_requests_miss_than_the_floor() -> None:
    """ "Set attainment below 93.3%" was told at 0.0%, then 92.0%, then 84.0%: the floor climbs with the evidence."""
    world = pool()
    late(world)
    said = until(world, "ObjectiveUnattainable", 6.0, minutes=60.0)
    assert world.status()["why"] == "ObjectiveUnattainable", "and not ScaleDownWindow"
    assert re.search(r"About \d+\.\d% of requests miss the SLO at any fleet size; 5\.0% are allowed\. Raise", said)
    assert world.writes.reasons("pool").count("ObjectiveUnattainable") == 1
