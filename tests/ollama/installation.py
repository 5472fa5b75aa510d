"""Where an Ollama for this machine is, or is built from its Go module."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from servingpool_lab.go_modules import BuildError
from servingpool_lab.go_toolchain import find_go

from ..e2e.llama_server import unpacked_source  # noqa: TID252, tests are no package of an installed name
from ..vllm.installation import Unavailable, do, program  # noqa: TID252

MODULE, VERSION = "github.com/ollama/ollama", "v0.17.4"
SUM = "h1:X3KNm9x4BlHqk/AXMGtC7pBAFd46nmJmy8yDaBZLo9s="
"""Of the module's files, as in a go.sum."""


def binary() -> Path:
    """$OLLAMA, or one of our own, built first (20 minutes on two cores, once).

    Raises:
        Unavailable: there is none and none can be built.
    """
    return program("OLLAMA", f"ollama-{VERSION}", "ollama", _build)


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
    told: dict[str, Any] = json.loads(do([go.path, "mod", "download", "-json", module], "go mod download fails"))
    if told["Sum"] != SUM:
        raise Unavailable(f"{module} is not the one that was tested: its sum is {told['Sum']}")
    headers = unpacked_source(work) / "vendor"
    settings = {"CGO_ENABLED": "1", "CGO_CPPFLAGS": f"-I{headers}", "GOBIN": str(work / "done"), "GOFLAGS": ""}
    do([go.path, "install", "-trimpath", module], "the compiler fails", settings)
    (work / "done").rename(home)
    shutil.rmtree(work)
