"""HTTP connections that another thread can cut.

A time-out of the socket is one per read: a server that sends a byte of its headers every second holds the thread that
reads them for ever. Only the end of the connection frees it.
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
        """Monotonic time behind which a connection is of no use any more."""
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
        """End the connection: whoever waits for its next byte goes on at once, with an error."""
        if self._socket is not None:
            with contextlib.suppress(OSError):  # it is closed already
                # Not a TLS socket's own method, which takes the session from under the thread that reads.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def _remembered(self, kind: type[HTTPConnection]) -> type[HTTPConnection]:
        def connect(connection: HTTPConnection) -> None:
            kind.connect(connection)
            self._socket = connection.sock
            if time.monotonic() > self.deadline:  # it was cut while there was nothing to cut yet
                raise TimeoutError("connected too late")

        return type(kind.__name__, (kind,), {"connect": connect})
