"""The only way to the terminal. Names, labels and messages are strangers' texts: they must not steer it.

`tests/unit/cli/test_output.py` fails where a command prints in another way.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from servingpool.catalogue.plain import plain

if TYPE_CHECKING:
    from rich.console import Console

WIDE = 200
"""Columns where no terminal has a width."""
LINES = "\n\t"
"""Characters that a text of several lines, such as YAML, may have."""
JsonOnly = Annotated[Literal["json"] | None, typer.Option("--output", "-o", help="Print JSON with the keys below.")]


def echo(text: str | bytes = "", *, err: bool = False, nl: bool = True) -> None:
    """Print lines. Controls are shown as escapes; cells that must stay on one line are made `plain` before."""
    typer.echo(plain(text if isinstance(text, str) else text.decode(errors="replace"), LINES), err=err, nl=nl)


def table(rows: Iterable[tuple[str, ...]]) -> None:
    """Print rows of cells in columns; the last cell is as long as it is."""
    lines = [tuple(map(plain, row)) for row in rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]) - 1)]
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=False)]
        echo("  ".join([*cells, line[-1]]).rstrip())


def echo_json(json: str | bytes) -> None:
    """Print JSON: controls as its own escapes, so that a program reads what was meant."""
    text = json if isinstance(json, str) else json.decode()
    if not text.isprintable():
        text = "".join(one if one.isprintable() or one == "\n" else _in_json(one) for one in text)
    typer.echo(text)


def as_yaml(found: Any) -> str:
    """Plain data as YAML, letters as they are; all but ASCII as YAML's own escapes where any of it is a control."""
    import yaml

    text = yaml.safe_dump(found, allow_unicode=True, sort_keys=False)
    return text if plain(text, LINES) == text else yaml.safe_dump(found, allow_unicode=False, sort_keys=False)


def _in_json(one: str) -> str:
    units = one.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def terminal(**options: Any) -> Console:
    """A console of rich that takes no markup from strings, and shows controls as escapes."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment
    from rich.text import Text

    class Plain(Console):
        def render_str(self, text: str, **how: Any) -> Text:
            return super().render_str(plain(text, LINES), **how)

        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            if isinstance(renderable, Text) and not renderable.plain.isprintable():
                renderable = renderable.copy()
                renderable.plain = plain(renderable.plain, LINES)  # before lines are laid out by their lengths
            for segment in super().render(renderable, options):
                text = segment.text if segment.control else plain(segment.text, LINES)
                yield segment if text is segment.text else Segment(text, segment.style)

    # A program reads it, or a file holds it: no line is cut for a screen.
    if not options and not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        options = {"width": WIDE}
    return Plain(markup=False, emoji=False, **options)
