"""Builds the control plane's programs from Go modules, once, into the user's cache.

`python -m servingpool_lab.binaries` builds everything ahead of time.
"""

import argparse
import fcntl
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column

from servingpool_lab.go_modules import MODULES, OF_ONE_LANE, OPTIONAL, BuildError, Program, ToolModule, cache_directory
from servingpool_lab.go_toolchain import MINIMUM_GO, Go, find_go

_PER_PACKAGE, _PER_PROGRAM = 0.08, 4.0
"""Seconds to compile a package, and to link a program, on two idle cores: 2,700 for Kubernetes take 4 minutes."""
_PRIOR = 20.0
"""Seconds of work, of which the pace of the build on this machine is taken to be the one above."""
_LINE_SECONDS = 30.0
"""Between two lines on how far a build is, where there is no terminal to show a bar."""


def ensure_binaries(*names: str, console: Console | None = None, from_path: bool = False) -> dict[str, Path]:
    """Paths of the programs of the named modules, built if missing.

    Takes minutes the first time and milliseconds later. Two callers at once do not collide:
    the second waits for the first.

    Args:
        names: keys of `MODULES`; all but the optional ones by default.
        console: where progress goes; standard error if omitted.
        from_path: a program on PATH whose version fits is taken instead of building it.

    Returns:
        Program name to path.

    Raises:
        BuildError: Go is missing or a build failed.
        KeyError: no such module.
    """
    modules = [MODULES[name] for name in names or (each for each in MODULES if each not in OPTIONAL)]
    found = {
        program.name: path
        for module in modules
        for program in module.programs
        if (path := _find(module, program, from_path=from_path)) is not None
    }
    missing = [(module, [each for each in module.programs if each.name not in found]) for module in modules]
    if any(programs for _, programs in missing):
        console = console or Console(stderr=True)
        go = find_go()
        _announce([each for _, programs in missing for each in programs], go, console)
        with _Display(console) as display:
            for module, programs in missing:
                if programs:
                    _build_module(module, programs, go, display)
    return {
        program.name: found.get(program.name, module.output_directory() / program.name)
        for module in modules
        for program in module.programs
    }


def missing_programs(*names: str) -> list[str]:
    """Programs of the named modules that are neither built nor, in a version that fits, on PATH."""
    programs = [(MODULES[name], program) for name in names for program in MODULES[name].programs]
    return [program.name for module, program in programs if _find(module, program, from_path=True) is None]


def _find(module: ToolModule, program: Program, *, from_path: bool) -> Path | None:
    built = module.output_directory() / program.name
    if built.is_file():
        return built
    path = shutil.which(program.name) if from_path and program.fits is not None else None
    return Path(path) if path is not None and _fits(Path(path), program) else None


def _fits(path: Path, program: Program) -> bool:
    """Whether its version is one that the lab is made for. One that does not say it in ten seconds is not used."""
    try:
        done = subprocess.run([path, *program.version], capture_output=True, text=True, check=True, timeout=10.0)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return False
    version = re.search(r"(\d+)\.(\d+)", done.stdout + done.stderr)
    assert program.fits is not None
    return version is not None and program.fits[0] <= (int(version[1]), int(version[2])) < program.fits[1]


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def _announce(programs: Sequence[Program], go: Go, console: Console) -> None:
    megabytes = sum(p.megabytes for p in programs)
    console.print(
        f"Building from Go packages, once: {', '.join(p.name for p in programs)}.\n"
        f"{megabytes} MB in {cache_directory() / 'bin'}, with Go {go.version[0]}.{go.version[1]} from {go.path}.",
        highlight=False,
        soft_wrap=True,
    )
    if go.version < MINIMUM_GO:
        console.print(f"Go {'.'.join(map(str, MINIMUM_GO))} is downloaded first, by Go itself.")


@dataclass
class Work:
    """How much there is to do, in seconds of two idle cores, and how much of it is done."""

    begun: float
    """On the clock that `left` is asked by, in seconds."""
    total: float = 0.0
    done: float = 0.0

    @property
    def share(self) -> float:
        """0 to 1. What is not finished is never all."""
        return min(self.done / self.total, 0.99) if self.total else 0.0

    def left(self, now: float) -> float:
        """Seconds that the rest takes at the pace so far."""
        return max(0.0, self.total - self.done) * (now - self.begun + _PRIOR) / (self.done + _PRIOR)


@dataclass
class _Display:
    """What is compiling, how much of all is done, and how long the rest takes at this pace."""

    console: Console
    _progress: Progress = field(init=False)
    _task: TaskID = field(init=False)
    _work: Work = field(init=False)
    _said: float = field(init=False)

    def __enter__(self) -> Self:
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
        self._task = self._progress.add_task("starting", total=1.0, clock="", activity="")
        self._said = time.monotonic()
        self._work = Work(self._said)
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def expect(self, packages: int, programs: Sequence[Program]) -> None:
        """So many packages are to be compiled for these programs."""
        self._work.total += packages * _PER_PACKAGE + len(programs) * _PER_PROGRAM
        self.say(f"  {packages} packages to compile for {', '.join(p.name for p in programs)}")

    def compiling(self, package: str) -> None:
        """A package begins."""
        self._work.done += _PER_PACKAGE
        self.note(package)

    def note(self, text: str) -> None:
        """Show `text` beside the bar."""
        self._progress.update(self._task, activity=text[-60:])

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self.console.print(text, highlight=False, soft_wrap=True)

    def tick(self, program: Program) -> None:
        """`program` is being built."""
        now = time.monotonic()
        gone, left = now - self._work.begun, self._work.left(now)
        clock = f"{self._work.share:4.0%}  {_clock(gone)}, about {_clock(left)} left"
        self._progress.update(self._task, description=program.name, completed=self._work.share, clock=clock)
        if not self.console.is_terminal and now - self._said >= _LINE_SECONDS:
            self._said = now
            self.say(f"  {program.name}: {clock.strip()}")

    def finished(self, program: Program, elapsed_seconds: float, size_bytes: int) -> None:
        """`program` is built."""
        self._work.done += _PER_PROGRAM
        self.say(f"  {program.name}: {_clock(elapsed_seconds)}, {size_bytes / 1e6:.0f} MB")


def _build_module(module: ToolModule, programs: Sequence[Program], go: Go, display: _Display) -> None:
    output = module.output_directory()
    output.parent.mkdir(parents=True, exist_ok=True)
    with _lock(output.with_suffix(".lock"), module.name, display):
        # Somebody else may have built some while this process waited.
        programs = [program for program in programs if not (output / program.name).is_file()]
        staging = output.with_suffix(".partial")
        # Left by a build that was killed. Go's own cache keeps what it had compiled.
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir()
        try:
            if programs:
                display.expect(_packages(module, programs, go), programs)
            for program in programs:
                _build_program(module, program, staging / program.name, go, display)
                output.mkdir(exist_ok=True)
                (staging / program.name).rename(output / program.name)
        finally:
            shutil.rmtree(staging, ignore_errors=True)


def _packages(module: ToolModule, programs: Sequence[Program], go: Go) -> int:
    """How many are to be compiled, for Go's own cache lacks them. 0 where Go cannot say: the build tells why."""
    listed = subprocess.run(  # noqa: S603 - go, found before; no shell
        [
            go.path,
            "list",
            "-deps",
            "-f",
            "{{if .Stale}}stale{{end}}",
            *module.build_flags(),
            *(p.package for p in programs),
        ],
        cwd=module.directory,
        env=go.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    return listed.stdout.count("stale")


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
                display.tick(program)
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
        show = display.note if " " in line else display.compiling
        show(line.strip())


def main() -> int:
    """Build the named modules and print where each program lies."""
    parser = argparse.ArgumentParser(description="Build the local control plane's programs.")
    said = f"of {', '.join(MODULES)}; all by default but {' and '.join(OF_ONE_LANE)}"
    parser.add_argument("modules", nargs="*", help=said)
    arguments = parser.parse_args()
    unknown = [name for name in arguments.modules if name not in MODULES]
    if unknown:
        parser.error(f"no module {', '.join(unknown)}")
    try:
        binaries = ensure_binaries(*(arguments.modules or (each for each in MODULES if each not in OF_ONE_LANE)))
    except BuildError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    for path in binaries.values():
        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
