"""Two operators share the pools of a real API server: each writes for its own, and inherits those of the other."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby

import pytest

from servingpool_lab import audit
from servingpool_lab.control_plane import ControlPlane
from servingpool_lab.processes import wait_until
from servingpool_lab.prometheus import Prometheus

from .operators import NAMESPACE, PATIENCE, Cluster, OperatorProcess, cluster_in, settings_on

POOLS = [f"chat-{number}" for number in range(8)]
ACCOUNTS = ("shard-a", "shard-b")
SCALE, STATUS = "deployments/scale", "servingpools/status"


def rights(account: str) -> list[dict[str, object]]:
    """An account of its own, by which the audit log tells the operators apart, with the rights of the chart."""
    group, subjects = "rbac.authorization.k8s.io", [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}]
    leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    meta = {"name": account, "namespace": NAMESPACE}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": account},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "servingpool-operator"},
            "subjects": subjects,
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "Role",
            "metadata": meta,
            "rules": [{**leases, "verbs": ["list", "update", "delete", "create"]}],
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": account},
            "subjects": subjects,
        },
    ]


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane, pod_metrics: dict[tuple[str, str], str]) -> Iterator[Cluster]:
    with cluster_in(control_plane, pod_metrics, "sharing") as cluster:
        for name in POOLS:
            cluster.serve(name, rate=4.0)
            cluster.pool(name)
        for manifest in (one for account in ACCOUNTS for one in rights(account)):
            control_plane.apply(manifest)
        yield cluster


@pytest.fixture(scope="module")
def operators(
    cluster: Cluster, prometheus: Prometheus, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, OperatorProcess]]:
    settings = settings_on(
        prometheus.url, namespaces=[cluster.namespace], leaderElection={"name": "sharing"}, shards={"enabled": True}
    )
    directory = tmp_path_factory.mktemp("sharing")
    both = {
        account: OperatorProcess(
            cluster.plane,
            directory / account,
            settings,
            kubeconfig=cluster.plane.service_account_kubeconfig(NAMESPACE, account),
        )
        for account in ACCOUNTS
    }
    for operator in both.values():
        operator.start()
    yield both
    for operator in both.values():
        operator.process.stop()


def owned(operator: OperatorProcess) -> set[str]:
    return {labels["pool"] for name, labels, _ in operator.samples() if name == "servingpool_info"}


def writers(cluster: Cluster, resource: str, since: float = 0.0) -> dict[str, list[tuple[str, list[float]]]]:
    """Who has written each of these objects, one after the other, and the Unix times at which."""
    found: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
    for write in audit.writes(cluster.plane, cluster.namespace):
        account = write.user.rpartition(":")[2]
        if write.resource == resource and account in ACCOUNTS and write.seconds >= since:
            found[write.name].append((write.seconds, account))
    return {
        name: [(account, [at for at, _ in times]) for account, times in groupby(each, lambda one: one[1])]
        for name, each in found.items()
    }


def test_each_writes_for_its_own_and_the_other_inherits(
    cluster: Cluster, operators: dict[str, OperatorProcess]
) -> None:
    def shared() -> bool:
        found = [owned(operator) for operator in operators.values()]
        return all(found) and not found[0] & found[1] and found[0] | found[1] == set(POOLS)

    wait_until(shared, PATIENCE, "each pool has one of the two operators")
    since = time.time()
    share = {account: owned(operator) for account, operator in operators.items()}
    for name in POOLS:
        cluster.wait_condition(name, "Calibrating", ("False", "Learned"))
        cluster.load(name, 12.0)
    wait_until(lambda: all(cluster.replicas(name) >= 2 for name in POOLS), PATIENCE, "all pools are scaled up")
    told = {account: {cluster.status(name)["operator"] for name in own} for account, own in share.items()}
    assert all(len(names) == 1 for names in told.values())
    assert told[ACCOUNTS[0]] != told[ACCOUNTS[1]]
    assert {account: owned(operator) for account, operator in operators.items()} == share
    assert {name: account for name, [(account, _)] in writers(cluster, SCALE).items()} == {
        name: account for account, own in share.items() for name in own
    }

    died, heir = ACCOUNTS
    operators[died].process.kill()
    killed, before = time.time(), {name: cluster.replicas(name) for name in share[died]}
    for name in (*share[died], *share[heir]):
        cluster.load(name, 45.0)
    wait_until(
        lambda: all(cluster.replicas(name) > before[name] for name in share[died]), PATIENCE, "the other scales them"
    )
    found = writers(cluster, SCALE)
    for name in share[died]:
        (first, theirs), (second, ours) = found[name]
        assert (first, second) == (died, heir)
        assert theirs[-1] <= killed + 1.0
        assert ours[0] > killed
    assert all([account for account, _ in found[name]] == [heir] for name in share[heir])
    wait_until(lambda: owned(operators[heir]) == set(POOLS), PATIENCE, "its metrics have all pools")
    told_by = {name: [died, heir] for name in share[died]} | {name: [heir] for name in share[heir]}
    wait_until(
        lambda: {name: [one for one, _ in each] for name, each in writers(cluster, STATUS, since).items()} == told_by,
        PATIENCE,
        "all statuses are the heir's",
    )
    assert operators[heir].process.stop() == 0
    leases = cluster.plane.client.items(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases")
    mine = [raw for raw in leases if raw["metadata"]["name"].startswith("sharing-")]
    assert sorted(bool(raw["spec"]["holderIdentity"]) for raw in mine) == [False, True], "one is given back"
