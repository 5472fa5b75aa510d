"""A dashboard on the operator of a fake cluster: what it read, decided and exported, on virtual time."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import pytest
from starlette.testclient import TestClient

from servingpool.adapters.cluster.errors import ClusterError
from servingpool.adapters.cluster.pools import Pools
from servingpool.adapters.prometheus import own_record
from servingpool.adapters.prometheus.backend_config import BackendConfig
from servingpool.adapters.prometheus.http_client import MetricsUnavailable
from servingpool.adapters.prometheus.own_record import OwnRecord
from servingpool.cli import fleet
from servingpool_dashboard import record
from servingpool_dashboard.app import Pages, application
from servingpool_dashboard.board import Board
from servingpool_dashboard.guard import LOCAL
from servingpool_dashboard.pods import Load
from servingpool_dashboard.record import Courses

from ..cli.recorder import Answer, Recorder  # noqa: TID252, tests are no package of an installed name
from ..reconcile.fake_cluster import FakeCluster, stamp  # noqa: TID252

Raw = dict[str, Any]


@dataclass
class Silence:
    """Why the API server, Prometheus or the operator does not answer; empty if it does."""

    api: str = ""
    watch: str = ""
    prometheus: str = ""
    operator: str = ""


@dataclass
class FakeApi:
    """`board.Cluster`."""

    silence: Silence
    pools: list[Raw]
    events: list[Raw] = field(default_factory=list)
    """What the next watch brings."""
    scalers: list[Raw] = field(default_factory=list)
    pods: list[Raw] = field(default_factory=list)
    told: list[Raw] = field(default_factory=list)
    """Events of the pool."""
    lists: int = 0
    asked_scalers: int = 0

    def pages(self, _: str | None) -> Iterator[Raw]:
        self._answer()
        self.lists += 1
        half = len(self.pools) // 2
        yield {"metadata": {"resourceVersion": "7", "continue": "x"}, "items": self.pools[:half]}
        yield {"metadata": {"resourceVersion": "7"}, "items": self.pools[half:]}

    def watch(self, *_: object, **__: object) -> Iterator[Raw]:
        self._answer()
        if self.silence.watch:
            raise ClusterError(self.silence.watch)
        events, self.events = self.events, []
        yield from events

    def probe(self, _: str | None) -> None:
        self._answer()

    def nobody_decides(self, _: float) -> str:
        return self.silence.operator

    def listed(self, path: str, query: dict[str, str], _: float) -> Raw:
        self._answer()
        if path.endswith("/scale"):
            return {"status": {"selector": "app=vllm"}}
        resources = [{"name": "deployments", "kind": "Deployment"}]
        return {"resources": resources, "items": self.told if path.endswith("/events") else self.pods}

    def autoscalers(self, _: str) -> list[Raw]:
        self.asked_scalers += 1
        self._answer()
        return self.scalers

    def _answer(self) -> None:
        if self.silence.api:
            raise ClusterError(self.silence.api)


@dataclass
class Prometheus:
    """The recorder, unless it is silent; and kube-state-metrics."""

    recorder: Recorder
    silence: Silence
    hpa: dict[float, float] = field(default_factory=dict)
    asked: int = 0

    def query(self, query: str, timeout: float) -> Any:
        if self.silence.prometheus:
            raise MetricsUnavailable("default", self.silence.prometheus)
        return self.recorder.query(query, timeout)

    def query_range(self, query: str, times: tuple[float, float, float], timeout: float) -> Any:
        self.asked += 1
        if self.silence.prometheus:
            raise MetricsUnavailable("default", self.silence.prometheus)
        if own_record.HPA_DESIRED in query:
            labels = {"namespace": "monitoring", "exported_namespace": "chat", "horizontalpodautoscaler": "vllm"}
            return Answer([{"metric": labels, "values": [[at, str(value)] for at, value in self.hpa.items()]}])
        return self.recorder.query_range(query, times, timeout)

    def close(self) -> None:
        """Nothing is open."""


def stored(world: FakeCluster) -> list[Raw]:
    """The world's pools, as the API server has them."""
    return [copy.deepcopy(dict(raw)) for raw in world.cache.pools.values()]


def raw_pod(name: str, created: float, **said: Any) -> Raw:
    """A pod of two GPUs on a node, Ready; `said` are other parts of its status."""
    ready = {"type": "Ready", "status": "False" if said else "True", "lastTransitionTime": stamp(created + 60.0)}
    status = {**said, "conditions": [ready, *said.get("conditions", ())]}
    container = {"name": "vllm", "resources": {"limits": {"nvidia.com/gpu": "2"}}}
    spec = {"nodeName": "" if "conditions" in said else "n1", "containers": [container]}
    meta = {"namespace": "chat", "name": name, "uid": name, "creationTimestamp": stamp(created)}
    return {"metadata": meta, "spec": spec, "status": status}


class Scene:
    """The parts, and a browser of a few lines."""

    grafana = ""
    where: Sequence[str] = ()

    def __init__(self, recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
        self.recorder, self.world, self.silence = recorder, recorder.world, Silence()
        self.api = FakeApi(self.silence, stored(recorder.world))
        self.prometheus = Prometheus(recorder, self.silence)
        monkeypatch.setattr(own_record, "PrometheusClient", lambda _: self.prometheus)
        self.loads: dict[str, Load] = {}

        async def loads(*_: object) -> dict[str, Load]:
            self.prometheus.asked += 1
            return self.loads

        monkeypatch.setattr(record, "loads", loads)
        self.later = 0.0
        """Seconds since the world stood still."""
        self.told: list[str] = []
        """What the terminal says."""
        self.courses = Courses(self.source, self.clock, self.told.append)
        self.start()
        self.board.read()

    def start(self) -> None:
        """A new process, which has read nothing yet."""
        self.board = Board(lambda: cast("Pools", self.api), None, self.clock, self.told.append)
        read = partial(fleet.read, self.source(("", "")).config, {})
        pages = Pages(self.board, self.courses, self.clock, self.grafana, self.where, read)
        self.app = application(pages, LOCAL)
        self.browser = TestClient(self.app, base_url="http://127.0.0.1:8765")

    def store(self, *pools: Raw) -> None:
        """The cluster holds these pools, or those of the world; they were read."""
        self.api.pools = list(pools) or stored(self.world)
        self.start()
        self.board.read()

    def clock(self) -> float:
        return self.world.now + self.later

    def source(self, key: tuple[str, str]) -> OwnRecord:
        return OwnRecord(BackendConfig(url="http://prometheus:9090"), key)

    def page(self, path: str) -> str:
        answer = self.browser.get(path)
        assert answer.status_code == 200, answer.text
        return answer.text
