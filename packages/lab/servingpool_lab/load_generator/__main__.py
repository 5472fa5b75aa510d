"""`python -m servingpool_lab.load_generator`: what the load generator's pod runs.

With --url, --model and --rates or --trace the first course begins at once; more are started by POST /traffic.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
from typing import Any

from aiohttp import web

from servingpool_lab.load_generator.server import LoadGenerator
from servingpool_lab.load_generator.traffic import TRACES, Traffic

_OWN = ("host", "port")


async def serve(first: Traffic | None, host: str | None, port: int) -> None:
    """Runs until SIGTERM or SIGINT."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    generator = LoadGenerator()
    runner = web.AppRunner(generator.application(), access_log=None, shutdown_timeout=2.0)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    if first is not None:
        generator.start(first)
    await stopped.wait()
    await runner.cleanup()


def main() -> None:
    """Parse, compose, run."""
    parser = _parser()
    given = vars(parser.parse_args())
    asked: dict[str, Any] = {name: value for name, value in given.items() if value is not None and name not in _OWN}
    try:
        first = Traffic.model_validate(asked) if asked else None
    except ValueError as error:
        parser.error(str(error))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(serve(first, given["host"], given["port"]))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m servingpool_lab.load_generator", description=__doc__)
    add = parser.add_argument
    add("--host", help="default: every interface")
    add("--port", type=int, default=8080)
    add("--url", help="of the service, such as http://chat.default:8000")
    add("--model")
    add("--rates", help="requests/s x seconds, in turn: 2x120,6x180,1x120")
    add("--prompt-tokens", type=int)
    add("--output-tokens", type=int)
    add("--trace", choices=TRACES)
    add("--begin", type=float, help="seconds into the trace")
    add("--seconds", type=float, help="of the trace; default: to its end")
    add("--share", type=float, help="of the trace's requests, 0 to 1")
    add("--token-scale", type=float, help="what the trace's lengths are multiplied by")
    add("--timeout", type=float, help="seconds from sending to the last token")
    add("--seed", type=int)
    return parser


if __name__ == "__main__":
    main()
