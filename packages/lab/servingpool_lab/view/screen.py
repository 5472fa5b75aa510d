"""The whole screen: what fits, the most important first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table

from servingpool_lab.scenario import Scenario
from servingpool_lab.snapshot import Snapshot
from servingpool_lab.view import panels

_EVENTS = 3
_REASON = 4
_TALL, _WIDE = 36, 96


@dataclass(frozen=True, slots=True)
class Screen:
    """One frame. It takes its size from the console when it is drawn, so it follows the window."""

    snapshot: Snapshot
    scenario: Scenario
    hints: Sequence[str] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draws as many parts as the height allows."""
        width, height = options.max_width, options.height or console.size.height
        yield Group(*self.parts(width, height))

    def parts(self, width: int, height: int) -> list[RenderableType]:
        """The parts in order, without those that `height` lines do not hold."""
        snapshot, scenario = self.snapshot, self.scenario
        rows = 8 if height >= _TALL else 4
        # Header, the chart with 2 lines below it and its frame, objective and work; the rest as there is room.
        left = height - 1 - (rows + 4) - 7
        footer = 1 + len(self.hints)
        reason = min(_REASON, left - footer - 2)
        middle = Table.grid(expand=True, padding=0)
        middle.add_column(ratio=4)
        middle.add_column(ratio=5)
        gap = 2 if width >= _WIDE else 1
        middle.add_row(panels.objective(snapshot, scenario, gap), panels.work(snapshot))
        parts: list[RenderableType] = [
            panels.header(snapshot, scenario),
            panels.replicas(snapshot, scenario, width, rows),
            middle,
        ]
        if reason >= 1:
            parts.append(panels.decision(snapshot, reason))
            left -= reason + 2
        events = min(_EVENTS, left - footer - 2)
        if events >= 1:
            parts.append(panels.events(snapshot, events))
        if left >= footer:
            parts.append(panels.footer(snapshot, self.hints))
        return parts
