"""The part of kubectl's JSONPath templates that names fields: `{.a.b[0].c}`, `{.items[*].a}`, `{range ...}`, texts."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

_PIECE = re.compile(r"\{([^{}]*)\}|([^{}]+)")
_STEP = re.compile(r"\.((?:[A-Za-z0-9_/-]|\\\.)+)|\.?\[(-?[0-9]{1,9}|\*)\]|\['([^']+)'\]|\.\*")
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
LIKE = "such as {.status.desiredReplicas} or {.items[*].metadata.name}"
Step = str | int | None
"""A field's name, an index, or None for all."""


class JsonPath:
    """A template. Raises ValueError, with what is wrong, for what is none."""

    def __init__(self, template: str) -> None:
        if "".join(found[0] for found in _PIECE.finditer(template)) != template or not template:
            raise ValueError(f"must be a template {LIKE}, got '{template}'")
        self._pieces: list[tuple[str, Any]] = []
        depth = 0
        for found in _PIECE.finditer(template):
            inner, text = found[1], found[2]
            words = (inner or "").strip()
            if inner is None:
                self._pieces.append(("text", text))
            elif _TEXT.fullmatch(words):
                self._pieces.append(("text", _text(words)))
            elif words == "end":
                depth -= 1
                self._pieces.append(("end", None))
            elif words.startswith("range "):
                depth += 1
                self._pieces.append(("range", _steps(words.removeprefix("range "))))
            else:
                self._pieces.append(("field", _steps(words)))
            if depth not in {0, 1}:
                raise ValueError(f"must have an {{end}} for each {{range}}, and none within another, got '{template}'")
        if depth:
            raise ValueError(f"must have an {{end}} for each {{range}}, got '{template}'")

    @property
    def path(self) -> bool:
        """Whether it is one field and nothing else."""
        return len(self._pieces) == 1 and self._pieces[0][0] == "field" and bool(self._pieces[0][1])

    def values(self, found: Any) -> list[Any]:
        """What the template's fields have, in order."""
        return [one for kind, steps in self._pieces if kind == "field" for one in _at(found, steps)]

    def render(self, found: Any) -> str:
        """The template with its fields filled in; several values of a field with a blank between."""
        return _rendered(self._pieces, found)


def _rendered(pieces: Sequence[tuple[str, Any]], found: Any) -> str:
    text, at = "", 0
    while at < len(pieces):
        kind, given = pieces[at]
        if kind == "range":
            end = next(place for place in range(at, len(pieces)) if pieces[place][0] == "end")
            text += "".join(_rendered(pieces[at + 1 : end], one) for one in _at(found, given))
            at = end
        else:
            text += given if kind == "text" else " ".join(map(_shown, _at(found, given)))
        at += 1
    return text


def _text(words: str) -> str:
    try:
        return str(json.loads(words))
    except ValueError:
        raise ValueError(f'{words} is no text, such as "\\n"') from None


def _steps(words: str) -> list[Step]:
    path = words.strip().removeprefix("$").removeprefix("@")
    if path in {"", "."}:
        return []
    path = path if path.startswith((".", "[")) else f".{path}"
    steps: list[Step] = []
    at = 0
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None:
            raise ValueError(f"'{words}' is no path to a field, {LIKE}")
        name, index, quoted = found.groups()
        steps.append((name or "").replace("\\.", ".") or quoted or (int(index) if index not in {None, "*"} else None))
        at = found.end()
    return steps


def _at(found: Any, steps: Sequence[Step]) -> list[Any]:
    """The values at a path; none where it leads nowhere."""
    here = [found]
    for step in steps:
        after: list[Any] = []
        for one in here:
            if step is None:
                after += one.values() if isinstance(one, dict) else one if isinstance(one, list) else []
            elif isinstance(step, int):
                after += [one[step]] if isinstance(one, list) and -len(one) <= step < len(one) else []
            elif isinstance(one, dict) and step in one:
                after.append(one[step])
        here = after
    return here


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
