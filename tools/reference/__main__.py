"""Generate docs/reference: the API, Helm values and the operator's configuration, the command line."""

from __future__ import annotations

import sys
from pathlib import Path

from reference import api, command_line, configuration

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "reference"


def pages() -> dict[str, str]:
    """Text of each page, by file name. Each is a function of the types, the chart and deploy/."""
    return {
        "api.md": api.page(),
        "configuration.md": configuration.page(ROOT),
        "cli.md": command_line.page(),
    }


def main() -> int:
    """Write every page."""
    for name, text in pages().items():
        (PAGES / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
