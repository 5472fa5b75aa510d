"""`servingpool check deployment/NAME` without cluster and Prometheus; tests/integration/test_wrong_setups.py has real ones."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest

from servingpool.adapters.cluster import objects
from servingpool.adapters.cluster.objects import Workload
from servingpool.adapters.prometheus.backend_config import BackendConfig
from servingpool.adapters.prometheus.diagnosis import PodKey
from servingpool.adapters.prometheus.engines import shipped
from servingpool.adapters.prometheus.inspection import Inspection, inspect
from servingpool.adapters.prometheus.promql import Queries
from servingpool.adapters.prometheus.samples import FleetReading, ReadRequest
from servingpool.cli import check
from servingpool.cli.figures import Target
from servingpool.cli.source import Where, settings

LONGEST_QUERY = 16 * 1024
"""Bytes that VictoriaMetrics takes."""


class FakeCluster:
    @classmethod
    async def connect(cls, kubeconfig: str | None, context: str | None) -> FakeCluster:
        return cls()

    async def aclose(self) -> None:
        pass


async def ready_pods(_: FakeCluster, namespace: str, kind: str, name: str) -> tuple[Workload, dict[str, str]]:
    raw = {"metadata": {"namespace": namespace, "name": name, "uid": kind}}
    return objects.workload(raw), {f"{name}-7d9c5b7f4-{number:05d}": str(number) for number in range(300)}


class FakeBackend:
    inspected: Collection[PodKey] = ()

    def __init__(self, config: BackendConfig, *profiles: object) -> None:
        self.config = config

    async def inspect(self, engine: str, pods: Collection[PodKey]) -> Inspection:
        FakeBackend.inspected = pods
        return Inspection(list(pods)[:9], {}, {}, {}, {})

    async def read(self, request: ReadRequest, now: float) -> FleetReading:
        assert len(request.explain) == 300
        return FleetReading(0.0, {}, {})

    async def aclose(self) -> None:
        pass


async def test_of_a_large_deployment_few_pods_are_shown_and_all_are_explained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A query that names all of them is refused by VictoriaMetrics."""
    monkeypatch.setattr(check, "Cluster", FakeCluster)
    monkeypatch.setattr(check, "ready_pods", ready_pods)
    monkeypatch.setattr(check, "PrometheusBackend", FakeBackend)
    before: list[Any] = []
    monkeypatch.setattr(check, "table", lambda _: before.append(capsys.readouterr()))
    name = "llama-3.3-70b-instruct-fp8-long-context"
    where = settings(None, "http://x")
    target = Target("chat", "deployment", name, None, None)
    assert not await check.check_target(target, Where(where, where.backends[0]))
    (told,) = before
    assert "300 ready pods, as engine vllm:\nSeries of the first 9 of them:\n" in told.out
    assert len(told.err.splitlines()) == 301  # a pod a line, and what is missing: before the table of figures
    asked: list[int] = []
    shown: list[int] = []

    def query(query: str, _: float) -> SimpleNamespace:
        asked.append(len(query))
        return SimpleNamespace(rows=list)

    for profile in shipped().values():
        client = SimpleNamespace(query=query)
        seen = inspect(client, 1.0, Queries(profile), shipped(), FakeBackend.inspected)  # type: ignore[arg-type]
        shown.append(len(seen.pods))
    assert max(asked) < LONGEST_QUERY
    assert min(shown) > 5
