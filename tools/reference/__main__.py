"""Generate docs/reference, and the page on alerts in docs/operate."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from reference import api, catalogue, command_line, configuration, engines

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs"
DASHBOARD = ROOT / "charts" / "servingpool-operator" / "files" / "dashboard.json"


WRITERS: Final[Mapping[str, Callable[[], str]]] = {
    "reference/api.md": api.page,
    "reference/conditions.md": catalogue.conditions,
    "reference/limits-and-events.md": catalogue.limits_and_events,
    "reference/metrics.md": lambda: catalogue.metrics(DASHBOARD),
    "reference/configuration.md": lambda: configuration.page(ROOT),
    "reference/engines.md": engines.page,
    "reference/cli.md": command_line.page,
    "operate/alerts.md": catalogue.alerts,
}
"""What writes each page, by its path in docs/."""


def pages() -> dict[str, str]:
    """Text of each page, by its path in docs/: from the types, the catalogue, the chart and deploy/."""
    return {name: write() for name, write in WRITERS.items()}


def main() -> int:
    """Write every page."""
    for name, text in pages().items():
        (PAGES / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
