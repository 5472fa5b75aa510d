"""Builds KEDA's operator and its metrics adapter once, into the user's cache: `make keda`.

For tests/integration/test_handover.py and `make rivals`. In a module of its own outside this repository: KEDA's 1,000
dependencies are no part of the lab.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from servingpool_lab.go_modules import BuildError, cache_directory
from servingpool_lab.go_toolchain import find_go

VERSION = "2.21.0"
MODULE = "github.com/kedacore/keda/v2"
PROGRAM = "keda-operator"
ADAPTER = "keda-adapter"
"""Serves the metrics of KEDA's HPAs to the HPA controller."""
PACKAGES = {PROGRAM: f"{MODULE}/cmd/operator", ADAPTER: f"{MODULE}/cmd/adapter"}


def home() -> Path:
    """Where its programs and its CRDs (`crds/`) are: $SERVINGPOOL_KEDA, else in the cache."""
    return Path(os.environ.get("SERVINGPOOL_KEDA") or cache_directory() / "bin" / f"keda-{VERSION}")


def built() -> bool:
    """Whether both programs are there."""
    return all((home() / name).is_file() for name in PACKAGES)


def build() -> Path:
    """The folder with the programs, built if they are not there.

    Raises:
        BuildError: Go is missing.
        CalledProcessError: the build failed; its output is shown.
    """
    target = home()
    if built():
        return target
    go = find_go()
    environment = go.environment() | {"GOFLAGS": "-mod=mod"}
    with tempfile.TemporaryDirectory() as scratch:

        def run(*arguments: str) -> str:
            command = [str(go.path), *arguments]
            done = subprocess.run(  # noqa: S603, Go and constants
                command, cwd=scratch, env=environment, stdout=subprocess.PIPE, text=True, check=True
            )
            return done.stdout.strip()

        run("mod", "init", "scratch")
        run("get", "-tool", *(f"{package}@v{VERSION}" for package in PACKAGES.values()))
        for name, package in PACKAGES.items():
            run("build", "-trimpath", "-ldflags=-s -w", "-o", name, package)
        (target / "crds").mkdir(parents=True, exist_ok=True)
        crds = Path(run("list", "-m", "-f", "{{.Dir}}", MODULE)) / "config" / "crd" / "bases"
        for crd in crds.glob("*.yaml"):
            shutil.copyfile(crd, target / "crds" / crd.name)  # the module cache is read-only, and so are its modes
        for name in PACKAGES:
            shutil.move(Path(scratch) / name, target / name)
    return target


def main() -> int:
    """Build them and print where they are."""
    try:
        sys.stdout.write(f"{build()}\n")
    except (BuildError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
