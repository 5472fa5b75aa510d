"""Fetches what the dashboard takes from npm, pinned by checksum: `make assets`. The result is committed.

Also `python tools/assets.py axe FOLDER`, for the browser test: its checker is not shipped, so it is not committed.
"""

from __future__ import annotations

import base64
import hashlib
import io
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

VENDOR = Path(__file__).parents[1] / "packages/dashboard/servingpool_dashboard/static/vendor"


@dataclass(frozen=True, slots=True)
class Package:
    """One package of npm."""

    name: str
    version: str
    sha512: str
    """Of the archive, in base64, as npm's lock files have it."""
    files: dict[str, str]
    """Paths in the archive, and the names that they get."""


PACKAGES = (
    Package(
        "htmx.org",
        "2.0.11",
        "Thx/WtpeOQqSrqBCw/A1cwGJGg4UrVa3+sW0GmrM3p4gJgO89ecH4qtbnyzDDWFvBTqjnIMCgELTNt636dtamA==",
        {"dist/htmx.min.js": "htmx.min.js", "LICENSE": "htmx.LICENSE.txt"},
    ),
    Package(
        "uplot",
        "1.6.32",
        "KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw==",
        {
            "dist/uPlot.iife.min.js": "uPlot.iife.min.js",
            "dist/uPlot.min.css": "uPlot.min.css",
            "LICENSE": "uPlot.LICENSE.txt",
        },
    ),
)
AXE = Package(
    "axe-core",
    "4.14.1",
    "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==",
    {"axe.min.js": "axe.min.js"},
)


class AssetError(RuntimeError):
    """An archive could not be fetched, or is not the one that is pinned."""


def unpack(package: Package, archive: bytes, into: Path) -> None:
    """Write the package's files. AssetError where the archive is another one than the pinned."""
    if base64.b64encode(hashlib.sha512(archive).digest()).decode() != package.sha512:
        raise AssetError(f"{package.name} {package.version}: the archive's checksum is not the pinned one")
    into.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as packed:
        for path, name in package.files.items():
            file = packed.extractfile(f"package/{path}")
            if file is None:
                raise AssetError(f"{package.name} {package.version} has no file {path}")
            (into / name).write_bytes(file.read())


def fetch(packages: Iterable[Package], into: Path) -> None:
    """With npm, from the registry that it is set up for. Raises AssetError."""
    for package in packages:
        with tempfile.TemporaryDirectory() as folder:
            command = ["npm", "pack", "--silent", f"{package.name}@{package.version}"]
            try:
                subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=120)  # noqa: S603, what is pinned above
            except (OSError, subprocess.SubprocessError) as error:
                raise AssetError(f"{package.name} {package.version}: npm pack failed: {error}") from error
            (archive,) = Path(folder).glob("*.tgz")
            unpack(package, archive.read_bytes(), into)


def main() -> None:
    """Fetch the dashboard's files, or with `axe FOLDER` the test's."""
    try:
        if sys.argv[1:2] == ["axe"]:
            fetch([AXE], Path(sys.argv[2]))
        else:
            fetch(PACKAGES, VENDOR)
    except AssetError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
