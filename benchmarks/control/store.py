"""What was computed before, on disk: a result is used again while the sources that it depends on mean the same."""

from __future__ import annotations

import ast
import hashlib
import os
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import orjson

ROOT = Path(__file__).parents[2]
SIMULATION = "packages/simulation/servingpool_simulation"

WORLD = (
    *(f"{SIMULATION}/{name}.py" for name in ("balancer", "conduct", "fleet", "hardware", "kernel", "page")),
    *(f"{SIMULATION}/{name}.py" for name in ("run", "score", "scrape", "tables", "upgrade")),
    f"{SIMULATION}/data/serving_ms.json",
    f"{SIMULATION}/data/step_coeffs_bf16.json",
)
"""What every run depends on."""
SCENES = (
    *(f"{SIMULATION}/traces.py", f"{SIMULATION}/families/*.py", "benchmarks/control/scenes.py"),
    f"{SIMULATION}/data/azure*",
)
CORE = ("operator/servingpool/decision/**/*.py", f"{SIMULATION}/policies.py")
BASELINES = (
    *(f"{SIMULATION}/baselines/*.py", f"{SIMULATION}/hindsight.py"),
    *(f"operator/servingpool/decision/{name}.py" for name in ("observation", "pool", "params")),
)
BENCH = tuple(
    f"benchmarks/control/{name}.py" for name in ("sweeps", "ablations", "odd_cases", "odd_status", "lies_work")
)
SEARCH = tuple(f"{SIMULATION}/{name}.py" for name in ("oracle", "offered", "planning"))
TIMETABLE = tuple(f"{SIMULATION}/{name}.py" for name in ("oracle", "timetable"))


def directory() -> Path:
    """Outside the repository, so that neither a checkout nor `make clean` costs an hour of computing."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "servingpool" / "bench-control"


def remember() -> None:
    """Looks at all sources now: a process must not take sources that change later for those that it has loaded."""
    for pattern in (*WORLD, *SCENES, *CORE, *BASELINES, *SEARCH, *TIMETABLE, *BENCH):
        meaning(pattern)


@cache
def meaning(pattern: str) -> str:
    """A hash of these files that comments, docstrings and layout do not change."""
    found = hashlib.sha256()
    for path in sorted(ROOT.glob(pattern)):
        found.update(path.name.encode())
        found.update(_code(path) if path.suffix == ".py" else path.read_bytes())
    return found.hexdigest()


def _code(path: Path) -> bytes:
    tree = ast.parse(path.read_bytes())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [statement for statement in body if not _is_text(statement)]  # type: ignore[attr-defined]
    return ast.dump(tree).encode()


def _is_text(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Constant(value=str())):
            return True
    return False


def core_commit() -> str:
    """The last one that changed the core."""
    command = ("git", "log", "-1", "--abbrev=9", "--format=%h", "--", "operator/servingpool/decision")
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def place(name: str, parts: Iterable[object], sources: tuple[str, ...]) -> Path:
    """Where the result of this name, from these inputs and sources, is kept."""
    said = "\n".join((*map(repr, parts), *map(meaning, sources)))
    return directory() / f"{name}-{hashlib.sha256(said.encode()).hexdigest()[:20]}.json"


def load(path: Path) -> dict[str, Any] | None:
    """None where it is not there, or was cut off while it was written."""
    try:
        return dict(orjson.loads(path.read_bytes()))
    except (OSError, orjson.JSONDecodeError):
        return None


def save(path: Path, result: dict[str, Any]) -> None:
    """All or nothing: a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}")
    part.write_bytes(orjson.dumps(result))
    part.replace(path)
