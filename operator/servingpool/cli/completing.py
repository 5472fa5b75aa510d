"""Completion of `kubectl servingpool`, as kubectl asks for it: a line for each word, then a directive."""

from __future__ import annotations

import os
import shlex
from typing import Annotated

import typer

from servingpool.cli.output import echo

NO_FILES = ":4"
"""Cobra's directive: complete nothing else, no names of files either."""


def complete_for_kubectl(context: typer.Context, words: Annotated[list[str] | None, typer.Argument()] = None) -> None:
    """Complete the last of the words, which may be empty."""
    line = shlex.join(["servingpool", *(words or [""])])
    asked = {
        "_SERVINGPOOL_COMPLETE": "complete_fish",
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    os.environ |= asked
    try:
        context.find_root().command.main(args=[], prog_name="servingpool")
    finally:
        for name in asked:
            os.environ.pop(name)
        echo(NO_FILES)
