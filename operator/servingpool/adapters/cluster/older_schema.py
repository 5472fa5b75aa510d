"""A status that the cluster's custom resource definition does not take whole, for it is of another release."""

from __future__ import annotations

import re
from collections.abc import Iterable
from copy import deepcopy
from typing import Any

STEP = re.compile(r"[^.\[\]]+")


def without(changes: dict[str, Any], fields: Iterable[str]) -> dict[str, Any]:
    """`changes` of a status without the parts that the API server refused: an element of a list, else the field.

    `fields`: paths as in the causes of a 422, such as `status.conditions[3].type`. One that is not in the changes
    removes nothing.
    """
    lists: dict[str, set[int]] = {}
    whole: set[str] = set()
    for path in fields:
        root, name, *rest = [*STEP.findall(path), "", ""][:3]
        if root != "status" or not name:
            continue
        index = rest[0]
        if index.isdigit() and isinstance(changes.get(name), list):
            lists.setdefault(name, set()).add(int(index))
        else:
            whole.add(name)
    left = {name: deepcopy(value) for name, value in changes.items() if name not in whole}
    for name, refused in lists.items():
        if name in left:
            left[name] = [one for index, one in enumerate(left[name]) if index not in refused]
    return left
