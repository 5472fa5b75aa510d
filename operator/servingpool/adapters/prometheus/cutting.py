"""HTTP connections that another thread can cut.

A time-out of the socket is one per read: a server that sends a byte of its headers every second holds the thread that
reads them without end. Only the end of the connection frees it.
"""

from __future__ import annotations

import contextlib
import math
import socket
import time
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection


class CuttableAdapter(HTTPAdapter):
    """For one thread's requests to one server, one at a time: remembers the connection opened last, which is in use."""

    def __init__(self, **settings: Any) -> None:
        self.deadline = math.inf
        """Monotonic time after which a new connection is refused."""
        self._socket: socket.socket | None = None
        super().__init__(**settings)

    def init_poolmanager(self, *args: Any, **settings: Any) -> None:
        """Make the pools open connections that are remembered."""
        super().init_poolmanager(*args, **settings)
        manager = self.poolmanager
        manager.pool_classes_by_scheme = {
            scheme: type(pool.__name__, (pool,), {"ConnectionCls": self._remembered(pool.ConnectionCls)})
            for scheme, pool in manager.pool_classes_by_scheme.items()
        }

    def cut(self) -> None:
        """End the connection. A thread that waits for its next byte continues at once, with an error."""
        if self._socket is not None:
            with contextlib.suppress(OSError):  # it is closed already
                # Not a TLS socket's own method, which takes the session from under the thread that reads.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def _remembered(self, kind: type[HTTPConnection]) -> type[HTTPConnection]:
        def connect(connection: HTTPConnection) -> None:
            kind.connect(connection)
            self._socket = connection.sock
            if time.monotonic() > self.deadline:  # `cut` may have come before there was a connection
                raise TimeoutError("connected too late")

        return type(kind.__name__, (kind,), {"connect": connect})
