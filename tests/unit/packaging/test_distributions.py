"""What the wheels hold: the image is made of the operator's alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from email import message_from_string
from email.message import Message
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

from servingpool import __version__

ROOT = Path(__file__).parents[3]
FOLDERS = {
    "servingpool-operator": ".",
    "servingpool-simulation": "packages/simulation",
    "servingpool-backtest": "packages/backtest",
    "servingpool-lab": "packages/lab",
    "servingpool-dashboard": "packages/dashboard",
}
LICENCES = dict.fromkeys(FOLDERS, "Apache-2.0") | {"servingpool-dashboard": "Apache-2.0 AND 0BSD AND MIT"}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, ZipFile]:
    """By distribution; built as the Dockerfile does, without an index."""
    return {name: built(ROOT / folder, tmp_path_factory.mktemp(name)) for name, folder in FOLDERS.items()}


def built(source: Path, into: Path) -> ZipFile:
    command = [sys.executable, "-m", "hatchling", "build", "--target=wheel", f"--directory={into}"]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (wheel,) = into.glob("*.whl")
    return ZipFile(wheel)


def packages(wheel: ZipFile) -> set[str]:
    """Top-level folders, but for the wheel's own."""
    return {name.partition("/")[0] for name in wheel.namelist() if ".dist-info/" not in name}


def metadata(wheel: ZipFile) -> Message:
    (file,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return message_from_string(wheel.read(file).decode())


def test_the_operators_wheel_holds_the_operator_alone(wheels: Mapping[str, ZipFile]) -> None:
    wheel = wheels["servingpool-operator"]
    assert packages(wheel) == {"servingpool"}
    parts = {name.split("/")[1] for name in wheel.namelist() if name.startswith("servingpool/")}
    layers = {
        "adapters",
        "api",
        "catalogue",
        "cli",
        "decision",
        "gpubudget",
        "handlers",
        "loop",
        "reconcile",
        "status",
        "record",
        "recording",
    }
    assert parts == {"__init__.py", *layers}


def test_the_other_wheels_hold_a_package_with_its_data_each(wheels: Mapping[str, ZipFile]) -> None:
    simulation, lab = wheels["servingpool-simulation"], wheels["servingpool-lab"]
    assert (packages(simulation), packages(lab)) == ({"servingpool_simulation"}, {"servingpool_lab"})
    for name in (
        "data/azure2023_conv.csv.gz",
        "data/serving_ms.json",
        "data/step_coeffs_bf16.json",
        "report/page.html.j2",
        "report/style.html.j2",
    ):
        assert f"servingpool_simulation/{name}" in simulation.namelist()
    assert "servingpool_lab/manifests/stages.yaml" in lab.namelist()
    backtest = wheels["servingpool-backtest"]
    assert packages(backtest) == {"servingpool_backtest"}
    assert {f"servingpool_backtest/{name}.html.j2" for name in ("backtest", "summary")} <= set(backtest.namelist())


def test_the_dashboards_wheel_holds_its_assets_with_their_licences(wheels: Mapping[str, ZipFile]) -> None:
    wheel = wheels["servingpool-dashboard"]
    assert packages(wheel) == {"servingpool_dashboard"}
    for name in (
        "templates/base.html.j2",
        "static/style.css",
        "static/charts.js",
        "static/vendor/htmx.min.js",
        "static/vendor/uPlot.iife.min.js",
    ):
        assert f"servingpool_dashboard/{name}" in wheel.namelist()
    licences = [file for file in wheel.namelist() if ".dist-info/licenses/" in file]
    assert {Path(file).name for file in licences} == {"LICENSE", "htmx.LICENSE.txt", "uPlot.LICENSE.txt"}


def test_all_have_one_version_and_licence(wheels: Mapping[str, ZipFile]) -> None:
    for name, wheel in wheels.items():
        told = metadata(wheel)
        assert (told["Name"], told["Version"], told["License-Expression"]) == (name, __version__, LICENCES[name])
        assert any(file.endswith("/LICENSE") for file in wheel.namelist())


def test_the_extras_bring_them(wheels: Mapping[str, ZipFile]) -> None:
    told = metadata(wheels["servingpool-operator"])
    needed = [Requirement(line) for line in told.get_all("Requires-Dist", [])]
    extras = {each.name: str(each.marker) for each in needed if each.marker is not None}
    names = ("simulation", "backtest", "lab", "dashboard")
    assert extras == {f"servingpool-{name}": f'extra == "{name}"' for name in names}


def test_the_images_lock_pins_nothing_of_theirs() -> None:
    lines = (ROOT / "tools/locks/operator.lock").read_text().splitlines()
    pinned = {Requirement(line.rstrip(" \\")).name for line in lines if line[:1].isalpha()}
    assert pinned.isdisjoint(FOLDERS)
    assert pinned.isdisjoint({"jinja2", "matplotlib", "numba", "cryptography", "starlette", "uvicorn"})
