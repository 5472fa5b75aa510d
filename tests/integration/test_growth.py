"""Each field of each watched kind that is read, as the API server publishes its schema, grown in each way, fed into the
function that the watches feed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from servingpool.adapters.cluster.cache import ClusterCache
from servingpool.api.group import GROUP
from servingpool.handlers.watching import Watches
from servingpool_lab.api_client import ApiClient
from servingpool_lab.control_plane import ControlPlane

from ..unit.fuzzing import counted, worst  # noqa: TID252, tests are no package of an installed name
from ..unit.linear_time import seconds  # noqa: TID252

Steps = tuple[str | int, ...]
CRDS = Path(__file__).parents[2] / "crds"
TAKES, KEPT = 0.05, 16_384
"""Seconds of CPU of one event, and characters of what is kept of an object, at most."""
TOLD = 100_000
"""Characters of a status, which the operator writes itself: a budget's names its pools."""
UNKNOWN = "x-kubernetes-preserve-unknown-fields"
LARGEST = 1_500_000
"""Characters of an object that an API server stores, at most."""
OF_SERVER = {"kind", "metadata", "apiVersion", "name", "namespace", "uid", "generation", "resourceVersion"}
OF_SERVER |= {"creationTimestamp", "deletionTimestamp", "selfLink", "deletionGracePeriodSeconds", "generateName"}
"""Fields at the top and of the metadata that the API server bounds or writes itself."""
DEEP: dict[str, Any] = {}
for _ in range(990):
    DEEP = {"f:a": DEEP}
VALUES: Mapping[str, Any] = {
    "1 MB": "x" * 1_000_000,
    "10,000 items": ["x"] * 10_000,
    "10,000 keys": {f"nvidia.com/{number}": "1" for number in range(10_000)},
    "depth 990": DEEP,
    "control characters": "\x1b[2J\x00\u202e",
    "another type": 7,
}


TEXT = {"type": "string"}


def fields(**of: Any) -> dict[str, Any]:
    """A schema with these fields."""
    return {"properties": of}


KEDA = fields(
    spec=fields(scaleTargetRef=fields(apiVersion=TEXT, kind=TEXT, name=TEXT)),
    status=fields(conditions={"type": "array", "items": fields(type=TEXT, status=TEXT)}),
)
"""What is read of a ScaledObject, beside its metadata."""


class Noted(dict[str, Any]):
    """An object that notes whether anything asked it for a field."""

    touched = False


def _noting(name: str) -> Callable[..., Any]:
    def asked(self: Noted, *given: Any) -> Any:
        self.touched = True
        return getattr(dict, name)(self, *given)

    return asked


for _method in ("__getitem__", "__iter__", "get", "items"):
    setattr(Noted, _method, _noting(_method))


def example(schema: Mapping[str, Any], known: Mapping[str, Any], above: tuple[str, ...] = ()) -> Any:
    """An object of this schema with all its fields."""
    refs = [one["$ref"].rpartition("/")[2] for one in (schema, *schema.get("allOf", ())) if "$ref" in one]
    if refs:
        return {} if refs[0] in above else example(known[refs[0]], known, (*above, refs[0]))
    if "properties" in schema:
        return Noted({name: example(each, known, above) for name, each in schema["properties"].items()})
    if isinstance(each := schema.get("additionalProperties"), dict):
        return Noted({"nvidia.com/gpu": example(each, known, above)})
    if schema.get("type") == "array":
        return [example(schema["items"], known, above)]
    if schema.get("format") == "date-time":
        return "2026-01-01T00:00:00Z"
    return {"integer": 1, "number": 1.0, "boolean": True, "object": {}}.get(schema.get("type", ""), "1")


def schemas(client: ApiClient, group: str, version: str, plural: str) -> tuple[str, Mapping[str, Any], dict[str, Any]]:
    """A kind's name, its schema, and those to which that refers."""
    if group in {GROUP, "keda.sh"}:
        kind, found = "ScaledObject", KEDA
        if group == GROUP:
            crd = yaml.safe_load((CRDS / f"{plural}.{group}.yaml").read_text())["spec"]
            kind, found = crd["names"]["kind"], crd["versions"][0]["schema"]["openAPIV3Schema"]
        found["properties"]["metadata"] = {"$ref": "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
        return kind, found, client.get("/openapi/v3/api/v1")["components"]["schemas"]
    at = f"apis/{group}/{version}" if group else f"api/{version}"
    kind = next(one["kind"] for one in client.get(f"/{at}")["resources"] if one["name"] == plural)
    known = client.get(f"/openapi/v3/{at}")["components"]["schemas"]
    named = {"group": group, "version": version, "kind": kind}
    return kind, next(one for one in known.values() if named in one.get("x-kubernetes-group-version-kind", ())), known


def read(raw: Any, above: Steps = (), *, whole: bool = False) -> Iterator[Steps]:
    """All fields of what was asked for a field, and of the `whole` of what is kept as it is."""
    for key, value in dict.items(raw) if isinstance(raw, Noted) else enumerate(raw):
        if key not in OF_SERVER or above not in ((), ("metadata",)):
            yield (*above, key)
        if (isinstance(value, Noted) and (value.touched or (whole and key != "metadata"))) or isinstance(value, list):
            yield from read(value, (*above, key), whole=whole and key != "metadata")


def many(item: Any, at: int) -> Any:
    """Another item of a list: what is read of it, with other names."""
    if not isinstance(item, Noted):
        return item
    found = {key: many(value, at) for key, value in dict.items(item) if not isinstance(value, Noted) or value.touched}
    renamed = {key: str(at) if key in ("name", "uid") else value for key, value in found.items()}
    return {key.replace("gpu", str(at)): value for key, value in renamed.items()}


def grown(before: Any, way: str, value: Any) -> Any:
    """This value, or of a list as many items as the API server stores."""
    if way != "10,000 items" or not isinstance(before, list):
        return value
    return [many(before[0], at) for at in range(min(10_000, LARGEST // len(json.dumps(many(before[0], 9_999)))))]


def admitted(schema: Any, path: Steps, value: Any) -> Any:
    """Of a value of our own kinds as much as their schema admits there; None where that is nothing.

    The profile is the operator's own: no right of a tenant writes a status, and its schema bounds its names alone.
    """
    for step in path:
        under = schema.get("items") if isinstance(step, int) else schema.get("properties", {}).get(step)
        schema = under or schema["additionalProperties"]
    kinds: Any = {"string": str, "array": list, "object": dict, "integer": int, "number": int}
    if (
        not isinstance(value, kinds.get(schema["type"], Noted))
        or {"enum", "format", "properties", UNKNOWN} & schema.keys()
    ):
        return None
    if isinstance(value, dict):
        each = schema["additionalProperties"]
        found = {name: admitted(each, (), one) for name, one in list(value.items())[: schema["maxProperties"]]}
        return None if None in found.values() else found
    return value if isinstance(value, int) else value[: schema.get("maxItems", schema.get("maxLength"))]


def kept(cache: ClusterCache) -> list[int]:
    """Characters of what each of its dictionaries holds."""
    return [len(repr(value)) for value in vars(cache).values() if isinstance(value, dict)]


def test_no_field_of_any_watched_kind_costs_or_keeps_more_than_its_share_however_it_grows(
    control_plane: ControlPlane,
) -> None:
    client, cache, over = control_plane.client, ClusterCache(), list[str]()
    for (group, version, plural), see in Watches(cache, float)._see.items():
        kind, schema, known = schemas(client, group, version, plural)
        raw = example(schema, known)
        raw["kind"] = kind
        raw["metadata"] |= {"namespace": "chat", "name": "a", "uid": "a"}
        del raw["metadata"]["deletionTimestamp"]
        see(raw, gone=False)
        paths = [*read(raw, whole=group == GROUP)]
        see(raw, gone=True)
        empty = kept(cache)
        for path in paths:
            place: Any = raw
            for step in path[:-1]:
                place = place[step]
            before = place[path[-1]]
            for name, value in VALUES.items():
                place[path[-1]] = grown(before, name, value)
                if group == GROUP and path[0] != "metadata":
                    place[path[-1]] = admitted(schema, path, place[path[-1]])
                if place[path[-1]] is None:
                    counted[f"cells of {kind} that its schema refuses"] += 1
                    continue
                took = seconds(lambda _, see=see, raw=raw: see(raw, gone=False), 0)  # type: ignore[misc]
                holds = max(map(int.__sub__, kept(cache), empty))
                see(raw, gone=True)
                left = kept(cache) != empty
                counted[f"cells of {kind}"] += 1
                worst("seconds of CPU of one event", took)
                worst(f"characters kept of one {kind}", holds)
                if took > TAKES or holds > (TOLD if path[0] == "status" else KEPT) or left:
                    over.append(f"{kind} {'.'.join(map(str, path))}, {name}: {took:.3f} s, {holds} kept, then {left}")
            place[path[-1]] = before
    assert not over, "\n".join(over)
