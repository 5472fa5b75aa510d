"""Commands of other programs, and what they say when they fail."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

NEEDED = {
    "docker": "Docker is missing: install Docker Engine or Docker Desktop, and start it",
    "kind": "kind is missing: install kind 0.27 or later (a single program) and put it on PATH",
}


class CommandError(RuntimeError):
    """A command failed; the message has its last words."""


def run(*command: str | Path, seconds: float = 600.0, stdin: str | None = None, **environment: str) -> str:
    """Standard output of a command.

    Args:
        command: the program and its arguments.
        seconds: how long it may take.
        stdin: given to it as text.
        environment: added to ours.

    Raises:
        CommandError: it failed, or took longer.
    """
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
            env=_environment(environment),
        )
    except subprocess.TimeoutExpired:
        raise CommandError(f"{' '.join(words[:6])}: not done within {seconds:g} s") from None
    if done.returncode != 0:
        said = "\n".join((done.stderr or done.stdout).splitlines()[-25:])
        raise CommandError(f"{' '.join(words)[:300]}: exit code {done.returncode}\n{said}")
    return done.stdout


def succeeds(*command: str | Path, seconds: float = 60.0) -> bool:
    """Whether a command exits with 0 in time."""
    try:
        run(*command, seconds=seconds)
    except (CommandError, OSError):
        return False
    return True


def lacking() -> str | None:
    """What has to be installed or started before a cluster can be, in one line; None if nothing."""
    if platform.system() != "Linux":
        return "Linux is needed: Prometheus is built for this machine and then put into an image"
    for program, remedy in NEEDED.items():
        if shutil.which(program) is None:
            return remedy
    if not succeeds("docker", "info"):
        return "No Docker engine answers: start it, and check that `docker info` works for this user"
    return None


def _environment(added: Mapping[str, str]) -> dict[str, str]:
    return {**os.environ, **added}
