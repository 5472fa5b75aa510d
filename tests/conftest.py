"""Commands set up logging for their process; a test leaves it as it was. What the fuzzers did is told at the end."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from servingpool.cli.logs import QUIET

from .unit import fuzzing


def _kept() -> Iterator[None]:
    """As it was: pytest's own handlers too."""
    root, levels = logging.getLogger(), {name: logging.getLogger(name).level for name in (*QUIET, "root")}
    handlers = root.handlers[:]
    yield
    root.handlers[:] = handlers
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


@pytest.fixture(autouse=True, scope="module")
def _logging_of_a_module() -> Iterator[None]:
    """Of commands that a module's own fixtures run."""
    yield from _kept()


@pytest.fixture(autouse=True)
def _logging() -> Iterator[None]:
    yield from _kept()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A process of several hands over what it counted."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["fuzzed"] = dict(fuzzing.counted)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Take what such a process counted."""
    fuzzing.counted.update(getattr(node, "workeroutput", {}).get("fuzzed", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if fuzzing.counted:
        terminalreporter.section(f"fuzzed with FUZZ_SEED={fuzzing.SEED}")
        for test, count in sorted(fuzzing.counted.items()):
            terminalreporter.write_line(f"{count:>9,} {test}")
