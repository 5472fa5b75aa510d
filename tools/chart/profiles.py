"""The schema of engines' and gateways' profiles, from the types that the operator reads them by."""

from __future__ import annotations

from typing import Any

from servingpool.adapters.prometheus.engines import EngineMetrics
from servingpool.adapters.prometheus.engines.profile import METRIC_NAME
from servingpool.adapters.prometheus.gateways import GatewayProfile

DROPPED = {"title", "default", "description"}
"""What only makes the file longer."""


def definitions() -> dict[str, Any]:
    """By the name of each type its schema. Short forms that the types take are in it; rules across fields are not."""
    made: dict[str, Any] = {}
    for model in (EngineMetrics, GatewayProfile):
        whole = model.model_json_schema(by_alias=True, ref_template="#/definitions/{model}")
        made |= whole.pop("$defs")
        made[model.__name__] = whole
    made["Series"] = {"anyOf": [{"type": "string", "pattern": METRIC_NAME}, made["Series"]]}
    found: dict[str, Any] = _loose(made)
    return found


def _loose(part: Any) -> Any:
    if isinstance(part, list):
        return [_loose(one) for one in part]
    if not isinstance(part, dict):
        return part
    found = {key: _loose(one) for key, one in part.items() if key not in DROPPED or isinstance(one, dict)}
    if "patternProperties" in found:  # labels: a value may stand without its list
        found["patternProperties"] = {
            name: {"anyOf": [one["items"], one]} for name, one in found["patternProperties"].items()
        }
        found["additionalProperties"] = False
        if "maxLength" in found:
            found["maxProperties"] = found.pop("maxLength")
    return found
