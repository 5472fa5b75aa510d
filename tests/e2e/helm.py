"""Helm against our cluster, with nothing of the user's own Helm settings."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from servingpool_lab.binaries import ensure_binaries

from .shell import run


class Helm:
    """The user's Helm where there is one, else the project's own build of it."""

    def __init__(self, kubeconfig: Path) -> None:
        found = shutil.which("helm")
        self._program = Path(found) if found else ensure_binaries("helm")["helm"]
        self._kubeconfig = kubeconfig

    def __call__(self, *arguments: str | Path, seconds: float = 400.0) -> str:
        """Its standard output."""
        with tempfile.TemporaryDirectory() as home:
            folders = {f"HELM_{part}_HOME": os.path.join(home, part) for part in ("CACHE", "CONFIG", "DATA")}  # noqa: PTH118
            return run(self._program, *arguments, seconds=seconds, KUBECONFIG=str(self._kubeconfig), **folders)

    def install(
        self, release: str, chart: Path, namespace: str, values: Mapping[str, Any], *flags: str, wait: bool = True
    ) -> None:
        """Install, or upgrade to just these values."""
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump(dict(values), file)
            file.flush()
            where = [f"--namespace={namespace}", "--create-namespace", f"--values={file.name}", "--reset-values"]
            waiting = ["--wait", "--timeout=300s"] if wait else []
            self("upgrade", "--install", release, chart, *where, *waiting, *flags)
