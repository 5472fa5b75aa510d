"""Helm, as built from its Go module."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from functools import cache
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
    environment = {**os.environ, "GOGC": "off"}  # it ends before it needs the memory again

    def run(command: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        given = [program, command, "--set=image.repository=servingpool-operator", *arguments]
        return subprocess.run(given, capture_output=True, text=True, check=False, env=environment)

    return run


@pytest.fixture(scope="session")
def render(helm: Helm) -> Render:
    """All objects for a values file, and further values on top. Each caller has objects of its own."""

    @cache
    def text(values: str, *arguments: str) -> str:
        file = f"--values={VALUES / values}.yaml"
        done = helm("template", "servingpool-operator", CHART, "--namespace=servingpool-system", file, *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return lambda values, *arguments: documents(text(values, *arguments))


def documents(text: str) -> list[dict[str, Any]]:
    """Read with libyaml, in a ninth of the time that PyYAML's own parser takes for the CRDs."""
    return [one for one in yaml.load_all(text, yaml.CSafeLoader) if one]


def one(objects: list[dict[str, Any]], kind: str, name: str = OPERATOR) -> dict[str, Any]:
    [found] = [each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found
