"""The HTML files that `servingpool backtest` writes: over its own reports alone."""

from __future__ import annotations

from pathlib import Path

import typer

from servingpool.cli.demo import write

OURS = "<title>servingpool backtest: "
"""What every report has in its head."""
HEAD = 1024
"""Characters within which it stands."""


def write_report(path: Path, html: str) -> None:
    """Creates the folder too. Raises typer.BadParameter, also where the file is there and is no report."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            ours = OURS in file.read(HEAD) or path.stat().st_size == 0
    except FileNotFoundError:
        ours = True
    except OSError as error:
        raise typer.BadParameter(f"cannot write {path}: {error.strerror}", param_hint="--report") from error
    if not ours:
        raise typer.BadParameter(
            f"{path} is there and is no report of servingpool backtest: move it, or write elsewhere",
            param_hint="--report",
        )
    write(path, html, "--report")
