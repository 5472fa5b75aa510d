"""Builds the control plane's programs from Go modules, once, into the user's cache.

`python -m servingpool_lab.binaries` builds everything ahead of time.
"""

import argparse
import fcntl
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column

from servingpool_lab.go_modules import MODULES, OPTIONAL, BuildError, Program, ToolModule, cache_directory
from servingpool_lab.go_toolchain import MINIMUM_GO, Go, find_go

# The expected times below were measured on this many cores.
_MEASURED_CORES = 2


def ensure_binaries(*names: str, console: Console | None = None) -> dict[str, Path]:
    """Paths of the programs of the named modules, built if missing.

    Takes minutes the first time and milliseconds later. Two callers at once do not collide:
    the second waits for the first.

    Args:
        names: keys of `MODULES`; all but the optional ones by default.
        console: where progress goes; standard error if omitted.

    Returns:
        Program name to path.

    Raises:
        BuildError: Go is missing or a build failed.
        KeyError: no such module.
    """
    modules = [MODULES[name] for name in names or (each for each in MODULES if each not in OPTIONAL)]
    missing = [module for module in modules if not module.output_directory().is_dir()]
    if missing:
        console = console or Console(stderr=True)
        go = find_go()
        _announce(missing, go, console)
        with _Display(missing, console) as display:
            for module in missing:
                _build_module(module, go, display)
    return {program.name: module.output_directory() / program.name for module in modules for program in module.programs}


def _scaled(seconds: float) -> float:
    """Expected seconds on this machine; beyond eight cores the linker's share dominates."""
    return seconds * _MEASURED_CORES / max(1, min(os.cpu_count() or 1, 8))


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def _announce(modules: list[ToolModule], go: Go, console: Console) -> None:
    programs = [program for module in modules for program in module.programs]
    minutes = _scaled(sum(p.expected_seconds for p in programs)) / 60
    megabytes = sum(p.megabytes for p in programs)
    console.print(
        f"Building the local control plane from Go packages, once: "
        f"{', '.join(p.name for p in programs)}.\n"
        f"About {max(1, round(minutes))} min, {megabytes} MB in {cache_directory() / 'bin'}, "
        f"with Go {go.version[0]}.{go.version[1]} from {go.path}.",
        highlight=False,
        soft_wrap=True,
    )
    if go.version < MINIMUM_GO:
        console.print(f"Go {'.'.join(map(str, MINIMUM_GO))} is downloaded first, by Go itself.")


@dataclass
class _Display:
    """The progress bar: which program is compiling, for how long, and how long it takes."""

    modules: list[ToolModule]
    console: Console
    _progress: Progress = field(init=False)
    _task: TaskID = field(init=False)
    _done_seconds: float = field(init=False, default=0.0)
    _started: float = field(init=False, default=0.0)

    def __enter__(self) -> Self:
        total = _scaled(sum(p.expected_seconds for m in self.modules for p in m.programs))
        # Only the compiler's own words give way on a narrow terminal.
        self._progress = Progress(
            TextColumn("{task.description}", table_column=Column(no_wrap=True, min_width=23)),
            BarColumn(bar_width=16),
            TextColumn("{task.fields[clock]}", table_column=Column(no_wrap=True, min_width=31)),
            TextColumn("[dim]{task.fields[activity]}", table_column=Column(no_wrap=True, ratio=1)),
            console=self.console,
            transient=True,
            expand=True,
        )
        self._task = self._progress.add_task("starting", total=total, clock="", activity="")
        self._started = time.monotonic()
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def note(self, text: str) -> None:
        """Show `text` beside the bar."""
        self._progress.update(self._task, activity=text[-60:])

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self.console.print(text, highlight=False, soft_wrap=True)

    def tick(self, program: Program, elapsed_seconds: float) -> None:
        """Advance within `program`. The bar never claims an unfinished build is done."""
        expected = _scaled(program.expected_seconds)
        share = min(elapsed_seconds, 0.95 * expected)
        self._progress.update(
            self._task,
            description=program.name,
            completed=self._done_seconds + share,
            clock=f"{_clock(elapsed_seconds)} of about {_clock(expected)}, "
            f"{_clock(time.monotonic() - self._started)} in all",
        )

    def finished(self, program: Program, elapsed_seconds: float, size_bytes: int) -> None:
        """`program` is built."""
        self._done_seconds += _scaled(program.expected_seconds)
        self.say(f"  {program.name}: {_clock(elapsed_seconds)}, {size_bytes / 1e6:.0f} MB")

    def skipped(self, module: ToolModule) -> None:
        """Somebody else built `module` while this process waited."""
        self._done_seconds += _scaled(sum(p.expected_seconds for p in module.programs))


def _build_module(module: ToolModule, go: Go, display: _Display) -> None:
    output = module.output_directory()
    output.parent.mkdir(parents=True, exist_ok=True)
    with _lock(output.with_suffix(".lock"), module.name, display):
        if output.is_dir():
            display.skipped(module)
            return
        staging = output.with_suffix(".partial")
        # Left by a build that was killed. Go's own cache keeps what it had compiled.
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir()
        try:
            for program in module.programs:
                _build_program(module, program, staging / program.name, go, display)
            staging.rename(output)
        finally:
            shutil.rmtree(staging, ignore_errors=True)


@contextmanager
def _lock(path: Path, name: str, display: _Display) -> Iterator[None]:
    """Hold an exclusive lock that the kernel releases with the process, however it ends."""
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            display.say(f"  {name}: another process is building it, waiting")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _build_program(module: ToolModule, program: Program, target: Path, go: Go, display: _Display) -> None:
    started = time.monotonic()
    # -v names each package as it compiles: the only sign of life that `go build` gives.
    command: list[str | Path] = [go.path, "build", "-v", *module.build_flags(), "-o", target, program.package]
    with subprocess.Popen(  # noqa: S603 - go, found above; no shell
        command,
        cwd=module.directory,
        env=go.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as build:
        lines: list[str] = []
        reader = threading.Thread(target=_follow, args=(build, lines, display), daemon=True)
        reader.start()
        try:
            while build.poll() is None:
                display.tick(program, time.monotonic() - started)
                time.sleep(0.2)
        except BaseException:
            build.terminate()
            raise
        reader.join()
    if build.returncode != 0:
        errors = "\n".join(lines[-20:])
        raise BuildError(f"go build {program.package} (in {module.directory}) failed:\n{errors}")
    display.finished(program, time.monotonic() - started, target.stat().st_size)


def _follow(build: "subprocess.Popen[str]", lines: list[str], display: _Display) -> None:
    assert build.stderr is not None
    for line in build.stderr:
        lines.append(line.rstrip())
        display.note(line.strip())


def main() -> int:
    """Build the named modules and print where each program lies."""
    parser = argparse.ArgumentParser(description="Build the local control plane's programs.")
    parser.add_argument("modules", nargs="*", help=f"of {', '.join(MODULES)}; all by default")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.modules if name not in MODULES]
    if unknown:
        parser.error(f"no module {', '.join(unknown)}")
    try:
        binaries = ensure_binaries(*(arguments.modules or MODULES))
    except BuildError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    for path in binaries.values():
        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
