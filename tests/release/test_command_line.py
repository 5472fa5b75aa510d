"""The wheels, the one file and krew's plugin, each installed and run as a user would."""

from __future__ import annotations

import os
import platform
import subprocess
import tarfile
from pathlib import Path

import yaml

from release.krew import archive, manifest
from servingpool import __version__
from servingpool_lab.binaries import ensure_binaries

from .conftest import MINORS, ROOT, alone

MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
NO_CLUSTER = "Cannot read the cluster's credentials"


def said(*command: str | Path, environment: dict[str, str]) -> tuple[int, str]:
    """Exit code and all that a command writes."""
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    return done.returncode, done.stdout + done.stderr


def works(command: Path, environment: dict[str, str]) -> None:
    """It prints what needs no cluster, and says what it lacks for the rest."""
    code, text = said(command, "crd", environment=environment)
    assert (code, text.count("kind: CustomResourceDefinition")) == (0, 2), text
    code, text = said(command, "explain", "chat", environment=environment)
    assert (code, NO_CLUSTER in text) == (4, True), text


def test_the_one_file_runs_with_python_alone(one_file: Path, python: Path, tmp_path: Path) -> None:
    works(one_file, alone(tmp_path, python))


def test_without_a_python_the_one_file_names_those_that_it_takes(one_file: Path, tmp_path: Path) -> None:
    code, text = said(one_file, "crd", environment=alone(tmp_path))
    assert (code, [minor for minor in MINORS if f"python{minor}" not in text]) == (1, [])


def test_the_wheel_installs_with_what_the_lock_pins(wheels: list[Path], python: Path, tmp_path: Path) -> None:
    [operator] = [wheel for wheel in wheels if wheel.name.startswith("servingpool_operator-")]
    subprocess.run([python, "-m", "venv", tmp_path / "venv"], check=True)
    inside = tmp_path / "venv" / "bin" / "python"
    install: list[str | Path] = [
        inside,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--only-binary",
        ":all:",
    ]
    lock = ROOT / "tools" / "locks" / "operator.lock"
    subprocess.run([*install, "--require-hashes", "--requirement", lock], check=True)
    subprocess.run([*install, "--no-deps", operator], check=True)
    code, text = said(inside, "-m", "pip", "check", environment={})
    assert code == 0, text
    works(inside.with_name("servingpool"), {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})


def test_every_package_beside_the_operator_has_a_wheel_of_its_version(wheels: list[Path]) -> None:
    names = {wheel.name.removesuffix(f"-{__version__}-py3-none-any.whl") for wheel in wheels}
    assert names == {f"servingpool_{name}" for name in ("operator", "simulation", "backtest", "lab", "dashboard")}


def test_the_same_file_makes_the_same_archive_and_it_can_be_run(tmp_path: Path) -> None:
    sums = set()
    for number, mode in enumerate((0o644, 0o755)):
        file = tmp_path / f"{number}" / "file"
        file.parent.mkdir()
        file.write_text("#!/bin/sh\n")
        file.chmod(mode)
        os.utime(file, (number, number))
        packed = archive(file, "linux-amd64", file.parent)
        sums.add(packed.read_bytes())
        with tarfile.open(packed) as opened:
            assert opened.getmember("kubectl-servingpool").mode == 0o755
    assert len(sums) == 1


def installed(one_file: Path, work: Path, *, damaged: bool = False) -> tuple[int, str]:
    """Exit code and words of krew, which installs the archive of this platform by the manifest below `work`."""
    this = f"{platform.system().lower()}-{MACHINES[platform.machine()]}"
    packed, file = archive(one_file, this, work), work / "servingpool.yaml"
    file.write_text(manifest({this: packed}, "https://example.com/releases"))
    if damaged:
        packed.write_bytes(packed.read_bytes() + b"\0")
    environment = {"KREW_ROOT": str(work / "root"), "HOME": str(work), "PATH": "/usr/bin:/bin"}
    krew = ensure_binaries("krew")["krew"]
    return said(krew, "install", "--manifest", file, "--archive", packed, environment=environment)


def test_kubectl_finds_the_plugin_that_krew_installs(one_file: Path, tmp_path: Path) -> None:
    code, text = installed(one_file, tmp_path)
    assert code == 0, text
    kubectl = ensure_binaries("kubernetes")["kubectl"]
    environment = {"HOME": str(tmp_path), "PATH": f"{tmp_path}/root/bin:/usr/bin:/bin"}
    code, text = said(kubectl, "servingpool", "crd", environment=environment)
    assert code == 0, text
    assert [each["spec"]["names"]["kind"] for each in yaml.safe_load_all(text)] == ["ServingPool", "GPUBudget"]


def test_krew_refuses_an_archive_whose_sum_differs(one_file: Path, tmp_path: Path) -> None:
    code, text = installed(one_file, tmp_path, damaged=True)
    assert (code, "checksum" in text) == (1, True), text
