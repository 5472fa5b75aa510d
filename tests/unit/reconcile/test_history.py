"""The last changes of a pool's replicas, as its status tells them."""

from __future__ import annotations

from typing import Any

import pytest

from servingpool.adapters.cluster.errors import Forbidden, Unanswered
from servingpool.adapters.cluster.objects import FIELD_MANAGER, Workload
from servingpool.api.crd import crd
from servingpool.reconcile.keep import history

from ..decision.world import START  # noqa: TID252, tests are no package of an installed name
from .fake_cluster import FakeCluster, stamp
from .stories import settled

HPA = "kube-controller-manager"


def changes(world: FakeCluster) -> list[dict[str, Any]]:
    return list(world.status().get("history", ()))


def moves(world: FakeCluster) -> list[tuple[int, int, str]]:
    return [(one["from"], one["to"], one["by"]) for one in changes(world)]


def beside_an_hpa() -> FakeCluster:
    world = settled(mode="Recommend")
    world.autoscaler("HorizontalPodAutoscaler")
    world.step(minutes=2)
    assert changes(world) == []
    return world


def test_a_scale_up_is_told_with_its_sentence_and_how_long_it_took_to_be_ready() -> None:
    world = settled()
    world.services["vllm"].rate = 30.0
    while not world.writes.scales:
        world.step()
    [(_, before, after)] = world.writes.scales
    (told,) = changes(world)
    assert (told["from"], told["to"], told["by"]) == (before, after, FIELD_MANAGER)
    assert told["at"] == stamp(world.writes.at[0])
    assert told["why"] == world.writes.events[-1][3].partition("reason: ")[2]
    assert "outcome" not in told, "the pods are loading"
    world.step(minutes=15)
    told_later = changes(world)
    assert [(one["from"], one["to"]) for one in reversed(told_later)] == [scale[1:] for scale in world.writes.scales]
    assert next(one["outcome"] for one in told_later if one["to"] > one["from"]).startswith("ready after 1m")


def test_a_scale_down_is_told_once_its_pods_are_gone() -> None:
    world = settled()
    world.set_replicas("vllm", 6)
    world.step(minutes=20)
    told = next(one for one in changes(world) if one["by"] == FIELD_MANAGER)
    assert told["to"] < told["from"]
    assert told["outcome"] == "removed after 15s"


def test_a_change_by_somebody_else_names_the_program_and_the_operators_own_answer() -> None:
    world = beside_an_hpa()
    answer = world.status()["desiredReplicas"]
    world.set_replicas("vllm", 5, by=HPA)
    at = stamp(world.now)
    world.step()
    (told,) = changes(world)
    assert (told["from"], told["to"], told["by"], told["at"]) == (2, 5, HPA, at)
    assert told["why"] == f"Another program set the replicas; the operator's answer was {answer}."


def test_the_next_change_ends_one_that_was_not_ready_yet() -> None:
    world = beside_an_hpa()
    world.set_replicas("vllm", 5, by=HPA)
    world.step(minutes=0.5)
    world.set_replicas("vllm", 3, by=HPA)
    world.step()
    assert moves(world) == [(5, 3, HPA), (2, 5, HPA)]
    assert [one.get("outcome") for one in changes(world)] == [None, "replaced after 30s"]


def test_replicas_that_find_no_node_are_never_ready() -> None:
    world = beside_an_hpa()
    world.services["vllm"].unschedulable = True
    world.set_replicas("vllm", 5, by=HPA)
    world.step(minutes=59)
    assert "outcome" not in changes(world)[0]
    world.step(minutes=2)
    assert changes(world)[0]["outcome"] == "never ready within 1h"


def test_only_the_last_ten_are_kept_and_they_are_what_the_crd_allows() -> None:
    world = beside_an_hpa()
    for replicas in range(3, 16):
        world.set_replicas("vllm", replicas, by=HPA)
        world.step()
    assert [to for _, to, _ in moves(world)] == list(range(15, 5, -1))
    schema = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["history"]
    assert schema["maxItems"] == len(changes(world))
    assert schema["items"]["properties"]["why"]["maxLength"] == 512


def test_a_long_reason_is_cut_and_not_refused() -> None:
    (told,) = history.History().order_zero("x" * 600, 0.0)
    assert told.why == "x" * 511 + "…"


def test_history_survives_a_restart_and_what_changed_meanwhile_is_found() -> None:
    world = beside_an_hpa()
    world.set_replicas("vllm", 4, by=HPA)
    world.step(minutes=3)
    world.set_replicas("vllm", 6, by="kubectl-scale")
    world.restart()
    world.step(minutes=3)
    assert moves(world) == [(4, 6, "kubectl-scale"), (2, 4, HPA)]
    assert changes(world)[0]["why"] == "Another program set the replicas."


def test_an_order_of_a_leader_that_died_before_it_told_is_no_strangers() -> None:
    world = settled()
    world.writes.refuse["status"] = Forbidden("403")
    world.services["vllm"].rate = 30.0
    world.step()
    assert len(world.writes.scales) == 1
    del world.writes.refuse["status"]
    world.restart()
    world.step()
    _, before, after = world.writes.scales[0]
    assert (before, after, FIELD_MANAGER) in moves(world)
    assert "stopped before it wrote the reason" in changes(world)[-1]["why"]


@pytest.mark.parametrize("created", [START - 60.0, START + 60.0], ids=["older", "younger"])
def test_a_pool_in_recommend_is_not_told_that_it_set_what_another_pool_set(created: float) -> None:
    world = settled()
    world.pool("advice", created=created, mode="Recommend")
    world.step()
    world.services["vllm"].rate = 30.0
    while not world.writes.scales:
        world.step()
    world.step()
    [told] = world.status("advice")["history"]
    assert told["why"] == "The operator set the replicas for another ServingPool."
    assert "another ServingPool" not in changes(world)[0]["why"]


def test_an_order_whose_answer_was_lost_is_told_as_it_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    world = settled()
    carried_out = world.scale

    async def no_answer(target: Workload, replicas: int) -> None:
        await carried_out(target, replicas)
        raise Unanswered("no answer within 5 s")

    monkeypatch.setattr(world, "scale", no_answer)
    world.services["vllm"].rate = 30.0
    world.step()
    monkeypatch.undo()
    assert changes(world) == [], "nobody knows yet"
    world.step()
    _, before, after = world.writes.scales[0]
    told = next(one for one in changes(world) if one["to"] == after)
    assert (told["from"], told["by"], told["at"]) == (before, FIELD_MANAGER, stamp(world.writes.at[0]))
    assert told["why"].startswith(f"scale up {before} -> {after}: ")


def test_an_order_that_was_refused_is_no_change() -> None:
    world = settled()
    world.writes.refuse["scale"] = Forbidden("Cannot scale: 403 Forbidden")
    world.services["vllm"].rate = 30.0
    world.step(minutes=2)
    assert changes(world) == []


def test_a_contest_does_not_wash_the_rest_out() -> None:
    world = settled()
    for _ in range(20):
        world.step(minutes=2)
        world.set_replicas("vllm", 9, by="argocd")
    world.step()
    assert world.condition("Ready") == ("False", "ReplicasContested")
    assert len(changes(world)) <= 6


def test_another_deployment_of_the_same_name_changes_nothing() -> None:
    world = beside_an_hpa()
    world.set_replicas("vllm", 4, by=HPA)
    world.step(minutes=3)
    before = world.state().history
    assert len(before.changes) == 1
    see = world.cache.see_workload

    def anew(raw: Any, *, gone: bool) -> None:
        see(raw | {"metadata": raw["metadata"] | {"uid": "another"}}, gone=gone)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.cache, "see_workload", anew)
        world.set_replicas("vllm", 9)
        world.step()
    after = world.state().history
    assert [(one.from_, one.to) for one in after.changes] == [(one.from_, one.to) for one in before.changes]
    assert after.replicas == 9


def test_a_change_and_its_outcome_come_with_writes_that_replicas_cause_anyway() -> None:
    world = beside_an_hpa()
    world.writes.statuses.clear()
    world.set_replicas("vllm", 4, by=HPA)
    world.step(minutes=10)
    told = [patch for _, patch in world.writes.statuses if "history" in patch]
    assert len(told) == 2
    assert "replicas" in told[0]
    assert "readyReplicas" in told[1]
