"""`python -m servingpool_lab.engine_pod`: what an engine pod runs."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys

# The kernel drops a SIGTERM that process 1 of a container has no handler for, and imports take half a second.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

from servingpool_lab.engine_pod.lifecycle import run  # noqa: E402 - the handler comes first
from servingpool_lab.engine_pod.options import Options  # noqa: E402

if __name__ == "__main__":
    options = Options.parse()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(run(options))
