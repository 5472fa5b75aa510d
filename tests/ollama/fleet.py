"""Real Ollama processes in the place of a Deployment's pods, and a Service before those that are Ready."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from pathlib import Path

from servingpool_lab.control_plane import ControlPlane, free_ports
from servingpool_lab.processes import SupervisedProcess, http_ready

from ..pods import Pod, Pods, Replica, is_ready  # noqa: TID252, tests are no package of an installed name

MODEL = "tiny"
DRAINED = 60.0
"""Seconds that a replica may take for its last answers, as under terminationGracePeriodSeconds."""


class Fleet(Pods):
    """An `ollama serve` for each pod."""

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
        super().__init__(plane, namespace, f"app={name}", cores)
        self._program, self._directory, self._slots = program, directory, slots
        self._ready: list[Replica] = []
        self._turn = 0
        self._threads.append(threading.Thread(target=self._serve))
        self.port = free_ports(1)[0]
        """Of the Service."""

    def load(self, model: Path) -> None:
        """Have Ollama take the model from a GGUF file, with a server that ends afterwards."""
        replica = self._start_server("create")
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

    def _start_server(self, name: str) -> Replica:
        port = free_ports(1)[0]
        process = SupervisedProcess(
            f"ollama-{name}",
            [self._program, "serve"],
            self._directory / f"{name}.log",
            ready=http_ready(f"http://127.0.0.1:{port}/api/version"),
            environment=self._environment(port),
        )
        return Replica(process.start(), port)

    def _start(self, pod: Pod) -> Replica:
        return self._start_server(pod["metadata"]["name"])

    def _end(self, name: str, replica: Replica, seconds: float) -> bool:
        if replica.open and seconds <= DRAINED:
            return False
        replica.stop()
        return True

    def _update(self, pods: dict[str, Pod]) -> None:
        ready = [name for name, pod in sorted(pods.items()) if is_ready(pod)]
        self._ready = [self._replicas[name] for name in ready]

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


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()
