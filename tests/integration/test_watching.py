"""The watches on a real API server, with the operator's own rights: objects deleted while nobody watched."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import kopf
import pytest

from servingpool.adapters.cluster import client
from servingpool.adapters.cluster.cache import ClusterCache
from servingpool.adapters.cluster.client import Cluster
from servingpool.adapters.cluster.kubeconfig import Login
from servingpool.adapters.cluster.session import session_of
from servingpool.handlers.lifecycle import live
from servingpool.handlers.watching import Watches
from servingpool_lab.control_plane import ControlPlane

from .operators import ACCOUNT, NAMESPACE, serving_pool

ROOT = Path(__file__).parents[2]


class Operator:
    """The operator's watches, without its loop."""

    def __init__(self, kubeconfig: Path, namespaces: tuple[str, ...]) -> None:
        self.cache = ClusterCache()
        self.watches = Watches(self.cache, time.monotonic, namespaces)
        self._kubeconfig, self._namespaces = kubeconfig, namespaces

    @contextlib.asynccontextmanager
    async def watching(self, pools: int) -> AsyncIterator[None]:
        """Kopf lists, and then watches. From the moment at which so many pools are in the cache."""
        registry, over = kopf.OperatorRegistry(), asyncio.Event()
        live(registry, scoped=True, start=_nothing, stop=_nothing, login=self._login)
        self.watches.register(registry)
        running = asyncio.create_task(
            kopf.operator(registry=registry, standalone=True, namespaces=self._namespaces, stop_flag=over)
        )
        listed_at = self.watches.listed_at
        while len(self.cache.pools) != pools or self.watches.listed_at == listed_at:  # noqa: ASYNC110, kopf tells nobody
            await asyncio.sleep(0.1)
        yield
        over.set()
        await running

    async def _login(self) -> kopf.AiohttpSession:
        login = Login(str(self._kubeconfig))
        return kopf.AiohttpSession(server=login.server, aiohttp_session=session_of(login, tolerant=True))


async def _nothing() -> None:
    pass


@pytest.fixture
def other_namespace(control_plane: ControlPlane) -> Iterator[str]:
    name = f"test-{uuid.uuid4().hex[:8]}"
    control_plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    control_plane.client.delete(f"/api/v1/namespaces/{name}")


async def test_pools_deleted_while_nobody_watched_are_forgotten(
    control_plane: ControlPlane, namespace: str, other_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PAGE", 2)
    for manifest in (ROOT / "crds", ROOT / "deploy" / "namespace.yaml", ROOT / "deploy" / "rbac.yaml"):
        control_plane.apply(manifest)
    kubeconfig = control_plane.service_account_kubeconfig(NAMESPACE, ACCOUNT)
    operator = Operator(kubeconfig, (namespace, other_namespace))
    many = [(namespace, f"pool-{number}") for number in range(7)]
    last = (other_namespace, "last")
    for where, name in (*many, last):
        control_plane.apply(serving_pool(where, name))
    cluster = await Cluster.connect(str(kubeconfig))
    await operator.watches.expect(cluster)
    async with operator.watching(pools=8):
        assert operator.watches.complete()
        await operator.watches.forget_deleted()
        assert operator.cache.pools.keys() == {*many, last}
    for where, name in (*many[:2], last):
        control_plane.client.delete(f"/apis/servingpool.dev/v1alpha1/namespaces/{where}/servingpools/{name}")
    async with operator.watching(pools=8):  # a list tells nothing of those that are not in it
        await operator.watches.forget_deleted()
        assert operator.cache.pools.keys() == set(many[2:])
    await cluster.aclose()
