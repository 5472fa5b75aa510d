"""Real vLLM, aiperf and a real router, or a clear word on what is missing. Collected only where this folder is named."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from servingpool_lab.binaries import ensure_binaries
from servingpool_lab.go_modules import BuildError

from ..e2e.real_course import aiperf_python  # noqa: TID252, tests are no package of an installed name
from ..e2e.results import Results  # noqa: TID252
from ..vllm import installation  # noqa: TID252
from ..vllm.notes import unless_named  # noqa: TID252
from .course import Programs
from .scene import CPUS, machine

ROOT = Path(__file__).parents[2]
REPORT = Path(os.environ.get("GPU_REPORT", ROOT / "report" / "test-gpu"))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return unless_named(Path(__file__).parent, config)


@pytest.fixture(scope="session")
def programs() -> Programs:
    """Installed or built where they are not there. Skips what CPUs need and cannot have; fails for a GPU without vLLM."""
    if machine() is not CPUS and not os.environ.get("VLLM_PYTHON"):
        pytest.fail("VLLM_PYTHON is not set: vLLM for a GPU is not installed here. Name a Python that has it.")
    try:
        return Programs(installation.python(), aiperf_python(), ensure_binaries("etcd", "kubernetes", "prometheus"))
    except (installation.Unavailable, BuildError) as lacking:
        pytest.skip(f"no real vLLM under aiperf: {lacking}")


@pytest.fixture(scope="session")
def results() -> Iterator[Results]:
    """The table; shown at the end, and published with GPU_PUBLISH=1 where the test passed."""
    results = Results(REPORT)
    yield results
    passed = bool(results.verdict)  # which the test sets at its end
    results.verdict = results.verdict or "Failed."
    results.save()
    print(f"\n{results.table()}")  # noqa: T201, who measures reads it
    if os.environ.get("GPU_PUBLISH") == "1" and passed:
        results.publish(ROOT / "docs" / "records", "test-gpu")
