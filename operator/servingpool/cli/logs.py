"""Structured logs: one JSON object a line, with the pool and the figures as fields of their own."""

from __future__ import annotations

import logging
import sys

from pythonjsonlogger.json import JsonFormatter

from servingpool.catalogue.plain import plain


class _Plain(logging.Formatter):
    """A line a record, whatever names and messages a stranger chose; only our own tracebacks have more."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802, the library's name
        return plain(super().formatMessage(record))


QUIET = ("kopf.objects", "aiohttp", "urllib3", "asyncio", "kubernetes")
"""Loggers whose INFO has a line for each event that a handler took in, which is each heartbeat of each pod."""


def quiet() -> None:
    """Silence logs, for a command that says itself what is wrong, in a sentence."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Plain("%(asctime)s %(levelname)-7s %(message)s"))
    logging.basicConfig(level=logging.ERROR, handlers=[handler], force=True)


def configure(*, json: bool, debug: bool) -> None:
    """Send all logs to standard error, in one form."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        JsonFormatter(
            "{asctime}{levelname}{name}{message}",
            style="{",
            rename_fields={"asctime": "time", "levelname": "level", "name": "logger"},
        )
        if json
        else _Plain("%(asctime)s %(levelname)-7s %(message)s")
    )
    logging.basicConfig(level=logging.DEBUG if debug else logging.INFO, handlers=[handler], force=True)
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.DEBUG if debug else logging.WARNING)
