"""The files of `make release`, and the Pythons that can try them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from servingpool import __version__

ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"
MINORS = ("3.11", "3.12", "3.13", "3.14")
"""The Pythons that a release is for."""


def pythons() -> list[Path]:
    """The interpreters for MINORS on the PATH and in $PYTHONS_PATH, a list of folders like PATH."""
    places = os.pathsep.join((os.environ.get("PYTHONS_PATH", ""), os.environ["PATH"]))
    found = (shutil.which(f"python{minor}", path=places) for minor in MINORS)
    return [itself for path in found if path and (itself := interpreter(path))]


def interpreter(path: str) -> Path | None:
    """The Python that this path runs; None if it runs none: a version manager's script needs more than is in `alone`."""
    done = subprocess.run(
        [path, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True, check=False
    )
    return Path(done.stdout.strip()) if done.returncode == 0 else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "python" in metafunc.fixturenames:
        found = pythons()
        if not found:
            pytest.fail(f"none of {', '.join(f'python{minor}' for minor in MINORS)} is on the PATH", pytrace=False)
        metafunc.parametrize("python", found, ids=[path.name for path in found])


def alone(home: Path, *programs: Path) -> dict[str, str]:
    """An environment in which no program is found but a shell and these, and no variable is ours."""
    tools = home / "bin"
    tools.mkdir(parents=True, exist_ok=True)
    for program in (Path("/bin/sh"), *programs):
        (tools / program.name).symlink_to(program)
    return {"HOME": str(home), "PATH": str(tools)}


@pytest.fixture(scope="session")
def one_file() -> Path:
    return DIST / "kubectl-servingpool"


@pytest.fixture(scope="session")
def wheels() -> list[Path]:
    return sorted(DIST.glob(f"servingpool_*-{__version__}-py3-none-any.whl"))
