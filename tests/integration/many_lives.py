"""A hundred lives of pools under a budget, of which a real API server keeps what is said, ordered and told.

`make soak` names this file; `make test` does not collect it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from servingpool.adapters.cluster.client import Cluster
from servingpool.adapters.cluster.kubeconfig import Login
from servingpool.adapters.cluster.objects import FIELD_MANAGER, Key, Workload
from servingpool.api.group import API_VERSION, BUDGET_PLURAL, PLURAL
from servingpool.loop.reconciler import Tick
from servingpool_lab.api_client import ApiClient, ApiError
from servingpool_lab.control_plane import ControlPlane
from servingpool_lab.processes import wait_until

from ..unit.fuzzing import counted  # noqa: TID252, tests are no package of an installed name
from ..unit.gpubudget.many_pools import ManyPools  # noqa: TID252
from ..unit.gpubudget.test_budget_machine import CHOSEN, Budgeted  # noqa: TID252
from ..unit.reconcile.fake_cluster import Status  # noqa: TID252
from .operators import PATIENCE, ROOT, deployment

POOLS, BUDGETS = f"/apis/{API_VERSION}/namespaces/chat/{PLURAL}", f"/apis/{API_VERSION}/{BUDGET_PLURAL}"


class Stored(ManyPools):
    """From its first budget on. Deployments are paused there: nobody makes pods of them."""

    client: ClassVar[ApiClient]
    login: ClassVar[Login]
    begun = False

    def ticked(self) -> Tick:
        return asyncio.run(self.loop.tick(self.now))  # a server takes its time

    def set_budget(self, **changes: Any) -> None:
        super().set_budget(**changes)
        if not self.begun:
            self.begun = True
            for path in (POOLS, BUDGETS):
                for one in self.client.items(path):
                    self.client.delete(f"{path}/{one['metadata']['name']}")
            for name in self.clients:
                self.put(name)
                found = self.client.patch(f"{POOLS}/{name}/status", {"status": self.status(name)})["status"]
                self.store(name, status=found)
        raw = {"apiVersion": API_VERSION, "kind": "GPUBudget", "metadata": {"name": "h100"}}
        self.client.apply({**raw, "spec": self.cache.budgets["h100"]["spec"]})

    def put(self, name: str) -> None:
        meta, spec = {"namespace": "chat", "name": name}, self.cache.pools["chat", name]["spec"]
        self.client.apply({"apiVersion": API_VERSION, "kind": "ServingPool", "metadata": meta, "spec": spec})
        for service in self.of(name):
            self.put_service(service.name)

    def put_service(self, name: str) -> None:
        found = deployment("chat", name, self.services[name].replicas)
        found["spec"]["paused"] = True
        self.client.apply(found)

    def pool(self, name: str = "pool", **given: Any) -> None:
        super().pool(name, **given)
        if self.begun:
            self.put(name)

    def delete(self, name: str = "pool") -> None:
        super().delete(name)
        self.client.delete(f"{POOLS}/{name}") if self.begun else None

    def set_replicas(self, name: str, replicas: int, by: str = "kubectl") -> None:
        super().set_replicas(name, replicas, by)
        if self.begun and by != FIELD_MANAGER:
            self.put_service(name)

    @contextlib.asynccontextmanager
    async def server(self) -> AsyncIterator[Cluster]:
        counted["writes to a real API server"] += 1
        cluster = Cluster.of(self.login)
        yield cluster
        await cluster.aclose()

    async def scale(self, target: Workload, replicas: int) -> None:
        if self.begun:
            async with self.server() as cluster:
                await cluster.scale(target, replicas)
        await super().scale(target, replicas)

    async def write_status(self, pool: Key, changes: Status) -> None:
        await super().write_status(pool, changes)
        if self.begun:
            async with self.server() as cluster:
                await cluster.write_status(pool, changes)
                found = await cluster.get(f"{POOLS}/{pool[1]}")
            self.store(pool[1], status=found["status"])

    async def write_budget_status(self, name: str, changes: Status) -> None:
        await super().write_budget_status(name, changes)
        if self.begun:
            async with self.server() as cluster:
                await cluster.write_budget_status(name, changes)
                found = await cluster.get(f"{BUDGETS}/{name}")
            self.cache.see_budget({**self.cache.budgets[name], "status": found["status"]}, gone=False)


class OnApiServer(Budgeted):
    """Those lives."""

    World = Stored


def served(client: ApiClient) -> bool:
    with contextlib.suppress(ApiError):
        return not client.items(POOLS) + client.items(BUDGETS)
    return False


@pytest.mark.timeout(0)
def test_no_life_of_pools_on_a_real_api_server_breaks_a_promise(control_plane: ControlPlane) -> None:
    for each in (ROOT / "crds", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "chat"}}):
        control_plane.apply(each)
    Stored.client, Stored.login = control_plane.client, Login(str(control_plane.kubeconfig))
    wait_until(lambda: served(control_plane.client), PATIENCE, "the API server lists pools and budgets")
    run_state_machine_as_test(OnApiServer, settings=settings(CHOSEN, max_examples=100))
