"""A real vllm-router before one emulated engine, which runs while a Deployment's pod is Ready; and what clients see."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import pytest

from engine_pages.gateways import installed
from servingpool_lab.api_client import ApiError
from servingpool_lab.control_plane import free_ports
from servingpool_lab.processes import SupervisedProcess, http_ready, open_local, wait_until

from ..pods import is_ready  # noqa: TID252, tests are no package of an installed name
from .operators import Cluster

ENGINE, ROUTER = "chat", "router"
"""Deployments; the first is the model's name too."""
HOLDS = ("--retry-max-retries=60", "--retry-initial-backoff-ms=2000", "--retry-max-backoff-ms=2000")
"""It tries a request again for two minutes. Its page has a histogram for each number of tries, so they are few."""


class Answer(NamedTuple):
    """What a client got."""

    status: int
    seconds: float


def router_program() -> Path:
    """The real one. Skips where it cannot be had."""
    try:
        return installed("vllm-router") / "vllm-router"
    except (OSError, subprocess.CalledProcessError) as lacking:
        pytest.skip(f"no real vllm-router: {lacking}")


@dataclass
class Served:
    """Router and engine, as long as the context lasts. Their pages are those of the pods that stand for them."""

    cluster: Cluster
    pages: dict[tuple[str, str], str]
    program: Path
    directory: Path
    options: tuple[str, ...] = HOLDS
    _over: threading.Event = field(default_factory=threading.Event)
    _shown: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.engine_port, self.port, self.metrics = free_ports(3)
        self.engine = self._engine()
        self.router = self._router()
        self._thread = threading.Thread(target=self._follow)

    def __enter__(self) -> Self:
        self.engine.start().wait_ready()
        self.router.start()
        self._thread.start()
        wait_until(lambda: self.ask().status == 200, 60, "the router serves")
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        self.router.stop()
        self.engine.stop()

    def ask(self) -> Answer:
        """One request of ten tokens."""
        body = {"model": ENGINE, "messages": [{"role": "user", "content": "one two"}], "max_tokens": 10}
        address, began = f"http://127.0.0.1:{self.port}/v1/chat/completions", time.monotonic()
        request = urllib.request.Request(address, json.dumps(body).encode(), {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=150) as answer:
                answer.read()
                return Answer(answer.status, time.monotonic() - began)
        except urllib.error.HTTPError as error:
            return Answer(error.code, time.monotonic() - began)
        except OSError:
            return Answer(0, time.monotonic() - began)

    def _engine(self) -> SupervisedProcess:
        return SupervisedProcess(
            "engine",
            [
                *(sys.executable, "-m", "servingpool_lab.engine_pod", "serve", ENGINE, "--host=127.0.0.1"),
                *(f"--port={self.engine_port}", "--load-seconds=1", "--flat-step=0.02", "--shutdown-timeout=5"),
            ],
            self.directory / "engine.log",
            ready=http_ready(f"http://127.0.0.1:{self.engine_port}/health"),
        )

    def _router(self) -> SupervisedProcess:
        return SupervisedProcess(
            "router",
            [
                *(self.program, "--host=127.0.0.1", f"--port={self.port}", "--policy=round_robin"),
                *("--prometheus-host=127.0.0.1", f"--prometheus-port={self.metrics}"),
                *("--health-check-interval-secs=1", "--health-failure-threshold=1", "--health-success-threshold=1"),
                *("--disable-circuit-breaker", f"--worker-urls=http://127.0.0.1:{self.engine_port}", *self.options),
            ],
            self.directory / "router.log",
        )

    def _follow(self) -> None:
        """The engine runs while a pod of its Deployment is Ready, and both pages are those of the pods."""
        while not self._over.wait(0.25):
            with contextlib.suppress(OSError, ApiError):
                self._look()

    def _look(self) -> None:
        ready = [name for name, pod in self.cluster.pods(ENGINE).items() if is_ready(pod)]
        if ready and not self.engine.running:
            self.engine = self._engine().start()
        elif not ready and self.engine.running:
            self.engine.stop()
        shown = [(name, self.engine_port) for name in ready[:1]]
        shown += [(name, self.metrics) for name in self.cluster.pods(ROUTER)]
        for key in set(self._shown) - {name for name, _ in shown}:
            self.pages.pop((self.cluster.namespace, key), None)
        self._shown = [name for name, _ in shown]
        for name, port in shown:
            try:
                with open_local(f"http://127.0.0.1:{port}/metrics", 2.0) as page:
                    self.pages[self.cluster.namespace, name] = page.read().decode()
            except OSError:
                self.pages.pop((self.cluster.namespace, name), None)
