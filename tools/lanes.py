"""`make lanes`: every lane, one after another, each noted in docs/records/lanes.md if it passes; a night at most.

A lane that was noted on this commit is not run again, so the command can be stopped and goes on. What failed, and what
this machine cannot run, is said in a line below the table.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime

import lane

# The fast ones come first: a fault shows before the hours. `bench` is last, for it sets figures outside docs.
ORDER = (
    *("release", "soak", "test-equipment", "test", "faults", "coverage", "test-backends"),
    *("test-vllm", "test-ollama", "test-gpu"),
    *("e2e", "e2e-llamacpp", "e2e-inference-sim", "e2e-drain", "e2e-vllm", "rivals", "bench-control", "bench"),
)
HOURS = 10.0
"""After which no lane begins."""
NIGHT = re.compile(r"^`make lanes` of \d.*\n?", re.MULTILINE)


def main() -> int:
    """1 where a lane failed."""
    began, commit = time.monotonic(), lane.tested_commit()
    if commit.endswith("-dirty"):
        raise SystemExit("Commit first: each line of the page says which commit passed.")
    told: dict[str, list[str]] = {"passed": [], "failed": [], "not on this machine": [], "no time left": []}
    for name in ORDER:
        late = time.monotonic() - began > 3600 * HOURS
        what = "no time left" if late else tried(name, commit)
        told[what.partition(":")[0]].append(name + what.partition(":")[2])
        sys.stderr.write(f"{name}: {what}\n")
        hours = (time.monotonic() - began) / 3600
        lane.PAGE.write_text(with_night(lane.PAGE.read_text(), commit, hours, told))
    return 1 if told["failed"] else 0


def tried(name: str, commit: str) -> str:
    """What became of a lane."""
    if noted(name) == commit:
        return "passed"
    if lacking := lacks(name):
        return f"not on this machine: ({lacking})"
    before = noted_line(name)
    code = subprocess.run(["make", name], cwd=lane.ROOT, env=os.environ | {"PUBLISH": "1"}, check=False).returncode  # noqa: S603, S607
    if code:
        return "failed"
    return "passed" if noted_line(name) != before else "not on this machine: (all its tests were skipped)"


def lacks(name: str) -> str:
    """What a lane needs that is not here; empty where it can run. Other lanes skip by themselves."""
    if not name.startswith("e2e"):
        return ""
    if shutil.which("kind") is None:
        return "no kind"
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "info"], capture_output=True, check=False).returncode:  # noqa: S603
        return "no Docker engine answers"
    if name == "e2e-inference-sim" and not os.environ.get("E2E_FOREIGN_ENGINE"):
        return "E2E_FOREIGN_ENGINE names no binary"
    return ""


def noted_line(name: str) -> str:
    """Its line of the page."""
    return next((line for line in lane.PAGE.read_text().splitlines() if line.startswith(f"| {name} |")), "")


def noted(name: str) -> str:
    """The commit on which it last passed."""
    return noted_line(name).split("|")[2].strip() if noted_line(name) else ""


def with_night(page: str, commit: str, hours: float, told: dict[str, list[str]]) -> str:
    """The page with what this night did in its last line."""
    parts = "; ".join(f"{what}: {', '.join(names)}" for what, names in told.items() if names)
    line = f"`make lanes` of {datetime.now(UTC):%Y-%m-%d} on {commit}, {hours:.1f} h. {parts[:1].upper()}{parts[1:]}."
    return f"{NIGHT.sub('', page).rstrip()}\n\n{line}\n"


if __name__ == "__main__":
    sys.exit(main())
