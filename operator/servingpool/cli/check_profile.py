"""`servingpool check-profile`: what a profile finds on a recorded metrics page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from servingpool.adapters.prometheus import page as pages
from servingpool.adapters.prometheus.engines import shipped
from servingpool.catalogue.plain import plain
from servingpool.cli.figures import where
from servingpool.cli.output import echo, table
from servingpool.cli.usage import wrong
from servingpool.reconcile.config import ConfigError, load_profile


def check_profile(
    profile: Annotated[str, typer.Argument(metavar="FILE", help="A profile (YAML), or the name of a known engine.")],
    *,
    page: Annotated[Path, typer.Option(help="The engine's metrics page, as curl saves it, after some requests.")],
) -> None:
    """Show which figure a profile finds where on a recorded page of the engine, and which are missing.

    Example: `servingpool check-profile my-engine.yaml --page metrics.txt`

    Exit codes: 0 every figure that decisions need was found, 1 at least one was not or is ambiguous, 2 a file cannot be
    used.
    """
    try:
        used = shipped()[profile] if profile in shipped() else load_profile(Path(profile))
        samples = pages.parse(page.read_text(encoding="utf-8"))
        found, read = pages.find(used, samples), pages.read(used, samples)
    except ConfigError as error:
        known = "" if Path(profile).exists() else f"; known engines: {', '.join(shipped())}"
        wrong(f"{error}{known}")
    except OSError as error:
        wrong(f"cannot read {page}: {error.strerror}")
    except ValueError as error:
        wrong(f"{page} is no page in Prometheus' text format: {str(error)[:200]}")
    for model, metrics in read.items():
        echo(f"Model {plain(model)}:" if model else "All series of the page, whatever their model:")
        table(
            (one.figure.value, pages.told(getattr(metrics, one.figure.field)) if one.series else "-", where(one, used))
            for one in found
        )
    if not read:
        label = f" with label {used.model_label}" if used.model_label else ""
        echo(f"The page has no series of the profile{label}.", err=True)
    missing, ambiguous = pages.lacking(found), pages.ambiguous(used, samples)
    for said in pages.unreadable(used, samples):
        echo(f"{said}, which is no number: it is left out.", err=True)
    for said in ambiguous:
        hint = "Name the label in sumOver if they are parts, or in copiesBy if they are copies"
        echo(f"{said}. The figure is unknown. {hint}.", err=True)
    if missing:
        echo(f"Missing, and needed for decisions: {', '.join(missing)}.", err=True)
    raise typer.Exit(1 if missing or ambiguous else 0)
