"""Commands whose packages the operator's image does not have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from servingpool.cli.main import COMMANDS

ROOT = Path(__file__).parents[3]
WITHOUT = """\
import sys

class Missing:
    gone = sys.argv.pop(1).split()

    def find_spec(self, name, path=None, target=None):
        if name in self.gone:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from servingpool.cli.main import app
app()
"""
"""The command line in an interpreter that lacks packages."""


def servingpool(*arguments: str, without: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-c", WITHOUT, without, *arguments)
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("arguments", "package", "extra"),
    [
        (("demo",), "servingpool_simulation", "simulation"),
        (("demo",), "jinja2", "simulation"),
        (("simulate", "--pool", "pool.yaml"), "servingpool_simulation", "simulation"),
        (("backtest", "deployment/x"), "servingpool_backtest", "backtest"),
        (("backtest", "deployment/x"), "servingpool_simulation", "backtest"),
        (("lab",), "servingpool_lab", "lab"),
        (("lab",), "cryptography", "lab"),
        (("dashboard",), "servingpool_dashboard", "dashboard"),
        (("dashboard",), "starlette", "dashboard"),
        (("dashboard",), "uvicorn", "dashboard"),
    ],
)
def test_without_its_packages_a_command_names_the_extra_in_one_line(
    arguments: tuple[str, ...], package: str, extra: str
) -> None:
    ran = servingpool(*arguments, without=package)
    assert ran.returncode == 2
    folders = f"./packages/simulation ./packages/{extra}" if extra in {"backtest", "lab"} else f"./packages/{extra}"
    assert ran.stderr == (
        f"{package} is not installed. It comes with the extra `{extra}`: pip install 'servingpool-operator[{extra}]', "
        f"in a checkout pip install . {folders}, with the wheels of `make dist` "
        f"pip install --find-links dist 'servingpool-operator[{extra}]'\n"
    )
    assert all((ROOT / folder / "pyproject.toml").is_file() for folder in folders.split())
    assert ran.stdout == ""


@pytest.mark.parametrize("arguments", [("--help",), ("crd",), *((name, "--help") for name in COMMANDS)])
def test_no_command_needs_an_extra_before_it_runs(arguments: tuple[str, ...]) -> None:
    """A command's help imports the command's module."""
    ran = servingpool(
        *arguments, without="servingpool_simulation servingpool_backtest servingpool_lab servingpool_dashboard"
    )
    assert (ran.returncode, ran.stderr) == (0, "")
