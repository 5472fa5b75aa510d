"""Where a `llama-server` for this machine is, or is built: `python -m tests.e2e.llama_server` does it ahead of time."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

from servingpool_lab.go_modules import cache_directory

from ..vllm.installation import Unavailable, environment  # noqa: TID252, tests are no package of an installed name

FOLDER = Path(__file__).parent
LOCK, GGUF_LOCK = FOLDER / "llamacpp.lock", FOLDER / "gguf.lock"
WRITE_MODEL = FOLDER / "write_gguf.py"
OPTIONS = (
    *("CMAKE_BUILD_TYPE=Release", "BUILD_SHARED_LIBS=OFF", "LLAMA_BUILD_TESTS=OFF", "LLAMA_BUILD_EXAMPLES=OFF"),
    *("LLAMA_CURL=OFF", "LLAMA_OPENSSL=OFF", "GGML_NATIVE=OFF", "GGML_OPENMP=OFF"),
    "CMAKE_EXE_LINKER_FLAGS=-static-libgcc -static-libstdc++",
)
"""The program needs nothing of the image but libc and libm."""
TOOLS = {"cmake": "cmake", "ninja": "ninja-build", "c++": "g++"}
"""Programs that build it, and the Debian packages that have them."""


def binary() -> Path:
    """$LLAMA_SERVER, or one of our own, built first (8 minutes on two cores, once).

    Raises:
        Unavailable: there is none and none can be built.
    """
    named = os.environ.get("LLAMA_SERVER")
    if named:
        if not os.access(named, os.X_OK):
            raise Unavailable(f"LLAMA_SERVER is {named}, which is no program")
        return Path(named)
    digest = hashlib.sha256(LOCK.read_bytes() + " ".join(OPTIONS).encode()).hexdigest()[:16]
    home = cache_directory() / "bin" / f"llama-server-{digest}"
    home.parent.mkdir(parents=True, exist_ok=True)
    with home.with_name(f"{home.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.is_dir():
            _build(home)
    return home / "llama-server"


def write_model(path: Path, *, small: bool = False) -> None:
    """A Llama with random weights as GGUF, by the package `gguf`; a `small` one decodes ten times as fast.

    Raises:
        Unavailable: that package cannot be installed.
    """
    size = ["small"] if small else []
    _do([environment("gguf", GGUF_LOCK, "80 MB"), WRITE_MODEL, path, *size], "the model cannot be written")


def _build(home: Path) -> None:
    lacking = [package for program, package in TOOLS.items() if shutil.which(program) is None]
    if lacking:
        raise Unavailable(f"building llama-server needs {', '.join(lacking)}: apt-get install {' '.join(lacking)}")
    print(f"\nBuilding llama-server in {home}: 16 MB and 8 minutes on two cores, once", flush=True)  # noqa: T201, who waits asks
    work = home.with_name(f"{home.name}.work")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    source = unpacked_source(work)
    flags = [f"-D{option}" for option in OPTIONS]
    _do(["cmake", "-G", "Ninja", "-S", source, "-B", work / "build", *flags], "cmake")
    _do(["cmake", "--build", work / "build", "--target", "llama-server"], "the compiler")
    done = work / "done"
    done.mkdir()
    shutil.copy2(work / "build" / "bin" / "llama-server", done)
    done.rename(home)
    shutil.rmtree(work)


def unpacked_source(folder: Path) -> Path:
    """The source of llama.cpp, fetched and unpacked into a folder.

    Raises:
        Unavailable: it cannot be had.
    """
    pip = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--quiet", "--no-deps"]
    _do([*pip, "--no-binary=llama-cpp-python", "--require-hashes", f"--requirement={LOCK}", f"--dest={folder}"], "pip")
    (archive,) = folder.glob("llama_cpp_python-*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    (source,) = folder.glob("llama_cpp_python-*/vendor/llama.cpp")
    return source


def _do(command: Sequence[str | Path], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise Unavailable(f"{what} fails ({said[-1] if said else f'exit status {done.returncode}'})")


if __name__ == "__main__":
    try:
        print(binary())  # noqa: T201, its result
    except Unavailable as lacking:
        sys.exit(f"no llama-server: {lacking}")
