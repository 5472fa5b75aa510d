"""Reference of the ServingPool: every field of the CRD's own schema, spec and status."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from reference.markdown import code, table
from reference.markdown import page as whole
from servingpool.adapters.cluster.kinds import FALSE, GROUP_LABELS, INDEX_LABELS, PARENT_SETS
from servingpool.api.crd import budget_crd, crd

Schema = Mapping[str, Any]

INTRODUCTION = """\
`servingpool.dev/v1alpha1`, kind `ServingPool`, short name `sp`, namespaced. `kubectl explain sp.spec --recursive` shows
the same on your cluster. Durations are whole numbers with units: `2s`, `100ms`, `1m30s`. The API server refuses a wrong
value and says what it expected: [all messages](../records/bad-input.md). `kubectl apply` refuses an unknown field.
"""
TARGETS = """\
Anything with a scale subresource. Its kind is found by discovery; replicas are read and set through `/scale` only, and
its pods are those that the selector in the scale's status names. Kinds other than Deployment and StatefulSet need
rights: the Helm value [`extraTargets`](configuration.md), such as
`{{apiGroups: [leaderworkerset.x-k8s.io], resources: [leaderworkersets]}}`. The target is then
`{{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, name: chat, max: 4}}`.
A workload that another controller owns is refused as `OwnedByParent`, with what to do.

A replica is a pod, or the pods that share a label of a group: the first that they have of {labels}. A group is ready
once all its pods are, and has their GPUs. So a multi-node engine, with tensor or pipeline parallelism over pods, is one
replica. Some of its pods serve, such as a leader: their metrics are added up. Where a kind has several pods for each
replica and none of these labels, the pool is not scaled (`PodsNotGrouped`).
For groups other than LeaderWorkerSet's, no history is loaded, and a backtest counts each pod that served as a replica.

A scale-down removes the least busy pods of a Deployment. For other kinds, their controllers choose: a StatefulSet and
a LeaderWorkerSet remove the highest ordinal, however busy.
"""
SCALED = (
    ("Deployment", "pod", "watched, not polled; the operator chooses the pods that go"),
    ("StatefulSet", "pod", "two revisions, as with `partition`, block scale-down while both exist"),
    ("LeaderWorkerSet", "leader and workers", "GPUs, drain and batch limit from its templates"),
    ("DisaggregatedSetRoleScaler", "a group of the role", "with `scaling.mode: External`; never its LeaderWorkerSet"),
    ("RoleBasedGroupScalingAdapter", "an instance of the role", "needs `scalingAdapter.enable`"),
    ("Grove PodCliqueScalingGroup, PodCliqueSet", "one of each clique; set", ""),
    ("Grove PodClique", "pod", "one of a scaling group has no selector: name the group"),
    ("kthena ModelServing", "serving group", ""),
    ("AIBrix StormService, RayClusterFleet", "role set; Ray cluster", ""),
    ("VLLMRuntime of production-stack", "pod", ""),
    ("DynamoGraphDeploymentScalingAdapter", "as its pods are labelled", "never what a DynamoGraphDeployment made"),
    ("KServe InferenceService", "", "its Deployment, annotated `serving.kserve.io/autoscalerClass: external`"),
    ("KServe LLMInferenceService, NIMService", "", "refused: they set the replicas of what they made"),
    ("KubeRay RayCluster, RayService", "", "no scale subresource: take a LeaderWorkerSet or a RayClusterFleet"),
    ("What an object of another kind controls", "", f"refused, unless the target has `{PARENT_SETS}: '{FALSE}'`"),
)
BUDGET = """\
`servingpool.dev/v1alpha1`, kind `GPUBudget`, short name `gb`, cluster-scoped. It needs an operator that watches all
namespaces. [How to share GPUs](../how-to/share-gpus.md) says what it does.
"""
BUDGET_COLUMNS = "`kubectl get gb` shows these columns."
COLUMNS = "`kubectl get sp` shows these columns; those marked *wide* with `-o wide`."
STATUS = """\
The operator writes it at once when a condition changes, but at most 20 a second of all pools. When a figure changes
enough to matter, it writes it within 1 to 10 minutes, by the number of pools. `lastDecision.at` tells how old the
figures are. Live figures are in its [metrics](metrics.md).
"""


def page() -> str:
    """The page."""
    properties, columns = _parts(crd())
    budget, budget_columns = _parts(budget_crd())
    return whole(
        "ServingPool API",
        INTRODUCTION,
        "## spec",
        properties["spec"]["description"],
        table(("field", "type", "default", "meaning"), _fields(properties["spec"], needed=True)),
        "## What can be scaled",
        TARGETS.format(labels=", ".join(code(label) for label in (*GROUP_LABELS, *INDEX_LABELS.values()))),
        table(("target", "one replica is", "note"), SCALED),
        "## Columns",
        COLUMNS,
        table(("column", "", "path", "meaning"), columns),
        "## status",
        STATUS,
        table(("field", "type", "meaning"), [(a, b, d) for a, b, _, d in _fields(properties["status"])]),
        "## GPUBudget",
        BUDGET,
        "### GPUBudget spec",
        table(("field", "type", "default", "meaning"), _fields(budget["spec"], needed=True)),
        BUDGET_COLUMNS,
        table(("column", "", "path", "meaning"), budget_columns),
        "### GPUBudget status",
        table(("field", "type", "meaning"), [(a, b, d) for a, b, _, d in _fields(budget["status"])]),
    )


def _parts(manifest: Schema) -> tuple[Schema, list[tuple[str, str, str, str]]]:
    """Properties of the resource and rows of its columns."""
    [version] = manifest["spec"]["versions"]
    columns = [
        (each["name"], "wide" if each.get("priority") else "", code(each["jsonPath"]), each.get("description", ""))
        for each in version["additionalPrinterColumns"]
    ]
    return version["schema"]["openAPIV3Schema"]["properties"], columns


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
            field.get("description", "").removesuffix(f" Default: {default.strip('`')}."),
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
