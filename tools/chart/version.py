"""The versions in Chart.yaml: both are the project's."""

from __future__ import annotations

import re

_LINE = re.compile(r"^(version|appVersion): .*$", re.MULTILINE)


def updated(chart: str, version: str) -> str:
    """Chart.yaml with this version of the chart and of the operator.

    Raises:
        ValueError: it does not have one line of each.
    """
    if sorted(_LINE.findall(chart)) != ["appVersion", "version"]:
        raise ValueError("Chart.yaml needs one line version and one line appVersion")
    return _LINE.sub(rf"\1: {version}", chart)
