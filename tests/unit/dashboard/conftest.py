"""Dashboards to look at. A world takes seconds to make, so those that are only read are shared."""

from __future__ import annotations

import pytest

from ..cli.recorder import Recorder  # noqa: TID252, tests are no package of an installed name
from ..gpubudget.test_budgets import GPUS, budget  # noqa: TID252
from ..reconcile.role_cluster import RoleCluster  # noqa: TID252
from ..reconcile.stories import settled  # noqa: TID252
from .scene import Scene

TARGET = {"name": "vllm", "min": 1, "max": 10, "gpusPerReplica": 2, "costPerReplicaHour": 12.0}


@pytest.fixture(scope="session")
def burst() -> Recorder:
    """A pool in mode Auto that was scaled up in a burst."""
    recorder = Recorder(settled(targets=[TARGET]))
    recorder.run(2)
    recorder.world.services["vllm"].rate = 30.0
    recorder.run(12)
    return recorder


@pytest.fixture(scope="session")
def recommended() -> Recorder:
    """A pool in mode Recommend beside an HPA, which wants five replicas; then the load rises."""
    recorder = Recorder(settled(mode="Recommend", targets=[TARGET]))
    recorder.world.autoscaler("HorizontalPodAutoscaler")
    recorder.run(2)
    recorder.world.set_replicas("vllm", 5, by="kube-controller-manager")
    recorder.run(8)
    recorder.world.services["vllm"].rate = 60.0
    recorder.run(4)
    return recorder


@pytest.fixture(scope="session")
def paired() -> Recorder:
    """A pool of prefill and decode, held below its need by a budget of GPUs."""
    recorder = Recorder(RoleCluster(rate=24.0))
    recorder.world.pool()
    budget(recorder.world, 4 * GPUS)
    recorder.world.step(minutes=15)
    recorder.run(2)
    return recorder


@pytest.fixture
def scene(burst: Recorder, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """The first of them. The world stands still."""
    return Scene(Recorder(burst.world, dict(burst.scraped)), monkeypatch)


@pytest.fixture
def beside(recommended: Recorder, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """The second."""
    scene = Scene(Recorder(recommended.world, dict(recommended.scraped)), monkeypatch)
    reference = {"kind": "Deployment", "name": "vllm"}
    scene.api.scalers = [
        {"metadata": {"name": "vllm"}, "spec": {"scaleTargetRef": reference}, "status": {"desiredReplicas": 5}}
    ]
    scene.prometheus.hpa = dict.fromkeys(recommended.scraped, 5.0)
    return scene


@pytest.fixture
def roles(paired: Recorder, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """The third."""
    return Scene(Recorder(paired.world, dict(paired.scraped)), monkeypatch)
