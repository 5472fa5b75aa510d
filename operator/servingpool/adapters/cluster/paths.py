"""Paths and media types of the API server. A name that a person gave cannot change what is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

LEASES = "coordination.k8s.io/v1"
OPERATOR = ("app.kubernetes.io/name", "servingpool-operator")
"""Label of what the chart and deploy/ make, and of each operator's Lease."""
JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


def version_of(group: str, version: str) -> str:
    """Group and version as manifests write them, such as `apps/v1`; `v1` of the core group, which is empty."""
    return f"{group}/{version}" if group else version


def base_of(api_version: str) -> str:
    """Path of a group's version, where its resources are listed."""
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def path_of(api_version: str, plural: str, namespace: str | None = None, name: str | None = None) -> str:
    """Path of an object, of all in a namespace, or of all in the cluster."""
    within = "" if namespace is None else f"/namespaces/{quote(namespace, safe='')}"
    return f"{base_of(api_version)}{within}/{plural}" + ("" if name is None else f"/{quote(name, safe='')}")


def plural_of(resources: Iterable[Mapping[str, Any]], kind: str) -> str | None:
    """Plural name of a kind, by the resources that an API version lists; None where it does not list the kind."""
    return next((str(one["name"]) for one in resources if one["kind"] == kind and "/" not in one["name"]), None)
