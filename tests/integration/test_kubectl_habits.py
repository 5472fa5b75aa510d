"""pause, resume and the dashboard on a real API server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from servingpool.adapters.cluster import pools
from servingpool_dashboard.board import Board
from servingpool_lab.control_plane import ControlPlane
from servingpool_lab.processes import wait_until

from .operators import PATIENCE, serving_pool

ROOT = Path(__file__).parents[2]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(control_plane: ControlPlane, namespace: str) -> Run:
    control_plane.apply(ROOT / "crds")
    control_plane.apply(serving_pool(namespace, "chat", mode="Recommend"))

    def servingpool(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = (sys.executable, "-m", "servingpool.cli.main", *arguments, f"--kubeconfig={control_plane.kubeconfig}")
        return subprocess.run(command, capture_output=True, text=True, check=False)

    return servingpool


def test_the_dashboard_follows_the_pools(
    run: Run, namespace: str, control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "PAGE", 1)
    control_plane.apply(serving_pool(namespace, "second"))
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat"}
    scaler = {"scaleTargetRef": reference, "minReplicas": 1, "maxReplicas": 3}
    meta = {"name": "of-chat", "namespace": namespace}
    control_plane.apply(
        {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": meta, "spec": scaler}
    )
    board = Board(lambda: pools.Pools.connect(str(control_plane.kubeconfig), None), namespace)
    board.start()

    def modes() -> dict[str, str]:
        return {row.key[1]: row.spec.mode.value for row in board.sight.rows if row.spec is not None}

    wait_until(lambda: modes() == {"chat": "Recommend", "second": "Auto"}, PATIENCE, "both pools listed")
    run("pause", "chat", "-n", namespace)
    wait_until(lambda: modes().get("chat") == "Paused", PATIENCE, "the pause seen")
    assert run("resume", f"{namespace}/chat").returncode == 0
    path = f"/apis/servingpool.dev/v1alpha1/namespaces/{namespace}/servingpools/chat"
    assert "annotations" not in control_plane.client.get(path)["metadata"]
    wait_until(lambda: modes().get("chat") == "Recommend", PATIENCE, "the mode before seen")
    board.probe()
    assert board.sight.failure == ""
    found = board.autoscaler((namespace, "Deployment", "chat"))
    assert found is not None
    assert found["metadata"]["name"] == "of-chat"
    assert board.autoscaler((namespace, "StatefulSet", "chat")) is None
    board.stop()
