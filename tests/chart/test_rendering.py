"""What Helm makes of the chart, for all sorts of users."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from chart import manifests
from servingpool.catalogue.alerts import ALERTS
from servingpool.reconcile.config import load
from servingpool_lab.binaries import ensure_binaries

from .conftest import CHART, OPERATOR, VALUES, Helm, Render, documents, one
from .monitoring_kinds import KINDS

ROOT = Path(__file__).parents[2]
CASES = sorted(path.stem for path in VALUES.glob("*.yaml"))


def pod(objects: list[dict[str, Any]], name: str = OPERATOR) -> dict[str, Any]:
    template: dict[str, Any] = one(objects, "Deployment", name)["spec"]["template"]
    return template


@pytest.mark.parametrize("case", CASES)
def test_lint_finds_nothing(helm: Helm, case: str) -> None:
    done = helm("lint", "--strict", CHART, f"--values={VALUES / case}.yaml")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("case", CASES)
def test_the_operator_accepts_the_configuration(render: Render, tmp_path: Path, case: str) -> None:
    objects = render(case)
    given = yaml.safe_load((VALUES / f"{case}.yaml").read_text())
    text = one(objects, "ConfigMap", given.get("fullnameOverride", OPERATOR))["data"]["config.yaml"]
    (tmp_path / "config.yaml").write_text(text)
    config = load(tmp_path / "config.yaml")
    assert config.pod_deletion_cost.enabled == (case != "bare")
    assert config.engines.keys() == given.get("engines", {}).keys()
    assert {name: price.noted.isoformat() for name, price in config.prices.items()} == {
        name: str(price["noted"]) for name, price in given.get("prices", {}).items()
    }
    assert list(config.namespaces) == given.get("watchNamespaces", [])
    assert [backend.url for backend in config.backends] == [
        backend["url"] for backend in given.get("backends", [{"url": "http://prometheus-operated.monitoring:9090"}])
    ]


@pytest.mark.parametrize("case", CASES)
def test_every_object_can_be_traced_to_its_release(render: Render, case: str) -> None:
    for each in render(case):
        labels = each["metadata"]["labels"]
        assert labels["app.kubernetes.io/instance"] == OPERATOR
        assert labels["helm.sh/chart"].startswith("servingpool-operator-")
        cluster_wide = each["kind"].startswith(("Cluster", "CustomResource", "ValidatingAdmission"))
        assert ("namespace" in each["metadata"]) != cluster_wide


def test_the_other_plain_manifests_are_the_charts_too() -> None:
    program = ensure_binaries("helm")["helm"]
    made = manifests.render(program, CHART, ROOT / "tools/chart/deploy-values.yaml")
    assert {name: (ROOT / "deploy" / name).read_text() for name in made} == made


def test_an_existing_service_account_gets_no_rights(render: Render) -> None:
    objects = render("bare")
    assert sorted(each["kind"] for each in objects) == ["ConfigMap", "Deployment"]
    assert pod(objects, "pools")["spec"]["serviceAccountName"] == "somebody-elses"


@pytest.mark.parametrize("name", ["servingpools.servingpool.dev", "gpubudgets.servingpool.dev"])
def test_the_custom_resource_is_the_operators_and_stays(render: Render, name: str) -> None:
    crd = one(render("defaults"), "CustomResourceDefinition", name)
    assert crd["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert [crd["spec"]] == [each["spec"] for each in documents((ROOT / f"crds/{name}.yaml").read_text())]
    given_up = one(render("defaults", "--set=crds.keep=false"), "CustomResourceDefinition", crd["metadata"]["name"])
    assert "annotations" not in given_up["metadata"]


def test_every_file_that_the_configuration_names_is_mounted(render: Render) -> None:
    objects = render("credentials")
    template = pod(objects)["spec"]
    mounts = {mount["name"]: mount["mountPath"] for mount in template["containers"][0]["volumeMounts"]}
    mounted = {
        f"{mounts[volume['name']]}/{path}"
        for volume in template["volumes"]
        if "projected" in volume
        for source in volume["projected"]["sources"]
        for path in paths(source)
    }
    config = yaml.safe_load(one(objects, "ConfigMap")["data"]["config.yaml"])
    root = "/var/run/secrets/servingpool"
    assert files(config) == mounted
    assert mounted == {
        f"{root}/bearer/token",
        f"{root}/bearer/ca.crt",
        f"{root}/service-account/token",
        f"{root}/service-account/ca.crt",
        f"{root}/mimir/password",
        f"{root}/mtls/ca.crt",
        f"{root}/mtls/tls.crt",
        f"{root}/mtls/tls.key",
    }


def paths(source: dict[str, Any]) -> list[str]:
    [(kind, part)] = source.items()
    return [part["path"]] if kind == "serviceAccountToken" else [item["path"] for item in part["items"]]


def files(part: Any) -> set[str]:
    if isinstance(part, dict):
        own = {value for key, value in part.items() if key.endswith("File")}
        return own.union(*(files(value) for value in part.values()))
    return set().union(*(files(value) for value in part)) if isinstance(part, list) else set()


def test_the_network_policy_opens_the_ports_of_the_backends(render: Render) -> None:
    def ports(case: str, *more: str) -> set[int]:
        rule = one(render(case, *more), "NetworkPolicy")["spec"]["egress"][2]
        return {port["port"] for port in rule["ports"]}

    assert ports("defaults") == {9090}
    # 9443 and 9091 are written out, 443 is https, 80 is http.
    assert ports("credentials") == {9090, 9443, 9091, 443, 80}


def test_the_network_policy_goes_to_the_api_servers_addresses_alone_where_they_are_named(render: Render) -> None:
    def rule(*more: str) -> Any:
        return one(render("defaults", *more), "NetworkPolicy")["spec"]["egress"][1]

    assert "to" not in rule()
    named = rule("--set", "networkPolicy.apiServerPeers[0].ipBlock.cidr=10.0.0.1/32")
    assert named == rule() | {"to": [{"ipBlock": {"cidr": "10.0.0.1/32"}}]}


def test_a_changed_configuration_restarts_the_pods(render: Render) -> None:
    def checksum(*more: str) -> str:
        return str(pod(render("defaults", *more))["metadata"]["annotations"]["checksum/config"])

    assert checksum() == checksum("--set=replicas=5")
    assert checksum() != checksum("--set=interval=30s")


def test_pods_are_spread_by_the_releases_own_labels(render: Render) -> None:
    zone, host = pod(render("scheduling"))["spec"]["topologySpreadConstraints"]
    assert zone["labelSelector"]["matchLabels"]["app.kubernetes.io/instance"] == OPERATOR
    assert host["labelSelector"]["matchLabels"] == {"app": "other"}


def alerts(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    [rule] = [each for each in objects if each["kind"] == "PrometheusRule"]
    return {each["alert"]: each for group in rule["spec"]["groups"] for each in group["rules"]}


def test_the_alerts_are_those_of_the_catalogue(render: Render) -> None:
    found, shared = alerts(render("monitoring")), alerts(render("monitoring", "--set=shards.enabled=true"))
    assert {name: each["labels"] for name, each in (found | shared).items()} == {
        alert.name: {"severity": alert.severity, "team": "inference"} for alert in ALERTS
    }
    assert found.keys() ^ shared.keys() == {"ServingPoolTwoLeaders", "ServingPoolSharesWrong"}
    assert "$(" not in str(found)
    blind = found["ServingPoolBlind"]
    assert blind["annotations"]["summary"].startswith("Pool {{ $labels.namespace }}/{{ $labels.pool }} has no metrics")
    assert 'namespace="servingpool-system"' in found["ServingPoolNoLeader"]["expr"]
    assert "replaced after 15s" in found["ServingPoolNoLeader"]["annotations"]["runbook"]


def test_each_alert_can_be_switched_off_and_changed(render: Render) -> None:
    rules = "--set=prometheusRule.rules"
    found = alerts(
        render(
            "monitoring",
            *(f"{rules}.{alert.name}.enabled=false" for alert in ALERTS if alert.group == "servingpool-operator"),
            f"{rules}.ServingPoolSloMissed.severity=info",
            f"{rules}.ServingPoolSloBurnsFast.threshold=7",
            f"{rules}.ServingPoolReplicasNotReady.for=2h",
        )
    )
    assert found.keys() == {alert.name for alert in ALERTS if alert.group == "servingpool-pools"}
    assert found["ServingPoolSloMissed"]["labels"] == {"severity": "info", "team": "inference"}
    assert "clamp_max(7 * (1 - " in found["ServingPoolSloBurnsFast"]["expr"]
    assert "at least 7 times" in found["ServingPoolSloBurnsFast"]["annotations"]["description"]
    late = found["ServingPoolReplicasNotReady"]
    assert (late["for"], "within 2h" in late["annotations"]["description"]) == ("2h", True)


def test_without_a_rule_left_the_object_has_no_groups(render: Render) -> None:
    off = (f"--set=prometheusRule.rules.{alert.name}.enabled=false" for alert in ALERTS)
    [rule] = [each for each in render("monitoring", *off) if each["kind"] == "PrometheusRule"]
    assert rule["spec"] == {"groups": []}
    assert len(alerts(render("monitoring", "--set=prometheusRule.rules=null"))) == len(ALERTS) - 1, "leader or shards"


@pytest.mark.parametrize(
    ("set_to", "said"),
    [
        ("ServingPoolSloMised.enabled=false", "names the alert 'ServingPoolSloMised', which does not exist. The a"),
        ("ServingPoolBlind.threshold=3", "rules.ServingPoolBlind.threshold is set, and this alert has no threshold."),
        ("ServingPoolBlind.wait=3m", "additional properties 'wait' not allowed"),
        ("ServingPoolBlind.for=soon", "does not match pattern"),
        ("ServingPoolLoopLate.threshold=-1", "minimum: got -1, want 0"),
    ],
)
def test_a_change_of_an_alert_that_cannot_be_is_refused(helm: Helm, set_to: str, said: str) -> None:
    values = f"--values={VALUES / 'monitoring.yaml'}"
    done = helm("template", OPERATOR, CHART, values, f"--set=prometheusRule.rules.{set_to}")
    assert done.returncode != 0
    assert said in done.stderr


def test_alerts_lead_to_the_documentation_where_its_site_is_named(render: Render) -> None:
    def links(*arguments: str) -> set[str | None]:
        return {each["annotations"].get("runbook_url") for each in alerts(render("monitoring", *arguments)).values()}

    assert links() == {None}
    site = "--set=prometheusRule.runbookBaseUrl=https://docs.example.com/servingpool/"
    page = "https://docs.example.com/servingpool/operate/alerts/"
    shards = ("--set=shards.enabled=true", "--set=leaderElection.enabled=false", "--set=replicas=2")
    assert links(site) | links(site, *shards) == {f"{page}#{alert.name.lower()}" for alert in ALERTS}
    odd = "https://docs.example.com/a: b"
    assert f"{odd}/operate/alerts/#servingpoolblind" in links(f"--set=prometheusRule.runbookBaseUrl={odd}")


def test_the_monitoring_kinds_have_only_fields_that_exist(render: Render) -> None:
    services = render("monitoring", "--set=podMonitor.enabled=false,serviceMonitor.enabled=true")
    both = [*services, *render("monitoring")]
    found = {each["kind"]: each for each in both if each["apiVersion"].startswith("monitoring")}
    assert found.keys() == KINDS.keys()
    for kind, each in found.items():
        KINDS[kind].model_validate(each)
    groups = [group["name"] for group in found["PrometheusRule"]["spec"]["groups"]]
    assert len(groups) == len(set(groups))


@pytest.mark.parametrize(
    ("kind", "part", "wrong"),
    [
        ("PodMonitor", "podMetricsEndpoints", {"honourLabels": True}),
        ("PodMonitor", "podMetricsEndpoints", {"interval": "half a minute"}),
        ("PrometheusRule", "groups", {"alerts": []}),
    ],
)
def test_a_field_that_does_not_exist_is_noticed(render: Render, kind: str, part: str, wrong: dict[str, Any]) -> None:
    """Without this, the one above could not fail."""
    manifest = one(render("monitoring"), kind)
    manifest["spec"][part][0] |= wrong
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        KINDS[kind].model_validate(manifest)


def test_the_tests_are_not_taken_for_an_operator_but_have_its_network(render: Render) -> None:
    """A Service selects the operator's pods by these labels."""
    objects = render("monitoring")
    selector = one(objects, "Deployment")["spec"]["selector"]["matchLabels"]
    policy = one(objects, "NetworkPolicy")["spec"]["podSelector"]
    [names] = policy["matchExpressions"]
    assert selector.items() <= pod(objects)["metadata"]["labels"].items()
    for test in (f"{OPERATOR}-test", f"{OPERATOR}-test-prometheus"):
        labels = one(objects, "Pod", test)["metadata"]["labels"]
        assert not selector.items() <= labels.items()
        assert policy["matchLabels"].items() <= labels.items()
        assert {labels[names["key"]], selector[names["key"]]} <= set(names["values"])


@pytest.mark.parametrize("case", ["credentials", "scheduling"])
def test_helm_test_asks_prometheus_as_the_operator_does(render: Render, case: str) -> None:
    """With its configuration, secrets, certificates and account."""
    objects = render(case)
    operator, test = pod(objects)["spec"], one(objects, "Pod", f"{OPERATOR}-test-prometheus")["spec"]
    for key in ("serviceAccountName", "volumes", "securityContext", "nodeSelector", "tolerations"):
        assert operator.get(key) == test.get(key), key
    [runs], [asks] = operator["containers"], test["containers"]
    assert runs["volumeMounts"] == asks["volumeMounts"]
    own = {"POD_ID", "POD_NAMESPACE"}
    assert [each for each in runs["env"] if each["name"] not in own] == asks.get("env", [])


@pytest.mark.parametrize("override", ["nameOverride", "fullnameOverride", None])
@pytest.mark.parametrize("length", [40, 53, 59, 63])
def test_long_names_make_valid_names(helm: Helm, override: str | None, length: int) -> None:
    """The API server takes no label of more than 63 characters, and no Service's name; others may have 253."""
    more = () if override is None else ("--set", f"{override}={'b' * length}")
    extras = ("--set", "grafanaDashboard.enabled=true,serviceMonitor.enabled=true,networkPolicy.enabled=true")
    done = helm("template", "a" * min(length, 53), CHART, *more, *extras)
    objects = [each for each in documents(done.stdout) if each["kind"] != "CustomResourceDefinition"]
    assert objects
    assert [value for each in objects for value in _labels(each) if len(value) > 63] == []
    for each in objects:
        assert len(each["metadata"]["name"]) <= (63 if each["kind"] == "Service" else 253)


def _labels(value: Any) -> Iterator[str]:
    """The values of all labels and selectors in an object."""
    if isinstance(value, list):
        for each in value:
            yield from _labels(each)
    elif isinstance(value, dict):
        for key, each in value.items():
            if key in {"labels", "matchLabels", "selector"} and isinstance(each, dict):
                yield from (one for one in each.values() if isinstance(one, str))
            yield from _labels(each)
