"""Completion of `kubectl servingpool`, as kubectl asks for it: a line for each word, then a directive."""

from __future__ import annotations

import os
import shlex
import sys
from typing import Annotated

import typer

NO_FILES = ":4"
"""Cobra's directive: complete nothing else, no names of files either."""


def complete_for_kubectl(words: Annotated[list[str] | None, typer.Argument()] = None) -> None:
    """Complete the last of the words, which may be empty."""
    from servingpool.cli.main import app

    line = shlex.join(["servingpool", *(words or [""])])
    asked = {
        "_SERVINGPOOL_COMPLETE": "complete_fish",
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    os.environ |= asked
    try:
        app(args=[], prog_name="servingpool")
    finally:
        for name in asked:
            os.environ.pop(name)
        typer.echo(NO_FILES)


def main() -> None:
    """`kubectl_complete-servingpool`, which kubectl runs."""
    complete_for_kubectl(sys.argv[1:])
