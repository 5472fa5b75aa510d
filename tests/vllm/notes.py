"""What the lanes with a real engine share: when they are collected, and figures that a person sees beside the verdict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Note = Callable[[str], None]
NOTES = pytest.StashKey[list[str]]()


def unless_named(folder: Path, config: pytest.Config) -> bool | None:
    """For `pytest_ignore_collect`: a run of all tests must not install or build a real engine."""
    named = [(config.invocation_params.dir / argument.split("::")[0]).resolve() for argument in config.args]
    return None if any(folder in (path, *path.parents) for path in named) else True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """What was measured, at the end of the run."""
    for line in config.stash.get(NOTES, []):
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def note(request: pytest.FixtureRequest) -> Note:
    """Keeps a line for the end of the run."""
    return request.config.stash.setdefault(NOTES, []).append
