"""`servingpool run`, with a watch on its event loop: `attacks_operator.py STEPS run --config=...`.

Each step of the loop that takes 20 ms or more is a line of the file STEPS.
"""

from __future__ import annotations

import asyncio.events
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

NOTED = 0.02
"""Seconds of CPU or of wall time."""
Run = Callable[[asyncio.events.Handle], None]


def watched(run: Run, steps: Path) -> Run:
    """`Handle._run` that notes its duration: when it began (Unix), seconds of CPU, seconds, and what it was."""

    def watching(handle: asyncio.events.Handle) -> None:
        began, cpu, wall = time.monotonic(), time.thread_time(), time.perf_counter()
        run(handle)
        cpu, wall = time.thread_time() - cpu, time.perf_counter() - wall
        if max(cpu, wall) >= NOTED:
            with steps.open("a") as file:
                file.write(json.dumps([began, cpu, wall, repr(handle)[:300]]) + "\n")

    return watching


def main(steps: Path, arguments: list[str]) -> Any:
    """Run the command line."""
    handle: Any = asyncio.events.Handle
    handle._run = watched(handle._run, steps)  # noqa: SLF001, the loop calls nothing else
    from servingpool.cli.main import app  # noqa: PLC0415

    sys.argv[1:] = arguments
    return app()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
