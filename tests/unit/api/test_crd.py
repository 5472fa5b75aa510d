from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servingpool.api.crd import budget_crd, crd, manifests

ROOT = Path(__file__).parents[3]
SCHEMA = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, part in schema.get("properties", {}).items():
        yield from nodes(part, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from nodes(schema[key], f"{path}[]")


BUDGET = budget_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
OURS = [(path, node) for path, node in nodes(SCHEMA) if path.startswith((".spec", ".status"))]
OURS += [(f"budget{path}", node) for path, node in nodes(BUDGET) if path.startswith((".spec", ".status"))]


def test_the_committed_crds_are_all() -> None:
    assert sorted(path.stem for path in (ROOT / "crds").glob("*.yaml")) == sorted(manifests())


@pytest.mark.parametrize(("path", "node"), OURS, ids=[path for path, _ in OURS])
def test_every_field_is_typed_bounded_and_described(path: str, node: dict[str, Any]) -> None:
    assert not node.keys() & {"title", "$ref", "anyOf", "allOf", "const", "nullable", "exclusiveMinimum"}
    bound = {"string": {"maxLength", "enum", "format"}, "array": {"maxItems"}}.get(node["type"])
    if "additionalProperties" in node or "x-kubernetes-preserve-unknown-fields" in node:
        bound = {"maxProperties"}
    assert bound is None or node.keys() & bound
    assert path.endswith("[]") or node["description"].strip()
    assert isinstance(node.get("default", {}), dict | list) or "Default: " in node["description"]


def test_only_the_spec_has_defaults() -> None:
    assert not [path for path, node in OURS if ".status" in path and "default" in node]


def test_defaults_are_written_as_a_person_would() -> None:
    assert SCHEMA["properties"]["spec"]["properties"]["behavior"]["default"] == {
        "calibration": "5m",
        "coldStart": "2m",
        "idleAfter": "15m",
        "scaleDownWindow": "2m",
    }
