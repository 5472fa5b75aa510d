"""What people see of a pool with several targets: status, conditions, metrics, cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from servingpool.api.conditions import Reason, Truth
from servingpool.api.serving_pool import ServingPool
from servingpool.api.status import Candidate, Limit, Status
from servingpool.catalogue.metrics import Metric
from servingpool.decision.decision import Part
from servingpool.decision.observation import Observation, Ordered, Replica, Unknown
from servingpool.reconcile.plan.expense import Expense, expense_of
from servingpool.status.conditions import judge_targets, targets_of

from ..reconcile.stories import SEVERAL  # noqa: TID252, tests are no package of an installed name
from ..reconcile.stories import several as world  # noqa: TID252
from ..reconcile.test_metrics import exposed  # noqa: TID252

SPOT_IS_OUT = Part("spot", 3, 1, 0, 0.5, 90.0, "pods without a node: 3")
ON_DEMAND = Part("on-demand", 2, 4, 2, 1.0, 100.0)


def test_the_status_has_each_target_and_their_sums() -> None:
    found = world()
    found.step(minutes=2)
    status = Status.read(found.status())
    assert status.targets is not None
    assert [one.name for one in status.targets] == ["on-demand", "spot"]
    assert sum(one.replicas for one in status.targets) == status.replicas == 4
    assert sum(one.ready for one in status.targets) == status.ready_replicas == 4
    assert sum(one.desired for one in status.targets) == status.desired_replicas
    assert found.condition("TargetsAvailable") == ("True", "TargetsDeliver")


def test_conditions_and_targets_go_with_the_second_target() -> None:
    found = world()
    found.step(minutes=2)
    found.pool(targets=SEVERAL[:1])
    found.step()
    assert "targets" not in found.status()
    assert "TargetsAvailable" not in {one["type"] for one in found.status()["conditions"]}


def test_a_refused_pool_has_no_targets() -> None:
    found = world()
    found.step(minutes=2)
    found.pool(targets=[*SEVERAL, {"name": "gone", "max": 2}])
    found.step()
    assert found.condition("Ready") == ("False", "TargetNotFound")
    assert found.condition("TargetsAvailable") == ("Unknown", "TargetNotFound")
    assert "targets" not in found.status()


def test_the_condition_says_which_target_does_not_deliver_and_which_takes_over() -> None:
    found = judge_targets([ON_DEMAND, SPOT_IS_OUT])
    said = "spot: pods without a node: 3. In its place: 4 of on-demand."
    assert found == (Reason.TARGET_NOT_DELIVERING, said)
    assert Reason.TARGET_NOT_DELIVERING.status is Truth.FALSE


def test_where_no_target_delivers_the_condition_says_so() -> None:
    found = judge_targets([SPOT_IS_OUT, SPOT_IS_OUT._replace(target="other", stuck="pods without a node: 1")])
    assert found is not None
    assert found[1] == "spot: pods without a node: 3. other: pods without a node: 1. No other target delivers."


def test_a_target_is_told_with_its_speed_once_that_is_known() -> None:
    told = targets_of([ON_DEMAND, SPOT_IS_OUT._replace(measured=False)], done=False)
    assert told is not None
    assert told[0].to_dict() == {
        "name": "on-demand",
        "replicas": 2,
        "ready": 2,
        "desired": 4,
        "speed": 1.0,
        "coldStart": "1m40s",
    }
    assert told[1].speed is None
    assert told[1].stuck == "pods without a node: 3"


def test_what_was_ordered_just_now_is_told_at_once() -> None:
    told = targets_of([ON_DEMAND, SPOT_IS_OUT], done=True)
    assert told is not None
    assert [one.replicas for one in told] == [4, 1]


def test_replicas_of_the_reference_need_not_be_whole_and_those_of_one_target_are() -> None:
    assert Limit(name="a", before=3.25, after=4.0, reason="b").to_dict() == {
        "name": "a",
        "before": 3.25,
        "after": 4,
        "reason": "b",
    }
    whole = Candidate(replicas=3.0, misses=0.5).to_dict()["replicas"]
    assert isinstance(whole, int)
    assert f"{Limit.read({'name': 'a', 'before': 2, 'after': 3, 'reason': 'b'}).before}" == "2"


def test_metrics_have_series_by_target_and_one_target_has_none() -> None:
    found = world()
    found.step(minutes=2)
    registry = exposed(found)

    def figure(metric: Metric, target: str) -> float | None:
        return registry.get_sample_value(metric.value, {"namespace": "chat", "pool": "pool", "target": target})

    assert [figure(Metric.TARGET_READY, name) for name in ("on-demand", "spot")] == [2.0, 2.0]
    assert [figure(Metric.TARGET_REQUESTED, name) for name in ("on-demand", "spot")] == [2.0, 2.0]
    assert figure(Metric.TARGET_DESIRED, "spot") is not None
    labels = {"namespace": "chat", "pool": "pool"}
    assert registry.get_sample_value(Metric.REPLICA_COST.value, labels) is None, "it is another of each target"
    assert registry.get_sample_value(Metric.GPUS.value, labels) == 16.0
    assert registry.get_sample_value(Metric.COST.value, labels) == 28.0
    found.pool(targets=SEVERAL[:1])
    found.step()
    assert figure(Metric.TARGET_READY, "on-demand") is None
    assert registry.get_sample_value(Metric.REPLICA_COST.value, labels) == 10.0


def spent(gpus: Mapping[str, int], *, spot: int, priced: bool = True) -> Expense:
    """Two on-demand replicas, and so many of spot."""
    found = world()
    found.step()
    raw = found.cache.pools["chat", "pool"]
    targets = SEVERAL if priced else [SEVERAL[0], {"name": "spot", "max": 4}]
    pool = ServingPool.read({**raw, "spec": {**raw["spec"], "targets": targets}})
    counts = {"on-demand": 2, "spot": spot}
    ready = tuple(Replica(f"{name}-{at}", 900.0, 600.0, target=name) for name in counts for at in range(counts[name]))
    observation = Observation(sum(counts.values()), ready=ready, targets=tuple(Ordered(*one) for one in counts.items()))
    return expense_of(pool, observation, replace(found.decision().figures, generation_rate=2400.0), gpus, {}, found.now)


def test_each_target_has_its_own_cost_and_gpus() -> None:
    told = spent({"on-demand": 4, "spot": 2}, spot=3)
    assert told.dollars == 32.0
    assert told.gpus == 14.0
    assert told.per_gpu == 2400.0 / 14.0


def test_the_cost_is_unknown_while_a_target_without_a_price_has_replicas() -> None:
    assert isinstance(spent({"on-demand": 4, "spot": 4}, spot=1, priced=False).dollars, Unknown)
    assert spent({"on-demand": 4, "spot": 4}, spot=0, priced=False).dollars == 20.0


def test_tokens_per_gpu_are_unknown_while_the_gpus_of_a_target_are() -> None:
    told = spent({"on-demand": 4, "spot": 0}, spot=1)
    assert isinstance(told.per_gpu, Unknown)
    assert isinstance(told.gpus, Unknown)
    assert spent({"on-demand": 4, "spot": 0}, spot=0).gpus == 8.0
