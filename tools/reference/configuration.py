"""Reference of what an administrator sets: Helm values, the operator's configuration file, and the rights it needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import yaml
from annotated_types import Ge, Le
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from chart import readme, values
from reference.markdown import code, table
from reference.markdown import page as whole
from servingpool.adapters.prometheus.engines.profile import Figure
from servingpool.api.duration import DurationBetween, brief
from servingpool.reconcile.config import OperatorConfig

INTRODUCTION = """\
Set Helm values with `--set` or `--values`. The chart writes the [configuration file](#configuration-file) from them;
you write that file yourself only without Helm. Helm refuses a value that does not fit, a misspelt key too.
"""
FILE = """\
`servingpool run --config FILE`, YAML. In the plain manifests it is `deploy/config.yaml`. A misspelt key is an error.
Without Helm, credentials are files that you mount; the operator reads them anew for each query.
"""
RIGHTS = """\
From `deploy/rbac.yaml`, which is the chart with its defaults. With `watchNamespaces` the first part is a Role in each
of these namespaces instead of a ClusterRole, without the row of `customresourcedefinitions`. The operator reads no
Secret through the API and deletes nothing.

RBAC cannot limit `patch` on pods to one annotation, so the chart adds a ValidatingAdmissionPolicy: it refuses every
other change that the operator's account makes to a pod. It needs Kubernetes 1.30 and the right to create cluster-wide
objects. With `podDeletionCost.enabled=false` the operator has no right to patch pods, and Kubernetes chooses which pods
a scale-down removes.
"""


def page(root: Path) -> str:
    """The page, from the chart and deploy/ below `root`."""
    read = values.read(root / "charts" / "servingpool-operator" / "values.yaml")
    definitions = yaml.safe_load((root / "tools" / "chart" / "definitions.yaml").read_text(encoding="utf-8"))
    return whole(
        "Helm values and configuration",
        INTRODUCTION,
        "## Helm values",
        readme.tables(read, definitions["backend"]),
        "## Configuration file",
        FILE,
        table(("key", "default", "range", "meaning"), _keys(OperatorConfig)),
        "## Rights",
        RIGHTS,
        table(("where", "API group", "resources", "verbs"), _rights(root / "deploy" / "rbac.yaml")),
    )


def _keys(model: type[BaseModel], path: str = "") -> Iterator[tuple[str, str, str, str]]:
    for name, field in model.model_fields.items():
        here = f"{path}{field.alias or name}"
        inner = _model(field.annotation)
        said = field.description or (inner.__doc__ if inner is not None else None) or ""
        default = "required" if field.is_required() else _default(field)
        yield f"`{here}`", default, _range(field), said.split("\n\n", maxsplit=1)[0]
        if inner is not None:
            yield from _keys(inner, f"{here}{_below(field.annotation)}.")


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel) or value is None or value == "":
        return ""
    if any(isinstance(each, DurationBetween) for each in field.metadata):
        return code(brief(value))
    return code(list(value) if isinstance(value, tuple) else value)


def _range(field: FieldInfo) -> str:
    """What a number or a duration may be; empty for other values."""
    for each in field.metadata:
        if isinstance(each, DurationBetween):
            return f"{each.low} to {each.high}"
    low = next((each.ge for each in field.metadata if isinstance(each, Ge)), None)
    high = next((each.le for each in field.metadata if isinstance(each, Le)), None)
    return "" if low is None or high is None else f"{low} to {high}"


def _model(annotation: Any) -> type[BaseModel] | None:
    """The section that a field holds: itself, one or none, or a list of them."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for each in get_args(annotation) if (found := _model(each)) is not None), None)


def _below(annotation: Any) -> str:
    """What stands in a path between a field and a key of its sections."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is dict:
        return f".{'FIGURE' if inner[0] is Figure else 'NAME'}{_below(inner[1])}"
    return "[]" if origin is tuple else ""


def _rights(manifest: Path) -> Iterator[tuple[str, str, str, str]]:
    """What the operator may do: the rules of its own roles, not of those for people."""
    names = {"servingpool-operator", "servingpool-operator-lease"}
    for role in yaml.safe_load_all(manifest.read_text(encoding="utf-8")):
        if role["kind"] not in {"ClusterRole", "Role"} or role["metadata"]["name"] not in names:
            continue
        where = "every watched namespace" if role["kind"] == "ClusterRole" else "its own namespace"
        for rule in role["rules"]:
            only = f" (only {', '.join(rule['resourceNames'])})" if "resourceNames" in rule else ""
            group = ", ".join(each or "core" for each in rule["apiGroups"])
            yield where, group, ", ".join(rule["resources"]) + only, ", ".join(rule["verbs"])
