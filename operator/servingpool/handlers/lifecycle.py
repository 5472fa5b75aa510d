"""Start, stop, log-in and liveness."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import kopf

REFUSED_BACKOFFS = (1, 1, 2, 3, 5, 8, 13, 21, 30, 30, 30, 30, 30)
"""Seconds between tries of a request that the API server refuses: three and a half minutes in all."""


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
    # Else kopf lists the namespaces to see which of them exist. An operator of a few may not, and kopf asks again
    # for 55 s before it goes on without. The price: KEDA installed later is not seen before a restart.
    settings.scanning.disabled = scoped
    if scoped:
        # `Watches` looks once a minute whether each namespace may still be read. kopf must not give up sooner.
        settings.networking.error_backoffs = REFUSED_BACKOFFS


def live(
    registry: kopf.OperatorRegistry,
    *,
    scoped: bool,
    start: Callable[[], Awaitable[None]],
    stop: Callable[[], Awaitable[None]],
    problem: Callable[[], str | None],
    login: Callable[[], Awaitable[kopf.ConnectionInfo]],
) -> None:
    """Register the handlers of start, stop and probes."""

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
    async def authenticate(**_: Any) -> kopf.ConnectionInfo:
        return await login()

    @kopf.on.probe(id="loop", registry=registry)
    async def alive(**_: Any) -> str:
        # A probe that raises anything else is retried for a minute, and the kubelet sees a time-out.
        found = problem()
        if found is not None:
            raise kopf.PermanentError(found)
        return "ticking"
