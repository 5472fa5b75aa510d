"""values.schema.json: Helm refuses values that do not fit it, a misspelt key among them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from chart import profiles
from chart.values import Value, ValuesError

_TYPES: dict[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


def schema(values: Iterable[Value], definitions: dict[str, Any]) -> dict[str, Any]:
    """A JSON Schema, draft 7: what every Helm 3 and 4 reads.

    Raises:
        ValuesError: the type of a value is unknown.
    """
    root = _section()
    # Helm hands a parent chart's globals to every subchart.
    root["properties"]["global"] = {"type": "object"}
    for value in values:
        section = root
        for key in value.path[:-1]:
            section = section["properties"].setdefault(key, _section())
        section["properties"][value.path[-1]] = _leaf(value)
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **root,
        "definitions": {**definitions, **profiles.definitions()},
    }


def _section() -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": {}}


def _leaf(value: Value) -> dict[str, Any]:
    if "$ref" in value.schema:
        # Draft 7 ignores what stands beside a reference.
        return {"description": value.description, "allOf": [value.schema]}
    kind = _TYPES.get(type(value.default))
    if kind is None and "type" not in value.schema:
        raise ValuesError(f"{value.name}: a type cannot be told from {value.default!r}, give one in @schema")
    return {"description": value.description, "type": kind, **value.schema}
