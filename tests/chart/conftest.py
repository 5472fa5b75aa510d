"""Helm, as built from its Go module."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from servingpool_lab.binaries import ensure_binaries

CHART = Path(__file__).parents[2] / "charts" / "servingpool-operator"
VALUES = Path(__file__).with_name("values")
OPERATOR = "servingpool-operator"
"""The release, and so the full name."""

Helm = Callable[..., "subprocess.CompletedProcess[str]"]
Render = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="session")
def helm() -> Helm:
    # Two minutes the first time: `python -m servingpool_lab.binaries helm` does it ahead of a test run.
    program = ensure_binaries("helm")["helm"]

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)

    return run


@pytest.fixture(scope="session")
def render(helm: Helm) -> Render:
    """All objects for a values file, and further values on top."""

    def run(values: str, *arguments: str) -> list[dict[str, Any]]:
        file = f"--values={VALUES / values}.yaml"
        done = helm("template", "servingpool-operator", CHART, "--namespace=servingpool-system", file, *arguments)
        assert done.returncode == 0, done.stderr
        return [manifest for manifest in yaml.safe_load_all(done.stdout) if manifest]

    return run


def one(objects: list[dict[str, Any]], kind: str, name: str = OPERATOR) -> dict[str, Any]:
    [found] = [each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found
