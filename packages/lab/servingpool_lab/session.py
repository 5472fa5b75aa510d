"""`servingpool lab`: says what it will do, does it, shows it, and takes it all down again."""

from __future__ import annotations

import io
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.live import Live

from servingpool_lab.binaries import ensure_binaries, missing_programs
from servingpool_lab.collector import Collector
from servingpool_lab.go_modules import LAB
from servingpool_lab.plan import plan
from servingpool_lab.record import Recorder
from servingpool_lab.scenario import Scenario
from servingpool_lab.snapshot import Snapshot
from servingpool_lab.stack import Stack
from servingpool_lab.view import plain
from servingpool_lab.view.screen import Screen

LINE_SECONDS = 15.0
_FRAME_SECONDS = 0.5
_FONT_FACE = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
_PATIENCE_SECONDS = 3.0
"""How long a part may seem to be away before the lab gives up: a busy machine makes a probe late."""


class PartDiedError(RuntimeError):
    """A part exited by itself; the message names it and its log."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a session shows itself and what it leaves behind."""

    directory: Path = Path(".lab")
    record: Path | None = None
    """Where the record goes; `record.json` in the directory if omitted."""
    picture: Path | None = None
    """Where the last frame goes, as SVG."""
    live: bool = True


class Session:
    """One run, from plan to farewell."""

    def __init__(self, scenario: Scenario, options: Options, console: Console) -> None:
        self._scenario = scenario
        self._options = options
        self._console = console
        self._begun = time.monotonic()
        self._recorder = Recorder(scenario)
        self._missing_since: dict[str, float] = {}

    def run(self) -> None:
        """Runs until Ctrl-C, SIGTERM or the end of the given minutes.

        Raises:
            BuildError: the programs are missing and cannot be built.
            LabError: another lab runs in the directory.
        OSError: the record cannot be written; everything is stopped all the same.
            ProcessError: a part did not start.
            PartDiedError: a part exited.
        """
        self._say_plan()
        with _interruptible():
            try:
                binaries = ensure_binaries(*LAB, console=self._console, from_path=True)
            except KeyboardInterrupt:
                self._console.print("Stopped. Compiled programs are kept, and the next start continues from there.")
                return
            self._run(binaries)

    def _run(self, binaries: Mapping[str, Path]) -> None:
        stack = Stack(self._scenario, self._options.directory, binaries)
        collector: Collector | None = None
        try:
            self._console.print("[b]Starting[/]")
            stack.start(self._say_done)
            collector = Collector(self._scenario, stack.plane.client, stack.emulator_url, stack.parts, self._begun)
            collector.start()
            self._watch(collector, self._hints(stack, binaries["kubectl"]))
        except KeyboardInterrupt:
            self._console.print()
        finally:
            with _deaf():
                self._finish(stack, collector)

    def _watch(self, collector: Collector, hints: list[str]) -> None:
        for hint in hints:
            self._console.print(f"  {hint}", highlight=False, soft_wrap=True)
        if self._options.live and self._console.is_terminal:
            self._watch_live(collector, hints)
        else:
            self._watch_lines(collector)

    def _watch_live(self, collector: Collector, hints: list[str]) -> None:
        # The alternate screen leaves what was printed before in place when the run is over.
        frame = Screen(collector.snapshot(), self._scenario, hints)
        with Live(frame, console=self._console, screen=True, auto_refresh=False) as live:
            while not self._over(snapshot := collector.snapshot()):
                live.update(Screen(snapshot, self._scenario, hints), refresh=True)
                time.sleep(_FRAME_SECONDS)

    def _watch_lines(self, collector: Collector) -> None:
        told = 0.0
        decided = False
        while not self._over(snapshot := collector.snapshot()):
            if snapshot.first_decision is not None and not decided:
                decided = True
                self._console.print(f"first decision {snapshot.first_decision:.1f} s after the start")
            if time.monotonic() - told >= LINE_SECONDS:
                told = time.monotonic()
                self._console.print(plain.line(snapshot, self._scenario), highlight=False, soft_wrap=True)
            time.sleep(_FRAME_SECONDS)

    def _over(self, snapshot: Snapshot) -> bool:
        """Whether the time is up; takes notes, and raises if a part has gone."""
        self._recorder.note(snapshot)
        now = time.monotonic()
        self._missing_since = {
            name: self._missing_since.get(name, now) for name, runs in snapshot.parts.items() if not runs
        }
        for name, since in self._missing_since.items():
            if now - since > _PATIENCE_SECONDS:
                logs = self._options.directory / "logs"
                raise PartDiedError(f"{name} stopped unexpectedly. Its log is in {logs}")
        minutes = self._scenario.minutes
        return minutes is not None and snapshot.seconds >= minutes * 60

    def _finish(self, stack: Stack, collector: Collector | None) -> None:
        begin = time.monotonic()
        try:
            if collector is not None:
                last = collector.refresh()
                collector.stop()
                self._leave_behind(last)
        finally:
            self._console.print("[b]Stopping[/]")
            stack.stop(lambda what: self._console.print(f"  {what}", highlight=False))
        self._console.print(
            f"Stopped everything in {time.monotonic() - begin:.1f} s. Logs: {self._options.directory / 'logs'}",
            highlight=False,
            soft_wrap=True,
        )

    def _leave_behind(self, last: Snapshot) -> None:
        self._recorder.note(last)
        path = self._options.record or self._options.directory / "record.json"
        self._recorder.write(path, last)
        self._console.print(plain.line(last, self._scenario), highlight=False, soft_wrap=True)
        self._console.print(f"Record: {path}", highlight=False, soft_wrap=True)
        if self._options.picture is not None:
            save_picture(self._options.picture, last, self._scenario)
            self._console.print(f"Picture: {self._options.picture}", highlight=False, soft_wrap=True)

    def _say_plan(self) -> None:
        self._console.print("[b]This will[/]")
        for step in plan(self._scenario, build=missing_programs(*LAB)):
            self._console.print(f"  - {step}", highlight=False, soft_wrap=True)

    def _say_done(self, what: str, seconds: float) -> None:
        self._console.print(f"  {seconds:4.1f} s  {what}", highlight=False, soft_wrap=True)

    def _hints(self, stack: Stack, kubectl: Path) -> list[str]:
        command = "kubectl" if shutil.which("kubectl") else str(kubectl)
        return [
            f"export KUBECONFIG={stack.plane.kubeconfig} SERVINGPOOL_PROMETHEUS={stack.prometheus_url}",
            f"{command} get servingpools --watch",
            "servingpool dashboard",
        ]


def save_picture(path: Path, snapshot: Snapshot, scenario: Scenario, *, width: int = 100, height: int = 29) -> None:
    """Writes the frame of a snapshot as SVG."""
    console = Console(record=True, width=width, height=height, file=io.StringIO(), force_terminal=True)
    console.print(Screen(snapshot, scenario))
    path.parent.mkdir(parents=True, exist_ok=True)
    svg = console.export_svg(title="servingpool lab")
    # rich lets the picture fetch its font from the network, which no page that shows it allows.
    path.write_text(_FONT_FACE.sub("", svg))


@contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM does what Ctrl-C does, and SIGINT too in a shell's background job, which inherits it ignored."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _answered(interrupt):
        yield


@contextmanager
def _deaf() -> Iterator[None]:
    """A second Ctrl-C must not leave half of the processes behind."""
    with _answered(signal.SIG_IGN):
        yield


@contextmanager
def _answered(by: Callable[[int, FrameType | None], None] | signal.Handlers) -> Iterator[None]:
    """SIGINT and SIGTERM are answered otherwise for a while; only a main thread can say so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, by) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
