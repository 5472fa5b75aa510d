"""The CustomResourceDefinition, generated from the pydantic types.

`python -m servingpool.api.crd` prints it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import yaml
from pydantic import BaseModel

from servingpool.api.group import CRD_NAME, GROUP, KIND, PLURAL, SHORT_NAME, SINGULAR, VERSION
from servingpool.api.serving_pool import ServingPool
from servingpool.api.spec import Spec
from servingpool.api.status import Status

HEADER = "# Generated from operator/servingpool/api by `make generate`. Do not edit.\n"

_DROPPED = {"title", "$defs", "$ref", "anyOf"}
"""What JSON Schema says and a structural schema must not, or says otherwise."""


def crd() -> dict[str, Any]:
    """The manifest, for Kubernetes 1.29 and later."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": CRD_NAME},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": SINGULAR,
                "shortNames": [SHORT_NAME],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": _columns(),
                    "schema": {"openAPIV3Schema": _resource()},
                },
            ],
        },
    }


def render() -> str:
    """The manifest as YAML, with a header that says where it comes from."""
    return HEADER + yaml.safe_dump(crd(), width=120, allow_unicode=True)


def _columns() -> list[dict[str, Any]]:
    usual = [
        ("Mode", "string", ".spec.mode", "Auto, Recommend or Paused"),
        ("Model", "string", ".spec.model", "Served model name"),
        ("Ready/Desired/Max", "string", ".status.fleet", "Ready, desired and max replicas"),
        ("Tok/s", "number", ".status.throughput.generationTokensPerSecond", "Output tokens per second"),
        ("Queue", "number", ".status.queueDepth", "Requests that wait in engines and gateway"),
        ("SLO%", "number", ".status.attainment", "Percent of the last hour's requests that met the SLO"),
        ("Why", "string", ".status.why", "What determines the replicas now"),
    ]
    wide = [
        ("Min", "integer", ".status.bounds.min", "Lowest number of replicas in force"),
        ("Max", "integer", ".status.bounds.max", "Highest number of replicas in force"),
        ("Schedule", "string", ".status.bounds.schedule", "Schedules that give min and max"),
        ("TTFT", "string", ".status.latency.timeToFirstToken", "Time to first token at the SLO's percentile"),
        ("TPOT", "string", ".status.latency.timePerOutputToken", "Time per output token at the SLO's percentile"),
        ("Tok/s/GPU", "number", ".status.throughput.tokensPerSecondPerGpu", "Output tokens per second per GPU"),
        ("$/MTok", "number", ".status.throughput.dollarsPerMillionTokens", "Dollars per million output tokens"),
        (
            "Drain",
            "string",
            '.status.conditions[?(@.type=="DrainReady")].status',
            "Whether a removed pod finishes its requests, judged by the pod template",
        ),
        ("Reason", "string", ".status.lastDecision.reason", "Reason for the last decision"),
    ]
    columns = [_column(*column) for column in usual]
    columns.append({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"})
    return columns + [{**_column(*column), "priority": 1} for column in wide]


def _column(name: str, kind: str, path: str, description: str) -> dict[str, Any]:
    return {"name": name, "type": kind, "jsonPath": path, "description": description}


def _resource() -> dict[str, Any]:
    return {
        "type": "object",
        "description": _one_line(ServingPool.__doc__ or ""),
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": _structural(Spec),
            "status": _without_defaults(_structural(Status)),
        },
    }


def _structural(model: type[BaseModel]) -> dict[str, Any]:
    """The model's JSON schema as a structural one: references inlined, absent instead of null."""
    schema = model.model_json_schema(mode="serialization")  # only this mode writes the default 120.0 as `2m`
    return _inlined(schema, schema.get("$defs", {}))


def _inlined(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if "$ref" in schema:
        out |= _inlined(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    for choice in schema.get("anyOf", []):  # `T | None`: the API server prunes nulls, so T says it all
        if choice != {"type": "null"}:
            out |= _inlined(choice, definitions)
    for key, value in schema.items():
        if key in _DROPPED or (key == "default" and value is None):
            continue
        if key == "properties":
            out[key] = {name: _inlined(part, definitions) for name, part in value.items()}
        elif key == "items" or (key == "additionalProperties" and isinstance(value, Mapping)):
            out[key] = _inlined(value, definitions)
        elif key == "default" and isinstance(value, Mapping):
            out[key] = {name: part for name, part in value.items() if part is not None}
        elif key == "additionalProperties":
            continue  # a structural schema prunes; `true` is said by x-kubernetes-preserve-unknown-fields
        else:
            out[key] = _one_line(value) if key == "description" else value
    return out


def _without_defaults(schema: dict[str, Any]) -> dict[str, Any]:
    """Without server-side defaults: an absent figure in the status must stay absent."""
    return {
        key: {name: _without_defaults(part) for name, part in value.items()}
        if key == "properties"
        else _without_defaults(value)
        if key == "items"
        else value
        for key, value in schema.items()
        if key != "default"
    }


def _one_line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    sys.stdout.write(render())
