"""What a pool has firm, floor and min, stays its own whatever keeps the pool from being scaled for a while."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from servingpool.gpubudget import report

from ..reconcile.fake_cluster import FakeCluster  # noqa: TID252, tests are no package of an installed name
from ..reconcile.kept import kept  # noqa: TID252
from ..reconcile.role_cluster import DECODE, PREFILL, RoleCluster  # noqa: TID252
from .test_budgets import GPUS, budget, status

OWN: dict[str, Any] = {"metrics": {"backend": "own"}}
"""The victim's own Prometheus: the rounds of the others go on while it is away."""


def of_one() -> FakeCluster:
    world = FakeCluster()
    world.serve("victim", replicas=4, rate=8.0)
    return begun(world, targets=[{"name": "victim", "min": 4, "max": 9}])


def of_two() -> FakeCluster:
    world = FakeCluster()
    for name in ("one", "other"):
        world.serve(name, replicas=2, rate=4.0)
    return begun(world, targets=[{"name": name, "min": 2, "max": 9} for name in ("one", "other")])


def of_roles() -> FakeCluster:
    return begun(RoleCluster(), targets=[{**PREFILL, "min": 2}, {**DECODE, "min": 2}])


def begun(world: FakeCluster, **spec: Any) -> FakeCluster:
    """The victim at its min, four replicas, and a hog of priority 9, which wants all 16 GPUs as its min."""
    world.backend("own")
    world.restart()
    FakeCluster.pool(world, "victim", **OWN, **spec)
    world.serve("hog", replicas=0, rate=0.0)
    FakeCluster.pool(world, "hog", priority=9, targets=[{"name": "hog", "min": 4, "max": 9}])
    budget(world, 4 * GPUS)
    world.step(minutes=5)
    assert victims(world) == 4
    return world


def victims(world: FakeCluster) -> int:
    return sum(service.replicas for name, service in world.services.items() if name != "hog")


def changed(world: FakeCluster, **spec: Any) -> None:
    FakeCluster.pool(world, "victim", **{**world.cache.pools["chat", "victim"]["spec"], **spec})


def in_mode(mode: str) -> Callable[[FakeCluster], Callable[[], None]]:
    def away(world: FakeCluster) -> Callable[[], None]:
        changed(world, mode=mode)
        return lambda: changed(world, mode="Auto")

    return away


def undecided(world: FakeCluster) -> Callable[[], None]:
    world.backends["own"].busy = True

    def back() -> None:
        world.backends["own"].busy = False

    return back


def unknown(world: FakeCluster) -> Callable[[], None]:
    name = next(iter(world.services))
    world.claims[name] = [{"name": "gpu", "resourceClaimName": "shared"}]

    def back() -> None:
        del world.claims[name]

    return back


def invalid(world: FakeCluster) -> Callable[[], None]:
    changed(world, slo={"timeToFirstToken": "soon"})
    return lambda: changed(world, slo={"timeToFirstToken": "2s", "timePerOutputToken": "100ms"})


def restarted(world: FakeCluster) -> Callable[[], None]:
    world.restart()
    return lambda: None


def restarted_without_status(world: FakeCluster) -> Callable[[], None]:
    world.cache.budgets["h100"] = {**world.cache.budgets["h100"], "status": {"pools": "lost"}}
    return restarted(world)


def restarted_while_paused(world: FakeCluster) -> Callable[[], None]:
    back = in_mode("Paused")(world)
    world.step()
    world.restart()
    return back


def moved(world: FakeCluster) -> Callable[[], None]:
    """Another operator had the budget for a while."""
    world.budgets.forget(lambda _: True)
    return lambda: None


PAUSED, RECOMMENDING = in_mode("Paused"), in_mode("Recommend")


@pytest.mark.parametrize(
    ("make", "away"),
    [
        *(
            (of_one, away)
            for away in (
                *(PAUSED, RECOMMENDING, undecided, unknown, invalid),
                *(restarted, restarted_while_paused, restarted_without_status),
            )
        ),
        *((of_two, away) for away in (PAUSED, restarted, moved)),
        *((of_roles, away) for away in (undecided, restarted, restarted_while_paused)),
    ],
)
def test_a_pool_keeps_its_min_though_another_one_is_scaled_to_its_own_by_hand_meanwhile(
    make: Callable[[], FakeCluster], away: Callable[[FakeCluster], Callable[[], None]]
) -> None:
    world = kept(f"firm {make.__name__}", make)
    back = away(world)
    world.set_replicas("hog", 4)
    world.step(minutes=2)
    back()
    world.step(minutes=3)
    assert [one for one in world.writes.scales if one[0][1] != "hog"] == []


def test_pools_of_high_priority_push_none_with_firm_gpus_out_of_a_full_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "MOST_POOLS", 1)
    world = kept("firm of_one", of_one)
    world.step(minutes=2)
    assert [(one["name"], one["firm"]) for one in status(world)["pools"]] == [("victim", 4 * GPUS)]
