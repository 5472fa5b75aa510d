"""Commands whose packages the operator's image does not have."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from servingpool.cli.main import COMMANDS

ROOT = Path(__file__).parents[3]
OURS = ("servingpool_simulation", "servingpool_backtest", "servingpool_lab", "servingpool_dashboard")
ALL = (*OURS, "jinja2", "cryptography", "starlette", "uvicorn")
WITHOUT = """\
import json, os, sys

class Missing:
    gone = sys.argv[1:]

    def find_spec(self, name, path=None, target=None):
        if name in self.gone:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import servingpool.adapters.cluster.client, servingpool.adapters.prometheus, servingpool.status
from servingpool.cli.main import app
for line in sys.stdin:
    Missing.gone, arguments, folder = json.loads(line)
    child = os.fork()
    if child == 0:
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(f"{folder}/{name}", os.O_CREAT | os.O_WRONLY), number)
        sys.argv[1:] = arguments
        sys.exit(app())
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""The command line in an interpreter that lacks packages. It imports once what most commands import, without any of the
packages; each command runs in a fork, which lacks those of its test."""


@dataclass(frozen=True)
class Ran:
    """A command that has ended."""

    returncode: int
    stdout: str
    stderr: str


Command = Callable[..., Ran]


@pytest.fixture(scope="module")
def interpreter() -> Iterator[subprocess.Popen[str]]:
    command = (sys.executable, "-c", WITHOUT, *ALL)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process


@pytest.fixture
def servingpool(interpreter: subprocess.Popen[str], tmp_path: Path) -> Command:
    assert interpreter.stdin is not None
    assert interpreter.stdout is not None
    write, read = interpreter.stdin, interpreter.stdout

    def run(*arguments: str, without: tuple[str, ...]) -> Ran:
        write.write(json.dumps((without, arguments, str(tmp_path))) + "\n")
        write.flush()
        code = int(read.readline())
        return Ran(code, (tmp_path / "stdout").read_text(), (tmp_path / "stderr").read_text())

    return run


@pytest.mark.parametrize(
    ("arguments", "package", "extra"),
    [
        (("demo",), "servingpool_simulation", "simulation"),
        (("backtest", "deployment/x"), "servingpool_backtest", "backtest"),
        (("lab",), "servingpool_lab", "lab"),
        (("dashboard",), "servingpool_dashboard", "dashboard"),
    ],
)
def test_without_its_packages_a_command_names_the_extra_in_one_line(
    servingpool: Command, arguments: tuple[str, ...], package: str, extra: str
) -> None:
    ran = servingpool(*arguments, without=(package,))
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
def test_no_command_needs_an_extra_before_it_runs(servingpool: Command, arguments: tuple[str, ...]) -> None:
    """A command's help imports the command's module."""
    ran = servingpool(*arguments, without=OURS)
    assert (ran.returncode, ran.stderr) == (0, "")
