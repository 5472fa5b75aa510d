"""The versions in Chart.yaml: the chart's, the operator's and the image's are all the project's."""

from __future__ import annotations

import re

_LINE = re.compile(r"^(version|appVersion): .*$", re.MULTILINE)
_IMAGE = re.compile(r"(image: servingpool-operator:).*$", re.MULTILINE)


def updated(chart: str, version: str) -> str:
    """Chart.yaml with this version of the chart and of the operator.

    Raises:
        ValueError: it does not have one line of each.
    """
    if sorted(_LINE.findall(chart)) != ["appVersion", "version"]:
        raise ValueError("Chart.yaml needs one line version and one line appVersion")
    return _IMAGE.sub(rf"\g<1>{version}", _LINE.sub(rf"\1: {version}", chart))
