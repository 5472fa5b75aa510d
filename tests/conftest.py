"""Commands set up logging for their process; a test leaves it as it was."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from servingpool.cli.logs import QUIET


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
