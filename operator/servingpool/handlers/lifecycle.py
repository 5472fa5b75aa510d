"""Start, stop and log-in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from itertools import chain, repeat
from typing import Any

import kopf

PAGE = 500
"""Objects in a page of a list, as kubectl asks for: one may be 1.5 MB."""


class Backoffs:
    """Seconds between tries of a request, without end: after the last one kopf would end the operator.

    A kind that cannot be listed, such as one whose conversion webhook is away, or a namespace that may not be read
    any more, is not the end of the other ones.
    """

    def __iter__(self) -> Iterator[float]:
        """From the first try on."""
        return chain((1, 1, 2, 3), repeat(4))


def settle(settings: kopf.OperatorSettings, *, scoped: bool) -> None:
    """Time-outs, and nothing of kopf that writes. `scoped`: only some namespaces are watched.

    Without them a connection that died silently hangs for hours; with `server_timeout` the API server ends each watch
    after ten minutes and a new one begins where it ended.
    """
    settings.peering.standalone = True
    settings.posting.enabled = False
    settings.networking.connect_timeout = 10
    settings.networking.request_timeout = 60
    settings.watching.connect_timeout = 10
    settings.watching.server_timeout = 600
    # The API server sends a bookmark each minute. A watch that shows less goes on in another connection.
    settings.watching.inactivity_timeout = 60
    # Else kopf lists the namespaces to see which of them exist. An operator of a few may not, and kopf asks again
    # for 55 s before it goes on without. The price: KEDA installed later is not seen before a restart.
    settings.scanning.disabled = scoped
    settings.networking.error_backoffs = Backoffs()
    settings.watching.chunk_size = PAGE


def live(
    registry: kopf.OperatorRegistry,
    *,
    scoped: bool,
    start: Callable[[], Awaitable[None]],
    stop: Callable[[], Awaitable[None]],
    login: Callable[[], Awaitable[kopf.AiohttpSession]],
) -> None:
    """Register the handlers of start, stop and log-in."""

    @kopf.on.startup(registry=registry)
    async def begin(*, settings: kopf.OperatorSettings, **_: Any) -> None:
        settle(settings, scoped=scoped)
        try:
            await start()
        except Exception as error:
            # kopf tries anything else again in a minute, for ever, and the kubelet sees a pod that runs.
            raise kopf.PermanentError(str(error)) from error

    @kopf.on.cleanup(registry=registry)
    async def end(**_: Any) -> None:
        await stop()

    @kopf.on.login(registry=registry)
    async def authenticate(**_: Any) -> kopf.AiohttpSession:
        return await login()
