"""Krew's archives and manifest: `python -m release.krew FROM TO RELEASES`.

FROM has the command line as one file for each platform, `FROM/OS-ARCH/kubectl-servingpool`. A release's files lie below
the address RELEASES.
"""

from __future__ import annotations

import hashlib
import sys
import tarfile
from functools import partial
from gzip import GzipFile
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
MANIFEST = ROOT / "deploy" / "krew" / "servingpool.yaml"
PLUGIN = "kubectl-servingpool"
PLATFORMS = ("linux-amd64", "linux-arm64", "darwin-arm64")


def archive(file: Path, platform: str, to: Path) -> Path:
    """The archive of a platform, such as `linux-amd64`: the one file and the licence."""
    path = to / f"{PLUGIN}-{platform}.tar.gz"
    with GzipFile(path, "wb", mtime=0) as compressed, tarfile.open(fileobj=compressed, mode="w") as packed:
        packed.add(file, PLUGIN, filter=partial(_plain, mode=0o755))
        packed.add(ROOT / "LICENSE", "LICENSE", filter=partial(_plain, mode=0o644))
    return path


def _plain(entry: tarfile.TarInfo, mode: int) -> tarfile.TarInfo:
    """The entry without what differs from machine to machine: the same file makes the same sum."""
    entry.mode, entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = mode, 0, 0, 0, "", ""
    return entry


def manifest(archives: dict[str, Path], releases: str) -> str:
    """The manifest with the addresses and sums of these archives, and no other platforms."""
    found = yaml.safe_load(MANIFEST.read_text().replace("RELEASES", releases))
    sums = {f"SHA256-{name}": hashlib.sha256(path.read_bytes()).hexdigest() for name, path in archives.items()}
    spec = found["spec"]
    spec["platforms"] = [one | {"sha256": sums[one["sha256"]]} for one in spec["platforms"] if one["sha256"] in sums]
    return yaml.safe_dump(found, sort_keys=False)


def main(source: Path, to: Path, releases: str) -> None:
    """Write all. A platform that FROM lacks ends with exit code 1."""
    to.mkdir(parents=True, exist_ok=True)
    missing = [name for name in PLATFORMS if not (source / name / PLUGIN).is_file()]
    if missing:
        sys.exit(f"{source} lacks {PLUGIN} for {', '.join(missing)}")
    archives = {name: archive(source / name / PLUGIN, name, to) for name in PLATFORMS}
    (to / MANIFEST.name).write_text(manifest(archives, releases))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
