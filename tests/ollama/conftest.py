"""Real Ollama behind a real LiteLLM, or a clear word on why there is none. Collected only where this folder is named."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from engine_pages.gateways import installed
from servingpool_lab.binaries import ensure_binaries
from servingpool_lab.go_modules import BuildError

from ..vllm.installation import Unavailable  # noqa: TID252, tests are no package of an installed name
from ..vllm.notes import NOTES, Note  # noqa: TID252
from . import installation


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A run of all tests must not build for 20 minutes."""
    here = Path(__file__).parent
    named = [(config.invocation_params.dir / argument.split("::")[0]).resolve() for argument in config.args]
    return None if any(here in (path, *path.parents) for path in named) else True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """What was measured, at the end of the run."""
    for line in config.stash.get(NOTES, []):
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def note(request: pytest.FixtureRequest) -> Note:
    """Keeps a line for the end of the run."""
    return request.config.stash.setdefault(NOTES, []).append


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
