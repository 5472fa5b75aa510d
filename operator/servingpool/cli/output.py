"""The one way to the terminal. Names, labels and messages are what strangers wrote: they must not steer it.

`tests/unit/cli/test_output.py` fails where a command prints in another way.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import typer

from servingpool.catalogue.plain import plain

if TYPE_CHECKING:
    from rich.console import Console

LINES = "\n\t"
"""Characters that a text of several lines, such as YAML, may have."""


def echo(text: str | bytes = "", *, err: bool = False, nl: bool = True) -> None:
    """Print lines. Controls are shown as escapes; cells that must stay on one line are made `plain` before."""
    typer.echo(plain(text if isinstance(text, str) else text.decode(errors="replace"), LINES), err=err, nl=nl)


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

    return Plain(markup=False, emoji=False, **options)
