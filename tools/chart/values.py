"""Reads values.yaml with its comments: they are the documentation, and the schema where a default cannot tell."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_SCHEMA = "@schema"
_SECTION = "## "


class ValuesError(ValueError):
    """values.yaml is not as it should be; the message names the line."""


@dataclass(frozen=True)
class Value:
    """One key of values.yaml that a user sets as a whole."""

    path: tuple[str, ...]
    default: Any
    description: str
    schema: dict[str, Any] = field(default_factory=dict)
    """What the comment adds to the type of the default."""
    section: str = ""
    """The heading above it."""

    @property
    def name(self) -> str:
        """As `helm --set` takes it."""
        return ".".join(self.path)


def read(path: Path) -> list[Value]:
    """All values in the order of the file.

    A mapping whose keys have comments is read key by key; any other value is one.

    Raises:
        ValuesError: a key without a comment, or a comment that cannot be read.
    """
    text = path.read_text(encoding="utf-8")
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode):
        raise ValuesError(f"{path} is no mapping")
    return _Reader(text.splitlines()).values(root, ())


class _Reader:
    def __init__(self, lines: list[str]) -> None:
        self._lines = lines

    def values(self, mapping: yaml.MappingNode, above: tuple[str, ...]) -> list[Value]:
        found: list[Value] = []
        for key, node in mapping.value:
            path, line = (*above, str(key.value)), key.start_mark.line
            if isinstance(node, yaml.MappingNode) and self._documented(node):
                found += self.values(node, path)
            else:
                found.append(self._value(path, line, node))
        return found

    def _documented(self, mapping: yaml.MappingNode) -> bool:
        return not mapping.flow_style and any(self._comment(key.start_mark.line) for key, _ in mapping.value)

    def _value(self, path: tuple[str, ...], line: int, node: yaml.Node) -> Value:
        comment = self._comment(line)
        description = " ".join(text for text in comment if not text.startswith(_SCHEMA))
        if not description:
            raise ValuesError(f"line {line + 1}: {'.'.join(path)} has no comment above it")
        schema: dict[str, Any] = {}
        for text in comment:
            if text.startswith(_SCHEMA):
                schema |= self._schema(text.removeprefix(_SCHEMA), line)
        default = yaml.SafeLoader("").construct_object(node, deep=True)
        return Value(path, default, description, schema, self._section(line))

    @staticmethod
    def _schema(text: str, line: int) -> dict[str, Any]:
        try:
            read = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ValuesError(f"above line {line + 1}: {error}") from error
        if not isinstance(read, dict):
            raise ValuesError(f"above line {line + 1}: {_SCHEMA} takes a mapping, got '{text.strip()}'")
        return read

    def _comment(self, line: int) -> list[str]:
        """The lines of comment right above a line, at its indent."""
        indent = len(self._lines[line]) - len(self._lines[line].lstrip())
        found: list[str] = []
        while line > 0 and self._lines[line - 1].startswith(" " * indent + "# "):
            line -= 1
            found.insert(0, self._lines[line].strip().removeprefix("# "))
        return found

    def _section(self, line: int) -> str:
        headings = [text.removeprefix(_SECTION) for text in self._lines[:line] if text.startswith(_SECTION)]
        return headings[-1] if headings else ""
