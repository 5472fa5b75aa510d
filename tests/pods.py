"""Real processes in the place of a Deployment's pods: a process starts with each pod and ends after it."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from servingpool_lab.api_client import ApiError
from servingpool_lab.control_plane import ControlPlane
from servingpool_lab.processes import SupervisedProcess

PERIOD = 0.1
"""Seconds in which a replica runs for its share of a core, as under a pod's CPU limit."""

Pod = dict[str, Any]


@dataclass
class Replica:
    """The engine of a pod."""

    process: SupervisedProcess
    port: int
    open: int = 0
    """Connections."""
    gone: float | None = None
    """When its pod was deleted, on the monotonic clock."""

    def signal(self, number: int) -> None:
        """Send a signal to the process and to those that it has started."""
        if self.process.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)

    def stop(self) -> None:
        """End the process and those that it has started."""
        self.signal(signal.SIGCONT)
        try:
            self.process.stop()
        finally:
            self.signal(signal.SIGKILL)


class Pods:
    """A process for each pod of a Deployment. While the context lasts, the processes follow the pods.

    A failure of the thread that follows the pods is raised at the end.
    """

    def __init__(self, plane: ControlPlane, namespace: str, selector: str, cores: float | None) -> None:
        """`selector`: of the pods' labels; `cores`: how much of a core a replica may use, None for no limit."""
        self._plane, self._cores, self._selector = plane, cores, selector
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._replicas: dict[str, Replica] = {}
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._follow)]
        self._running = ExitStack()
        self.failure: BaseException | None = None

    def __enter__(self) -> Self:
        with ExitStack() as running:
            running.callback(self._stop_all)
            running.enter_context(limited(self._slowed, self._cores))
            running.callback(self._join)
            for thread in self._threads:
                thread.start()
            self._running = running.pop_all()
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._running.close()
        if self.failure is not None:
            raise self.failure

    def _join(self) -> None:
        self._over.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def _stop_all(self) -> None:
        with ExitStack() as ends:
            for replica in self._replicas.values():
                ends.callback(replica.stop)

    def _slowed(self) -> list[Replica]:
        """Replicas that the limit of CPU applies to."""
        return list(self._replicas.values())

    def _start(self, pod: Pod) -> Replica:
        """Start the process of a pod that has an address."""
        raise NotImplementedError

    def _end(self, name: str, replica: Replica, seconds: float) -> bool:
        """End a replica, so many seconds after its pod was deleted. True once it has ended."""
        raise NotImplementedError

    def _update(self, pods: dict[str, Pod]) -> None:
        """Do what else follows from the pods that there are, before a replica ends whose pod is gone."""
        raise NotImplementedError

    def _follow(self) -> None:
        """Look for pods that came or went until the context ends."""
        while not self._over.wait(0.5):
            try:
                self._look()
            except OSError:
                continue  # the API server is busy
            except ApiError as error:
                if error.status != 429 and error.status < 500:
                    self.failure = error
                    return
            except BaseException as error:
                self.failure = error
                return

    def _look(self) -> None:
        pods: dict[str, Pod] = {
            pod["metadata"]["name"]: pod
            for pod in self._plane.client.items(f"{self._path}?labelSelector={quote(self._selector)}")
            if "deletionTimestamp" not in pod["metadata"]
        }
        for name in pods.keys() - self._replicas.keys():
            if pods[name]["status"].get("podIP"):
                self._replicas[name] = self._start(pods[name])
        self._update(pods)
        now = time.monotonic()
        for name, replica in list(self._replicas.items()):
            if name in pods:
                continue
            replica.gone = replica.gone or now
            if self._end(name, replica, now - replica.gone):
                del self._replicas[name]


@contextlib.contextmanager
def limited(replicas: Callable[[], list[Replica]], cores: float | None) -> Iterator[None]:
    """Let each replica run for its share of each period. None: no limit.

    They take turns, as if each had hardware of its own: a token of three that ran at once on two cores took twice as long.
    Where the shares add up to more than one core, each gets less.
    """
    over = threading.Event()

    def run(share: float) -> None:
        while not over.is_set():
            ends = time.monotonic() + PERIOD
            for replica in replicas():
                if not replica.process.running:
                    continue
                replica.signal(signal.SIGCONT)
                time.sleep(share * PERIOD)
                replica.signal(signal.SIGSTOP)
            time.sleep(max(0.0, ends - time.monotonic()))
        for replica in replicas():
            replica.signal(signal.SIGCONT)

    threads = [] if cores is None else [threading.Thread(target=run, args=(cores,))]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def is_ready(pod: Pod) -> bool:
    """Whether a pod is Ready."""
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", []))
