"""What the chart lets the operator do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import CHART, OPERATOR, Helm, Render, documents, one

ROOT = Path(__file__).parents[2]

RULES = {
    ("servingpool.dev", "servingpools"): {"list", "watch"},
    ("servingpool.dev", "servingpools/status"): {"patch"},
    ("apps", "deployments"): {"list", "watch"},
    ("apps", "replicasets"): {"list", "watch"},
    ("apps", "deployments/scale"): {"patch"},
    ("apps", "statefulsets"): {"get"},
    ("apps", "statefulsets/scale"): {"get", "patch"},
    ("", "pods"): {"list", "watch", "patch"},
    ("", "events"): {"create", "list"},
    ("autoscaling", "horizontalpodautoscalers"): {"list", "watch"},
    ("keda.sh", "scaledobjects"): {"list", "watch"},
}
"""All that the operator may do where it watches."""
POD_PATCHES = "ValidatingAdmissionPolicy"
CLUSTER_RULES = {
    ("apiextensions.k8s.io", "customresourcedefinitions"): {"list", "watch"},
    ("servingpool.dev", "gpubudgets"): {"list", "watch"},
    ("servingpool.dev", "gpubudgets/status"): {"patch"},
    ("", "namespaces"): {"list", "watch"},
    ("resource.k8s.io", "resourceclaimtemplates"): {"get"},
}

LEASE_RIGHTS = {OPERATOR: {"get", "update"}, "*": {"create"}}
"""On Leases of the operator's namespace by name, for a leader: with shards too, while the new pods start."""


def rights(role: dict[str, Any]) -> dict[tuple[str, str], set[str]]:
    return {
        (group, resource): set(rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def lease_rights(objects: list[dict[str, Any]]) -> dict[str, set[str]]:
    """Verbs on Leases by their name; * for any."""
    rules = one(objects, "Role", f"{OPERATOR}-lease")["rules"]
    assert all((rule["apiGroups"], rule["resources"]) == (["coordination.k8s.io"], ["leases"]) for rule in rules)
    found: dict[str, set[str]] = {}
    for rule in rules:
        for name in rule.get("resourceNames", ["*"]):
            found.setdefault(name, set()).update(rule["verbs"])
    return found


def test_rights_in_the_whole_cluster_are_the_written_ones(render: Render) -> None:
    objects = render("defaults")
    assert rights(one(objects, "ClusterRole")) == RULES | CLUSTER_RULES
    assert lease_rights(objects) == LEASE_RIGHTS


def test_operators_that_share_the_pools_may_see_each_other(render: Render) -> None:
    objects = render("defaults", "--set=shards.enabled=true")
    assert rights(one(objects, "ClusterRole")) == RULES | CLUSTER_RULES
    assert lease_rights(objects) == LEASE_RIGHTS | {"*": {"create", "list", "update", "delete"}}
    config = yaml.safe_load(one(objects, "ConfigMap", OPERATOR)["data"]["config.yaml"])
    assert config["shards"] == {"enabled": True}


def test_rights_in_a_few_namespaces_need_no_cluster_role(render: Render) -> None:
    objects = render("namespaced")
    assert not [each for each in objects if each["kind"].startswith(("Cluster", POD_PATCHES))]
    roles = [each for each in objects if (each["kind"], each["metadata"]["name"]) == ("Role", OPERATOR)]
    assert [role["metadata"]["namespace"] for role in roles] == ["team-a", "team-b"]
    assert all(rights(role) == RULES for role in roles)


@pytest.mark.parametrize("case", ["defaults", "namespaced"])
def test_rights_for_further_kinds_are_a_value(render: Render, case: str) -> None:
    extra = '--set-json=extraTargets=[{"apiGroups":["leaderworkerset.x-k8s.io"],"resources":["leaderworkersets"]}]'
    roles = [
        each
        for each in render(case, extra)
        if each["kind"] in {"Role", "ClusterRole"} and each["metadata"]["name"] == OPERATOR
    ]
    assert roles
    for role in roles:
        more = {key: verbs for key, verbs in rights(role).items() if key not in RULES | CLUSTER_RULES}
        assert more == {
            ("leaderworkerset.x-k8s.io", "leaderworkersets"): {"get"},
            ("leaderworkerset.x-k8s.io", "leaderworkersets/scale"): {"get", "patch"},
        }


@pytest.mark.parametrize("case", ["defaults", "namespaced"])
def test_the_right_to_patch_pods_comes_with_its_policy_and_goes_with_deletion_costs(render: Render, case: str) -> None:
    """tests/integration/test_pod_patches.py has what the policy refuses."""
    on, off = (
        render(case, "--set=podDeletionCost.admissionPolicy=true"),
        render(case, "--set=podDeletionCost.enabled=false"),
    )
    [policy] = [each for each in on if each["kind"] == POD_PATCHES]
    [binding] = [each for each in on if each["kind"] == f"{POD_PATCHES}Binding"]
    assert binding["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}
    assert policy["spec"]["failurePolicy"] == "Fail"
    [condition] = policy["spec"]["matchConditions"]
    assert f'"system:serviceaccount:servingpool-system:{OPERATOR}"' in condition["expression"]
    for objects, verbs in ((on, {"list", "watch", "patch"}), (off, {"list", "watch"})):
        roles = [each for each in objects if each["kind"].endswith("Role") and each["metadata"]["name"] == OPERATOR]
        assert roles
        assert all(rights(role)["", "pods"] == verbs for role in roles)
    assert not [each for each in off if each["kind"].startswith(POD_PATCHES)]


def test_two_releases_of_one_name_have_policies_of_their_own(helm: Helm) -> None:
    def name(namespace: str) -> str:
        done = helm("template", OPERATOR, CHART, f"--namespace={namespace}")
        [policy] = [each for each in documents(done.stdout) if each["kind"] == POD_PATCHES]
        return str(policy["metadata"]["name"])

    assert name("team-a") != name("team-b")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--kube-version=1.30.0"], True),
        (["--kube-version=v1.31.4-eks-2d5f260"], True),
        (["--kube-version=v1.29.9-gke.1"], False),
        (["--set=podDeletionCost.admissionPolicy=false"], False),
        (["--set=rbac.create=false"], False),
    ],
)
def test_the_policy_is_left_out_where_it_cannot_be_or_is_not_wanted(
    render: Render, arguments: list[str], expected: bool
) -> None:
    assert any(each["kind"] == POD_PATCHES for each in render("defaults", *arguments)) is expected
