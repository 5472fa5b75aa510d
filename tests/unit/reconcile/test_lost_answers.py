"""Writes that are done and not answered, or answered late, and what is kept in memory of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, get_args, get_origin

import pytest

from servingpool.adapters.cluster.errors import Forbidden, Unanswered
from servingpool.adapters.cluster.objects import FIELD_MANAGER
from servingpool.api.part import Part
from servingpool.api.status import Status
from servingpool.loop import reconciler
from servingpool.status.report import ANYTHING

from ..adapters.cluster.virtual_time import run  # noqa: TID252
from .fake_cluster import FakeCluster
from .stories import amid_reading, serving, settled, upon
from .test_metrics import exposed


def short(**spec: Any) -> FakeCluster:
    """A pool that orders a second replica at its first tick."""
    return serving(0.0, replicas=1, targets=[{"name": "vllm", "min": 2, "max": 4}], **spec)


def tick(world: FakeCluster) -> None:
    """One, on virtual time: what hangs takes no real time."""
    world.now += 15.0
    world.show("vllm")
    run(lambda: world.loop.tick(world.now))


def hangs(work: Callable[..., Coroutine[Any, Any, None]], seconds: float) -> Any:
    """The server does it, and the answer takes so long; ours is over after 10 s, as the client has it."""

    async def slow(*args: Any, **kwargs: Any) -> None:
        await work(*args, **kwargs)
        if seconds > 10.0:
            await asyncio.sleep(10.0)
            raise Unanswered("the API server did not answer")
        await asyncio.sleep(seconds)

    return slow


@pytest.mark.parametrize("amid", ["scale", "post_event"])
def test_a_scale_is_reported_even_if_the_tick_ends_before_the_answer(
    amid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order is carried out, and its answer, or its event's, is still under way when the tick's 30 s are over.

    Sixteen are written at once, so behind some that hang for 10 s each the time of the later ones begins near the end.
    """
    world = short()
    monkeypatch.setattr(reconciler, "LONGEST_ACTING", 5.0)  # this pool's share of the 30 s
    with monkeypatch.context() as trouble:
        trouble.setattr(world, amid, hangs(getattr(world, amid), 8.0))
        tick(world)
    assert [after for _, _, after in world.writes.scales] == [2]
    assert world.services["vllm"].set_by == FIELD_MANAGER, "it was done"
    for _ in range(20):
        tick(world)
    assert world.status()["replicas"] == 2
    assert world.status().get("lastScaleTime"), "nothing says that the operator has scaled"


def loses_the_lead_amid(world: FakeCluster, write: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease runs out before the answer to that write is there: another may lead by then."""
    upon(world, write, lambda: setattr(world, "leading", False), monkeypatch)


@pytest.mark.parametrize(("amid", "events"), [("scale", 0), ("post_event", 1)])
def test_a_leader_deposed_while_scaling_reports_nothing(
    amid: str, events: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = short()
    loses_the_lead_amid(world, amid, monkeypatch)
    tick(world)
    assert world.writes.scales
    assert world.writes.statuses == []
    assert len(world.writes.events) == events


def test_a_leader_deposed_while_writing_a_status_posts_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    world = short()
    world.writes.refuse["scale"] = Forbidden("403")
    loses_the_lead_amid(world, "write_status", monkeypatch)
    tick(world)
    assert world.writes.statuses
    assert world.writes.events == []


def test_no_write_begins_after_the_deadline_of_the_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """17 pools, 16 at a time; the API server hangs. Of the last one nothing may be asked: its time is over."""
    monkeypatch.setattr(reconciler, "WRITES_AT_ONCE", 1)
    world = FakeCluster()
    for name in ("a", "b", "c"):
        world.serve(name, replicas=1, rate=0.0)
        world.pool(name, target=name, targets=[{"name": name, "min": 2, "max": 4}])
    begun: list[float] = []

    async def stuck(*_: Any, **__: Any) -> None:
        begun.append(asyncio.get_running_loop().time())
        await asyncio.sleep(1e6)

    monkeypatch.setattr(world, "scale", stuck)
    world.now += 15.0
    run(lambda: world.loop.tick(world.now))
    assert begun == [0.0]


def test_a_program_that_resets_during_scaling_is_seen_at_once_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """It sets the number back within milliseconds, and its event is read before our answer is."""
    world = short()
    upon(world, "scale", lambda: world.set_replicas("vllm", 1, by="keeper"), monkeypatch)
    tick(world)
    assert world.workload().replicas == 1, "the API server has 1: 2 would stand here until the Deployment changes again"
    for _ in range(40):
        tick(world)
    assert world.condition("Ready") == ("False", "ReplicasContested")


def made_anew(world: FakeCluster) -> None:
    """The pool is deleted, and another of its name is there."""
    raw = world.cache.pools["chat", "pool"]
    world.delete()
    world.cache.see_pool(raw, gone=False)
    world.store(status={}, uid="uid-of-another", generation=1)


def test_a_pool_made_anew_does_not_get_the_status_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    world = short()
    upon(world, "scale", lambda: made_anew(world), monkeypatch)
    tick(world)
    assert world.status() == {}


def test_stopping_does_not_give_a_pool_made_anew_what_was_learned_of_the_one_before() -> None:
    world = serving(minutes=14)
    made_anew(world)
    asyncio.run(world.loop.stop())
    assert world.status() == {}


def test_a_deposed_leader_exports_no_figures() -> None:
    """The API server is away for an hour: nothing is read nor decided, and its /metrics goes on as if."""
    world = serving(minutes=5)
    world.leading = False
    world.step(minutes=60)
    assert [
        s for family in exposed(world).collect() for s in family.samples if s.name == "servingpool_load_ratio"
    ] == []


def test_stopping_does_not_undo_the_last_status(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last status is applied, its answer hangs, the tick is cancelled: what is saved then is the status before."""
    world = settled()
    world.services["vllm"].rate = 30.0
    world.step()
    while not world.writes.scales:
        world.step()
    first = world.status()["lastScaleTime"]
    world.services["vllm"].rate = 60.0
    scales = len(world.writes.scales)
    write = world.write_status
    applied: list[Any] = []

    async def stuck(pool: Any, changes: Any) -> None:
        await write(pool, changes)
        if "lastScaleTime" in changes and not applied:
            applied.append(changes)
            await asyncio.sleep(60.0)

    monkeypatch.setattr(world, "write_status", stuck)

    async def story() -> None:
        for _ in range(40):
            for service in world.services.values():
                for engine in service.engines:
                    engine.serve(service.rate / len(service.engines), 15.0, 1000.0, 200.0)
            world.now += 15.0
            world.show("vllm")
            turn = asyncio.create_task(world.loop.tick(world.now))
            await asyncio.wait({turn}, timeout=5.0)  # LAST_TICK
            if applied:
                turn.cancel()
                await world.loop.stop()
                await asyncio.gather(turn, return_exceptions=True)
                return

    run(story)
    assert applied
    assert len(world.writes.scales) > scales
    told = applied[0]["lastScaleTime"]
    assert told > first
    assert world.status()["lastScaleTime"] == told


def test_whatever_is_nested_in_a_status_can_be_taken_back() -> None:
    """What is in lists is not merged: they are replaced whole."""
    nested = {
        field.alias or name
        for name, field in Status.model_fields.items()
        if get_origin(field.annotation) is not tuple
        and any(isinstance(part, type) and issubclass(part, Part) for part in get_args(field.annotation))
    }
    assert nested | {"profile"} == {name for name, inner in ANYTHING.items() if inner is not None}


def test_who_owns_a_target_goes_on_owning_it_while_it_is_edited() -> None:
    world = FakeCluster()
    world.serve(replicas=2, rate=0.0)
    born = world.now - 30
    world.pool("older", created=born, targets=[{"name": "vllm", "min": 2, "max": 10}])
    world.pool("younger", created=world.now - 20, targets=[{"name": "vllm", "min": 6, "max": 10}])
    world.step(minutes=2)
    assert world.writes.scales == []
    assert world.condition("Ready", "younger") == ("False", "AmbiguousOwner")
    edited = [{"name": "vllm", "min": 2, "max": 9}]
    amid_reading(world, lambda: world.pool("older", created=born, targets=edited))
    world.step()
    assert world.writes.scales == [], "the younger pool scales a Deployment that it does not own"


def test_rollouts_while_scales_go_unanswered_are_no_contest() -> None:
    """Scale orders end in a 500 (a webhook on deployments/scale that is down); somebody deploys three times."""
    world = short()
    world.writes.refuse["scale"] = Unanswered("500 failed calling webhook")
    for _ in range(3):
        tick(world)
        world.services["vllm"].number.generation += 1  # kubectl set image, kubectl rollout restart
        tick(world)
    del world.writes.refuse["scale"]
    tick(world)
    tick(world)
    assert world.services["vllm"].set_by == FIELD_MANAGER
    assert world.condition("Ready") == ("True", "SucceededGetScale"), world.message("Ready")
