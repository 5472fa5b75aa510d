"""Real Ollama processes in the place of a Deployment's pods, and a Service before those that are Ready."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from servingpool_lab.control_plane import ControlPlane, free_ports
from servingpool_lab.processes import SupervisedProcess, http_ready

MODEL = "tiny"
PERIOD = 0.1
"""Seconds in which a replica runs for its share of a core, as under a pod's CPU limit."""
DRAINED = 60.0
"""Seconds that a replica may take for its last answers, as under terminationGracePeriodSeconds."""


@dataclass
class Replica:
    """One `ollama serve`."""

    process: SupervisedProcess
    port: int
    open: int = 0
    """Connections."""
    gone: float | None = None
    """When its pod was deleted, on the monotonic clock."""

    def signal(self, number: int) -> None:
        """To it and to the runner that it has started."""
        if self.process.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)


class Fleet:
    """A process for each pod of a Deployment. While the context lasts, they follow it."""

    def __init__(
        self,
        plane: ControlPlane,
        namespace: str,
        name: str,
        program: Path,
        directory: Path,
        *,
        slots: int,
        cores: float,
    ) -> None:
        """`slots`: requests that a replica runs at a time; `cores`: how much of a core it may use."""
        self._plane, self._namespace, self._name = plane, namespace, name
        self._program, self._directory = program, directory
        self._slots, self._cores = slots, cores
        self._replicas: dict[str, Replica] = {}
        self._ready: list[Replica] = []
        self._turn = 0
        self._over = threading.Event()
        self._threads = [threading.Thread(target=one) for one in (self._follow, self._limit, self._serve)]
        self.port = free_ports(1)[0]
        """Of the Service."""
        self.failure: BaseException | None = None

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        for replica in self._replicas.values():
            replica.signal(signal.SIGCONT)
            replica.process.stop()

    def load(self, model: Path) -> None:
        """Have Ollama take the model from a GGUF file, with a server that ends afterwards."""
        replica = self._start("create")
        try:
            replica.process.wait_ready()
            modelfile = self._directory / "Modelfile"
            modelfile.write_text(f"FROM {model}\nTEMPLATE {{{{ .Prompt }}}}\nPARAMETER num_thread 1\n")
            done = SupervisedProcess(
                "ollama-create",
                [self._program, "create", MODEL, "-f", modelfile],
                self._directory / "create.log",
                environment=self._environment(replica.port),
            ).start()
            while done.running:
                time.sleep(0.2)
        finally:
            replica.process.stop()

    def _environment(self, port: int) -> dict[str, str]:
        return {
            **os.environ,
            "OLLAMA_HOST": f"127.0.0.1:{port}",
            "OLLAMA_MODELS": str(self._directory / "models"),
            "OLLAMA_NUM_PARALLEL": f"{self._slots}",
            "OLLAMA_CONTEXT_LENGTH": "512",
            "OLLAMA_KEEP_ALIVE": "-1",
            "HOME": str(self._directory),
        }

    def _start(self, name: str) -> Replica:
        port = free_ports(1)[0]
        process = SupervisedProcess(
            f"ollama-{name}",
            [self._program, "serve"],
            self._directory / f"{name}.log",
            ready=http_ready(f"http://127.0.0.1:{port}/api/version"),
            environment=self._environment(port),
        )
        return Replica(process.start(), port)

    def _follow(self) -> None:
        """Pods come, get Ready and go."""
        while not self._over.wait(0.5):
            try:
                self._look()
            except OSError:
                continue  # the API server is busy
            except BaseException as error:
                self.failure = error
                raise

    def _look(self) -> None:
        path = f"/api/v1/namespaces/{self._namespace}/pods?labelSelector=app%3D{self._name}"
        pods: dict[str, dict[str, Any]] = {
            pod["metadata"]["name"]: pod
            for pod in self._plane.client.items(path)
            if "deletionTimestamp" not in pod["metadata"]
        }
        for name in pods.keys() - self._replicas.keys():
            self._replicas[name] = self._start(name)
        now = time.monotonic()
        for name, replica in list(self._replicas.items()):
            if name in pods:
                continue
            replica.gone = replica.gone or now
            if replica.open == 0 or now > replica.gone + DRAINED:
                replica.signal(signal.SIGCONT)
                replica.process.stop()
                del self._replicas[name]
        self._ready = [self._replicas[name] for name, pod in sorted(pods.items()) if is_ready(pod)]

    def _limit(self) -> None:
        """Stop each replica for the part of a period that its share of a core does not cover."""
        while not self._over.is_set():
            for number, wait in ((signal.SIGCONT, self._cores * PERIOD), (signal.SIGSTOP, (1 - self._cores) * PERIOD)):
                for replica in list(self._replicas.values()):
                    replica.signal(number)
                time.sleep(wait)

    def _serve(self) -> None:
        async def run() -> None:
            server = await asyncio.start_server(self._connect, "127.0.0.1", self.port)
            async with server:
                await asyncio.to_thread(self._over.wait)

        asyncio.run(run())

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Hand a connection to the next ready replica, as kube-proxy does."""
        if not self._ready:
            writer.close()
            return
        self._turn += 1
        replica = self._ready[self._turn % len(self._ready)]
        replica.open += 1
        try:
            theirs, ours = await asyncio.open_connection("127.0.0.1", replica.port)
            await asyncio.gather(_copy(reader, ours), _copy(theirs, writer))
        except OSError:
            writer.close()
        finally:
            replica.open -= 1


def is_ready(pod: dict[str, Any]) -> bool:
    """Whether a pod is Ready."""
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", []))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()
