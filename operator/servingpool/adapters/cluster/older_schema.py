"""A status that the cluster's custom resource definition does not take whole, for it is of another release."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

STEP = re.compile(r"[^.\[\]]+")


def without(changes: dict[str, Any], fields: Iterable[str]) -> dict[str, Any]:
    """`changes` of a status without the parts that the API server refused: an element of a list, else the field.

    `fields`: paths as in the causes of a 422, such as `status.conditions[3].type`. One that is not in the changes
    removes nothing.
    """
    refused = {tuple([*STEP.findall(path), "", "", ""][:3]) for path in fields}
    left: dict[str, Any] = {}
    for name, value in changes.items():
        parts = {part for root, field, part in refused if (root, field) == ("status", name)}
        if isinstance(value, list) and all(part.isdecimal() for part in parts):
            left[name] = [one for index, one in enumerate(value) if str(index) not in parts]
        elif not parts:
            left[name] = value
    return left
