"""What every answer is bound by: who may ask, and what the browser may do with it."""

from __future__ import annotations

from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOCAL = ("127.0.0.1", "localhost", "[::1]")
HEADERS = {
    # No script, style or connection from elsewhere, and no inline one: a name in the cluster cannot become code.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class Guard:
    """Refuses requests to other hosts' names, and adds the headers.

    A page of another site can make its own name lead to 127.0.0.1 (DNS rebinding), and would then be of our origin.
    Its requests still carry its name as their Host.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        """`hosts`: the names that are ours, without a port; an IPv6 address in brackets."""
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-cache" if scope["path"].startswith("/static/") else "no-store")
            await send(message)

        given = Headers(scope=scope).getlist("host")
        if len(given) != 1 or name_of(given[0]) not in self._hosts:
            refusal = PlainTextResponse("This host name is not served here. Open http://127.0.0.1 instead.\n", 421)
            await refusal(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)


def name_of(host: str) -> str:
    """A Host header without its port."""
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdigit() else host.lower()
