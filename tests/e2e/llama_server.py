"""Where a `llama-server` for this machine is, or is built: `python -m tests.e2e.llama_server` does it ahead of time."""

from __future__ import annotations

import hashlib
import shutil
import sys
import tarfile
from pathlib import Path

from ..vllm.installation import Unavailable, do, environment, program  # noqa: TID252, tests are no package of an installed name

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
    digest = hashlib.sha256(LOCK.read_bytes() + " ".join(OPTIONS).encode()).hexdigest()[:16]
    return program("LLAMA_SERVER", f"llama-server-{digest}", "llama-server", _build)


def write_model(path: Path, *, small: bool = False) -> None:
    """A Llama with random weights as GGUF, by the package `gguf`; a `small` one decodes ten times as fast.

    Raises:
        Unavailable: that package cannot be installed.
    """
    size = ["small"] if small else []
    do([environment("gguf", GGUF_LOCK, "80 MB"), WRITE_MODEL, path, *size], "the model cannot be written")


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
    do(["cmake", "-G", "Ninja", "-S", source, "-B", work / "build", *flags], "cmake fails")
    do(["cmake", "--build", work / "build", "--target", "llama-server"], "the compiler fails")
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
    do(
        [*pip, "--no-binary=llama-cpp-python", "--require-hashes", f"--requirement={LOCK}", f"--dest={folder}"],
        "pip fails",
    )
    (archive,) = folder.glob("llama_cpp_python-*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    (source,) = folder.glob("llama_cpp_python-*/vendor/llama.cpp")
    return source


if __name__ == "__main__":
    try:
        print(binary())  # noqa: T201, its result
    except Unavailable as lacking:
        sys.exit(f"no llama-server: {lacking}")
