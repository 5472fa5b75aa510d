"""Which lane a test is in, and which test files come after one another in one process."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent

EQUIPMENT: Final = (
    "integration/test_binaries.py",
    "integration/test_control_plane.py",
    "integration/test_emulator.py",
    "integration/test_lab.py",
    "integration/test_processes.py",
    "unit/benchmarks",
    "unit/lab",
    "unit/tools/test_assets.py",
    "unit/tools/test_lane.py",
    "unit/tools/test_lanes.py",
)
"""Tests of what tests, measures and writes a page once: packages/lab, benchmarks, tools. `make test-equipment` runs them."""

CHAINS: Final[Mapping[str, int]] = {
    "test_control_plane.py": 1,
    "test_gpu_budget.py": 1,
    "test_older_crd.py": 1,
    "test_other_kinds.py": 1,
    "test_cluster_objects.py": 2,
    "test_crd_made_again.py": 1,
    "test_emulator.py": 2,
    "long_faults.py": 2,
    "test_faults.py": 2,
    "test_leader.py": 2,
    "test_watched_namespaces.py": 3,
    "test_chart.py": 3,
    "test_shards.py": 3,
}
"""Integration tests that share no control plane with another process: they stop it or its Prometheus, change a definition
or a ClusterRole, or their operator serves all namespaces, as it must for a GPUBudget. Files of a number run one after
another in one process, and have its control plane."""


@cache
def is_equipment(path: Path) -> bool:
    """Whether this test file is in the equipment's lane."""
    return any(path.is_relative_to(HERE / one) for one in EQUIPMENT)


def chain(path: Path) -> int | None:
    """The chain of an integration test; None for one on the control plane that all processes share."""
    return CHAINS.get(path.name) if path.parent == HERE / "integration" else None
