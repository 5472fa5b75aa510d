"""The stand-in for Prometheus as the benchmark sees it: a process to start, to move on, and to stop."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from servingpool_lab.control_plane import free_ports
from servingpool_lab.processes import SupervisedProcess, http_ready, open_local

LONGEST = 300.0
"""Seconds to write all replies of a tick."""


class StandInPrometheus:
    def __init__(
        self, logs: Path, *, pools: int, replicas: int, slots: int, per_namespace: int, seed: int, begin: float
    ) -> None:
        port = free_ports(1)[0]
        settings = {
            "pools": pools,
            "replicas": replicas,
            "slots": slots,
            "per-namespace": per_namespace,
            "seed": seed,
            "begin": begin,
            "port": port,
        }
        script = Path(__file__).with_name("stand_in_prometheus.py")
        self.url = f"http://127.0.0.1:{port}"
        self._process = SupervisedProcess(
            "stand-in-prometheus",
            [sys.executable, str(script), *(f"--{name}={value}" for name, value in settings.items())],
            logs / "stand-in-prometheus.log",
            ready=http_ready(f"{self.url}/control/sent"),
        )

    def __enter__(self) -> Self:
        self._process.start().wait_ready()
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._process.stop()

    def advance(self, to: float, pods: Sequence[Sequence[str]], share: float = 1.0) -> None:
        """Let these pods, by pool, serve until `to` (Unix seconds), at this share of the usual traffic."""
        self._ask("place", pods)
        self._ask("advance", {"to": to, "share": share})

    def sent(self) -> dict[str, int]:
        """Queries answered and bytes of the replies since the start."""
        sent: dict[str, int] = self._ask("sent")
        return sent

    def _ask(self, what: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self.url}/control/{what}", data=data, headers={"Content-Type": "application/json"}
        )
        with open_local(request, LONGEST) as answer:
            return json.loads(answer.read())
