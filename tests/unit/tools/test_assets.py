"""What the dashboard takes from npm is what is pinned."""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

import assets


@pytest.fixture
def archive() -> bytes:
    """As `npm pack` makes it, with one file."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as file:
        entry = tarfile.TarInfo("package/dist/a.min.js")
        entry.size = 2
        file.addfile(entry, io.BytesIO(b"ok"))
    return packed.getvalue()


def pinned(archive: bytes) -> assets.Package:
    checksum = base64.b64encode(hashlib.sha512(archive).digest()).decode()
    return assets.Package("a", "1.0.0", checksum, {"dist/a.min.js": "a.min.js"})


def test_the_files_of_the_pinned_archive_are_taken(archive: bytes, tmp_path: Path) -> None:
    assets.unpack(pinned(archive), archive, tmp_path / "vendor")
    assert (tmp_path / "vendor/a.min.js").read_bytes() == b"ok"


def test_another_archive_of_the_same_version_is_refused(archive: bytes, tmp_path: Path) -> None:
    with pytest.raises(assets.AssetError, match=r"a 1\.0\.0: the archive's checksum is not the pinned one"):
        assets.unpack(replace(pinned(archive), sha512="x"), archive, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_is_pinned_is_committed_and_nothing_else() -> None:
    names = {name for package in assets.PACKAGES for name in package.files.values()}
    assert {path.name for path in assets.VENDOR.iterdir()} == names
    for package in assets.PACKAGES:
        code = next(name for name in package.files.values() if name.endswith(".js"))
        assert package.version in (assets.VENDOR / code).read_text()
