"""The pages of all pods, as files that every test process shares, and the server that speaks for each pod.

`python pod_pages.py DIRECTORY PORT` serves them; it needs the standard library alone.
"""

from __future__ import annotations

import functools
import http.server
import os
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

UNAUTHORIZED = "401 Unauthorized"
"""A page that is answered with this status."""


class PodPages(dict[tuple[str, str], str]):
    """What each pod of this process's tests exposes, by namespace and name. Tests write, servers read."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __setitem__(self, pod: tuple[str, str], page: str) -> None:
        super().__setitem__(pod, page)
        file = self._directory.joinpath(*pod)
        file.parent.mkdir(exist_ok=True)
        descriptor, new = tempfile.mkstemp(dir=self._directory)
        with os.fdopen(descriptor, "w") as handle:
            handle.write(page)
        Path(new).replace(file)

    def __delitem__(self, pod: tuple[str, str]) -> None:
        super().__delitem__(pod)
        self._directory.joinpath(*pod).unlink()

    def update(self, pages: Mapping[tuple[str, str], str]) -> None:  # type: ignore[override]
        for pod, page in pages.items():
            self[pod] = page

    def pop(self, pod: tuple[str, str], default: str | None = None) -> str | None:  # type: ignore[override]
        page = self.get(pod, default)
        if pod in self:
            del self[pod]
        return page

    def clear(self) -> None:
        for pod in list(self):
            del self[pod]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    """Prometheus keeps its connections: a new one, and a thread for it, cost more than a page."""
    wbufsize = -1
    """Headers and page in one packet: the second of two would wait for an acknowledgement."""

    def __init__(self, directory: Path, *arguments: Any) -> None:
        self._directory = directory
        super().__init__(*arguments)

    def do_GET(self) -> None:
        match = re.fullmatch(r"/pods/([^/]+)/([^/]+)/metrics", self.path)
        text: str | None
        try:
            text = self._directory.joinpath(match[1], match[2]).read_text() if match else ""
        except FileNotFoundError:
            text = None
        content = (text or "").encode()
        self.send_response(404 if text is None else 401 if text == UNAUTHORIZED else 200)
        self.send_header("Content-Type", "text/html" if (text or "").startswith("<") else "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Scrapes are no news."""


def main(directory: str, port: str) -> None:
    handler = functools.partial(Handler, Path(directory))
    http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), handler).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
