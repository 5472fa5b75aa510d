"""Real Ollama behind a real LiteLLM, or a clear word on why there is none. Collected only where this folder is named."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from engine_pages.gateways import installed
from servingpool_lab.binaries import ensure_binaries
from servingpool_lab.go_modules import BuildError

from ..vllm.installation import Unavailable  # noqa: TID252, tests are no package of an installed name
from ..vllm.notes import note, pytest_terminal_summary, unless_named  # noqa: TID252
from . import installation

__all__ = ["note", "pytest_terminal_summary"]
"""What pytest finds here."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return unless_named(Path(__file__).parent, config)


@pytest.fixture(scope="session")
def ollama() -> Path:
    """The program. Skips where it cannot be had."""
    try:
        return installation.binary()
    except Unavailable as lacking:
        pytest.skip(f"no real Ollama: {lacking}")


@pytest.fixture(scope="session", autouse=True)
def _litellm() -> None:
    try:
        installed("litellm")
    except (OSError, subprocess.CalledProcessError) as lacking:
        pytest.skip(f"no real LiteLLM: {lacking}")


@pytest.fixture(scope="session")
def binaries() -> dict[str, Path]:
    """Of the local control plane, with Prometheus."""
    try:
        return ensure_binaries()
    except BuildError as lacking:
        pytest.skip(f"no control plane: {lacking}")
