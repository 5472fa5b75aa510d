"""Child processes that start in order, report readiness and never outlive their parent.

Every signal goes to a pid this module started itself; nothing is ever looked up by name.
"""

import os
import queue
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Self

ReadinessProbe = Callable[[], bool]

# Linux tears a child down with its parent through PR_SET_PDEATHSIG. The setting has to be made
# by the child itself: this shim makes it, closes the race with a parent that died before, and
# becomes the real program. A preexec_fn would do the same but is unsafe in a threaded parent.
_DIE_WITH_PARENT = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""

_LOG_TAIL_BYTES = 4096
_LOG_TAIL_LINES = 15


class ProcessError(RuntimeError):
    """A child process could not start, became ready too late or exited by itself."""


def wait_until(
    condition: Callable[[], bool],
    timeout_seconds: float,
    description: str,
    interval_seconds: float | None = None,
) -> None:
    """Poll `condition` until it is true: each `interval_seconds`, else often at first and later four times a second.

    Raises:
        TimeoutError: it is still false after `timeout_seconds`; names `description`.
    """
    begun = time.monotonic()
    while not condition():
        waited = time.monotonic() - begun
        if waited >= timeout_seconds:
            raise TimeoutError(f"{description}: not within {timeout_seconds:g} s")
        time.sleep(min(0.25, 0.05 + waited / 20) if interval_seconds is None else interval_seconds)


def open_local(
    request: str | urllib.request.Request, timeout_seconds: float, context: ssl.SSLContext | None = None
) -> AbstractContextManager[IO[bytes]]:
    """Open an HTTP URL of a local process, past any proxy that the environment names.

    Raises:
        urllib.error.HTTPError: an error status; it is an OSError.
        OSError: no answer.
    """
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if context is not None:
        handlers.append(urllib.request.HTTPSHandler(context=context))
    response: AbstractContextManager[IO[bytes]] = urllib.request.build_opener(*handlers).open(
        request, timeout=timeout_seconds
    )
    return response


def http_ready(url: str, context: ssl.SSLContext | None = None) -> ReadinessProbe:
    """A probe that is true once `url` answers with a status below 400."""

    def probe() -> bool:
        try:
            with open_local(url, 2.0, context):
                return True
        except OSError:
            return False

    return probe


class _Spawner:
    """Starts every child from one thread that lives as long as the process.

    Linux sends the parent-death signal when the *thread* that forked ends. Without this, a plane
    started from a short-lived worker thread would be killed as soon as that worker returned.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: queue.SimpleQueue[
            tuple[Callable[[], subprocess.Popen[bytes]], Future[subprocess.Popen[bytes]]]
        ] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def spawn(self, start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="spawner", daemon=True)
                self._thread.start()
        answer: Future[subprocess.Popen[bytes]] = Future()
        self._requests.put((start, answer))
        return answer.result()

    def _serve(self) -> None:
        while True:
            start, answer = self._requests.get()
            try:
                answer.set_result(start())
            except BaseException as error:  # handed to the caller, who waits for it
                answer.set_exception(error)


_spawner = _Spawner()


class SupervisedProcess:
    """One child process with a log file and a readiness probe."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log_file: Path,
        *,
        ready: ReadinessProbe | None = None,
        ready_timeout_seconds: float = 240.0,
        stop_timeout_seconds: float = 20.0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Describe a process; `start` runs it.

        Args:
            name: for messages.
            command: program and arguments; the program is a path or is looked up on PATH.
            log_file: stdout and stderr are appended here.
            ready: true once the process serves; without one it is ready when it runs.
            ready_timeout_seconds: how long `wait_ready` waits.
            stop_timeout_seconds: from SIGTERM to SIGKILL in `stop`.
            environment: the whole environment; the parent's if omitted.
        """
        self.name = name
        self.log_file = log_file
        self._command = [str(part) for part in command]
        self._ready = ready
        self._ready_timeout_seconds = ready_timeout_seconds
        self._stop_timeout_seconds = stop_timeout_seconds
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The pid of the current or last run, None before the first."""
        return self._process.pid if self._process else None

    @property
    def running(self) -> bool:
        """Whether the process was started and has not exited."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Exit status of the last run (negative: the signal), None while running."""
        return self._process.poll() if self._process else None

    def start(self) -> Self:
        """Run the process in a session of its own; does not wait for readiness.

        The own session keeps a Ctrl-C in the terminal from reaching the child before the
        parent has ordered the shutdown.

        Raises:
            ProcessError: it runs already, or the program does not exist.
        """
        if self.running:
            raise ProcessError(f"{self.name} is already running (pid {self.pid})")
        command = self._full_command()
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("ab") as log:
            self._process = _spawner.spawn(
                lambda: subprocess.Popen(  # noqa: S603 - the caller's own command, no shell
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=dict(self._environment) if self._environment is not None else None,
                    start_new_session=True,
                )
            )
        return self

    def wait_ready(self) -> Self:
        """Wait for the readiness probe.

        Raises:
            ProcessError: the process exited, or is not ready in time; carries the log's end.
        """
        try:
            wait_until(self._ready_or_dead, self._ready_timeout_seconds, f"{self.name} ready")
        except TimeoutError as error:
            raise ProcessError(f"{error}\n{self.log_tail()}") from None
        if not self.running:
            raise ProcessError(f"{self.name} exited with {self.exit_code}\n{self.log_tail()}")
        return self

    def stop(self) -> int | None:
        """SIGTERM, wait for the exit, SIGKILL after the deadline; returns the exit status.

        Returning only after the exit matters for a restart on the same port: while the old
        process drains it still answers the new one's readiness probe.
        """
        if self._process is None:
            return None
        self._signal(signal.SIGTERM)
        try:
            return self._process.wait(self._stop_timeout_seconds)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int | None:
        """SIGKILL and wait for the exit: a crash, for tests, or the end of a failed `stop`."""
        if self._process is None:
            return None
        self._signal(signal.SIGKILL)
        return self._process.wait()

    def log_tail(self) -> str:
        """The last lines of the log file, with its path."""
        try:
            with self.log_file.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES))
                text = log.read().decode(errors="replace")
        except OSError as error:
            return f"(no log: {error})"
        return "\n".join([f"--- {self.log_file}", *text.splitlines()[-_LOG_TAIL_LINES:]])

    def _full_command(self) -> list[str]:
        program = shutil.which(self._command[0])
        if program is None:
            raise ProcessError(f"{self.name}: no program {self._command[0]!r}")
        command = [program, *self._command[1:]]
        if not sys.platform.startswith("linux"):
            return command
        shim = [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid())]
        return shim + command

    def _ready_or_dead(self) -> bool:
        return not self.running or self._ready is None or self._ready()

    def _signal(self, number: signal.Signals) -> None:
        # Popen.send_signal polls first: a pid that was already reaped is never signalled.
        if self._process is not None:
            self._process.send_signal(number)


class ProcessGroup:
    """Processes that start in the order given and stop in reverse."""

    def __init__(self) -> None:
        self._processes: list[SupervisedProcess] = []

    def start(self, *processes: SupervisedProcess) -> None:
        """Start all of `processes` at once, then wait until each is ready.

        Raises:
            ProcessError: one did not become ready. It and the others stay in the group, so
                that `stop` ends them.
        """
        for process in processes:
            self._processes.append(process)
            process.start()
        for process in processes:
            process.wait_ready()

    def stop(self) -> None:
        """Stop every process, the last started first, and forget them."""
        while self._processes:
            self._processes.pop().stop()

    def exited(self) -> list[SupervisedProcess]:
        """The processes of this group that no longer run."""
        return [process for process in self._processes if not process.running]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
