"""Reference of the ServingPool: every field of the CRD's own schema, spec and status."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from reference.markdown import code, table
from reference.markdown import page as whole
from servingpool.api.crd import crd

Schema = Mapping[str, Any]

INTRODUCTION = """\
`servingpool.dev/v1alpha1`, kind `ServingPool`, short name `sp`, namespaced. `kubectl explain sp.spec --recursive` shows
the same on your cluster. Durations are whole numbers with units: `2s`, `100ms`, `1m30s`. The API server refuses a wrong
value and says what it expected: [all messages](../records/bad-input.md). `kubectl apply` refuses an unknown field.
"""
COLUMNS = "`kubectl get sp` shows these columns; those marked *wide* with `-o wide`."
STATUS = """\
The operator writes it when a condition changes, or a figure changes enough to matter. Live figures are in its
[metrics](metrics.md).
"""


def page() -> str:
    """The page."""
    [version] = crd()["spec"]["versions"]
    properties = version["schema"]["openAPIV3Schema"]["properties"]
    columns = [
        (each["name"], "wide" if each.get("priority") else "", code(each["jsonPath"]), each.get("description", ""))
        for each in version["additionalPrinterColumns"]
    ]
    return whole(
        "ServingPool API",
        INTRODUCTION,
        "## spec",
        properties["spec"]["description"],
        table(("field", "type", "default", "meaning"), _fields(properties["spec"], needed=True)),
        "## Columns",
        COLUMNS,
        table(("column", "", "path", "meaning"), columns),
        "## status",
        STATUS,
        table(("field", "type", "meaning"), [(a, b, d) for a, b, _, d in _fields(properties["status"])]),
    )


def _fields(schema: Schema, path: str = "", *, needed: bool = False) -> Iterator[tuple[str, str, str, str]]:
    """Path, type, default and meaning of every field below `schema`, in the order of the types."""
    required = schema.get("required", ())
    for name, field in schema["properties"].items():
        here = f"{path}{name}"
        default = "required" if needed and name in required else code(field.get("default"))
        nested = field.get("items", field)
        deeper = "properties" in nested
        yield (
            f"`{here}`",
            _type(field),
            "" if deeper and default != "required" else default,
            field.get("description", ""),
        )
        if deeper:
            yield from _fields(nested, here + ("[]." if "items" in field else "."), needed=needed)


def _type(schema: Schema) -> str:
    if "enum" in schema:
        return " or ".join(code(each) for each in schema["enum"])
    if schema["type"] == "array":
        return f"list of {_type(schema['items'])}"
    if schema["type"] == "object" and "additionalProperties" in schema:
        return f"map of {_type(schema['additionalProperties'])}"
    return str(schema["type"])
