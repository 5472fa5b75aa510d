from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from ..adapters.cluster.virtual_time import VirtualLoop  # noqa: TID252

VIRTUAL = {"test_engine_server.py", "test_load_generator.py"}
"""Server and client are in one process, so nothing happens but by its event loop. A process of its own has real time."""


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Each test on virtual time or on real time, never on both."""
    if item.path.name in VIRTUAL:
        return {"virtual": partial(VirtualLoop, turn=1e-6)}
    return {"real": asyncio.new_event_loop}
