"""Where an Ollama for this machine is, or is built from its Go module."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from servingpool_lab.go_modules import BuildError, cache_directory
from servingpool_lab.go_toolchain import find_go

from ..e2e.llama_server import unpacked_source  # noqa: TID252, tests are no package of an installed name
from ..vllm.installation import Unavailable  # noqa: TID252

MODULE, VERSION = "github.com/ollama/ollama", "v0.17.4"
SUM = "h1:X3KNm9x4BlHqk/AXMGtC7pBAFd46nmJmy8yDaBZLo9s="
"""Of the module's files, as in a go.sum."""


def binary() -> Path:
    """$OLLAMA, or one of our own, built first (20 minutes on two cores, once).

    Raises:
        Unavailable: there is none and none can be built.
    """
    named = os.environ.get("OLLAMA")
    if named:
        if not os.access(named, os.X_OK):
            raise Unavailable(f"OLLAMA is {named}, which is no program")
        return Path(named)
    home = cache_directory() / "bin" / f"ollama-{VERSION}"
    home.parent.mkdir(parents=True, exist_ok=True)
    with home.with_name(f"{home.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.is_dir():
            _build(home)
    return home / "ollama"


def _build(home: Path) -> None:
    try:
        go = find_go()
    except BuildError as lacking:
        raise Unavailable(str(lacking)) from lacking
    if shutil.which("g++") is None:
        raise Unavailable("building Ollama needs g++: apt-get install g++")
    print(f"\nBuilding Ollama {VERSION} in {home}: 60 MB and 20 minutes on two cores, once", flush=True)  # noqa: T201, who waits asks
    work = home.with_name(f"{home.name}.work")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    module = f"{MODULE}@{VERSION}"
    told: dict[str, Any] = json.loads(_do([go.path, "mod", "download", "-json", module], "go mod download"))
    if told["Sum"] != SUM:
        raise Unavailable(f"{module} is not the one that was tested: its sum is {told['Sum']}")
    headers = unpacked_source(work) / "vendor"
    settings = {"CGO_ENABLED": "1", "CGO_CPPFLAGS": f"-I{headers}", "GOBIN": str(work / "done"), "GOFLAGS": ""}
    _do([go.path, "install", "-trimpath", module], "the compiler", settings)
    (work / "done").rename(home)
    shutil.rmtree(work)


def _do(command: Sequence[str | Path], what: str, settings: Mapping[str, str] | None = None) -> str:
    environment = {**os.environ, **(settings or {})}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise Unavailable(f"{what} fails ({said[-1] if said else f'exit status {done.returncode}'})")
    return done.stdout
