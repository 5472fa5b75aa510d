"""The CustomResourceDefinitions, generated from the pydantic types.

`python -m servingpool.api.crd` prints them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable, Mapping
from itertools import starmap
from typing import Any

import yaml
from pydantic import BaseModel

from servingpool.api.gpu_budget import BudgetSpec, BudgetStatus, GPUBudget
from servingpool.api.group import (
    BUDGET_CRD_NAME,
    BUDGET_KIND,
    BUDGET_PLURAL,
    BUDGET_SHORT_NAME,
    CRD_NAME,
    GROUP,
    KIND,
    PLURAL,
    SHORT_NAME,
    VERSION,
)
from servingpool.api.serving_pool import ServingPool
from servingpool.api.spec import Spec
from servingpool.api.status import Status

HEADER = "# Generated from operator/servingpool/api by `make generate`. Do not edit.\n"

_DROPPED = {"title", "$defs", "$ref", "anyOf"}
"""What JSON Schema says and a structural schema must not, or says otherwise."""


def crd() -> dict[str, Any]:
    """The manifest of the ServingPool, for Kubernetes 1.29 and later."""
    schema = _resource(ServingPool, Spec, Status)
    return _definition("Namespaced", (KIND, PLURAL, SHORT_NAME), _columns(), schema)


def budget_crd() -> dict[str, Any]:
    """The manifest of the GPUBudget."""
    schema = _resource(GPUBudget, BudgetSpec, BudgetStatus)
    return _definition("Cluster", (BUDGET_KIND, BUDGET_PLURAL, BUDGET_SHORT_NAME), _budget_columns(), schema)


def manifests() -> dict[str, dict[str, Any]]:
    """All of them, by name."""
    return {CRD_NAME: crd(), BUDGET_CRD_NAME: budget_crd()}


def _definition(
    scope: str, names: tuple[str, str, str], columns: list[dict[str, Any]], schema: dict[str, Any]
) -> dict[str, Any]:
    kind, plural, short = names
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": columns,
                    "schema": {"openAPIV3Schema": schema},
                },
            ],
        },
    }


def render(name: str | None = None) -> str:
    """The manifests as YAML, or the one of this name, with a header that says where they come from."""
    chosen = [manifest for each, manifest in manifests().items() if name in {None, each}]
    return HEADER + yaml.dump_all(chosen, Dumper=_WithoutAliases, width=120, allow_unicode=True)


class _WithoutAliases(yaml.SafeDumper):
    """Writes each part in full, however often it occurs."""

    def ignore_aliases(self, _: Any) -> bool:
        """Always."""
        return True


def _columns() -> list[dict[str, Any]]:
    usual = [
        ("Mode", "string", ".spec.mode", "Auto, Recommend or Paused"),
        ("Model", "string", ".spec.model", "Served model name"),
        ("Ready/Desired/Max", "string", ".status.fleet", "Ready, desired and max replicas"),
        ("Tok/s", "number", ".status.throughput.generationTokensPerSecond", "Output tokens per second"),
        ("Queue", "number", ".status.queueDepth", "Requests that wait in engines and gateway"),
        ("Attainment", "number", ".status.attainment", "Percent of the last hour's requests that met the SLO"),
        ("Why", "string", ".status.why", "What determines the replicas now"),
        ("Decided", "date", ".status.lastDecision.at", "Age of what the row tells; over 12m, nobody decides"),
    ]
    wide = [
        ("Min", "integer", ".status.bounds.min", "Lowest number of replicas in force"),
        ("Max", "integer", ".status.bounds.max", "Highest number of replicas in force"),
        ("Schedule", "string", ".status.bounds.schedule", "Schedules that give min and max"),
        ("TTFT", "string", ".status.latency.timeToFirstToken", "Time to first token at the SLO's percentile"),
        ("TPOT", "string", ".status.latency.timePerOutputToken", "Time per output token at the SLO's percentile"),
        ("PromptTok/s", "number", ".status.throughput.promptTokensPerSecond", "Prompt tokens per second"),
        ("Tok/s/GPU", "number", ".status.throughput.tokensPerSecondPerGpu", "Output tokens per second per GPU"),
        ("$/MTok", "number", ".status.throughput.dollarsPerMillionTokens", "Dollars per million output tokens"),
        ("Backlog", "number", ".status.batch.backlog", "Requests or tokens that wait, of a pool with deadlines"),
        ("Due", "string", ".status.batch.dueAt", "Deadline that leaves least time to spare"),
        ("Finishes", "string", ".status.batch.finishesAt", "Time at which the work that is due by it is done"),
        ("Drain", "string", '.status.conditions[?(@.type=="DrainReady")].status', "Whether a removed pod drains"),
        ("Operator", "string", ".status.operator", "Pod of the operator that writes, where several share the pools"),
        ("Reason", "string", ".status.lastDecision.reason", "Reason for the last decision"),
    ]
    return _printed(usual, wide)


def _printed(usual: Iterable[tuple[str, ...]], wide: Iterable[tuple[str, ...]]) -> list[dict[str, Any]]:
    age = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
    return [*starmap(_column, usual), age, *({**_column(*column), "priority": 1} for column in wide)]


def _column(name: str, kind: str, path: str, description: str) -> dict[str, Any]:
    return {"name": name, "type": kind, "jsonPath": path, "description": description}


def _budget_columns() -> list[dict[str, Any]]:
    usual = [
        ("GPUs", "integer", ".spec.gpus", "GPUs that the pools may hold together"),
        ("Held", "integer", ".status.held", "GPUs that their pods hold: requested, loading and draining"),
        ("Waiting", "integer", ".status.waiting", "GPUs that are due to pools and held by other pods"),
        ("Why", "string", ".status.why", "What determines the budget now"),
    ]
    wide = [
        ("Resource", "string", ".spec.resourceName", "Extended resource that is counted"),
        ("Lending", "boolean", ".spec.lending", "Whether floors that are not wanted are lent"),
    ]
    return _printed(usual, wide)


def _resource(whole: type[BaseModel], spec: type[BaseModel], status: type[BaseModel]) -> dict[str, Any]:
    return {
        "type": "object",
        "description": _one_line(whole.__doc__ or ""),
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": _structural(spec),
            # Without server-side defaults: an absent figure in the status must stay absent.
            "status": _structural(status, _DROPPED | {"default"}),
        },
    }


def _structural(model: type[BaseModel], dropped: Collection[str] = _DROPPED) -> dict[str, Any]:
    """The model's JSON schema as a structural one: references inlined, absent instead of null."""
    schema = model.model_json_schema(mode="serialization")  # only this mode writes the default 120.0 as `2m`
    return _inlined(schema, schema.get("$defs", {}), dropped)


def _inlined(schema: Mapping[str, Any], definitions: Mapping[str, Any], dropped: Collection[str]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if "$ref" in schema:
        out |= _inlined(definitions[schema["$ref"].rpartition("/")[2]], definitions, dropped)
    for choice in schema.get("anyOf", []):  # `T | None`: the API server prunes nulls, so T says it all
        if choice != {"type": "null"}:
            out |= _inlined(choice, definitions, dropped)
    for key, value in schema.items():
        if key in dropped or (key == "default" and value is None):
            continue
        if key == "properties":
            out[key] = {name: _inlined(part, definitions, dropped) for name, part in value.items()}
        elif key == "items" or (key == "additionalProperties" and isinstance(value, Mapping)):
            out[key] = _inlined(value, definitions, dropped)
        elif key == "default" and isinstance(value, Mapping):
            out[key] = {name: part for name, part in value.items() if part is not None}
        elif key == "additionalProperties":
            continue  # a structural schema prunes; `true` is said by x-kubernetes-preserve-unknown-fields
        else:
            out[key] = _one_line(value) if key == "description" else value
    return _default_told(out)


def _default_told(schema: dict[str, Any]) -> dict[str, Any]:
    """With a simple default in the words too: `kubectl explain` prints no other."""
    default, told = schema.get("default"), schema.get("description", "Default:")
    if "Default:" in told or not isinstance(default, str | float | int):
        return schema
    return {**schema, "description": f"{told} Default: " + json.dumps(default).strip('"') + "."}


def _one_line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    sys.stdout.write(render())
