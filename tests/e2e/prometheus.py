"""Prometheus in the cluster, with the operator chart's own alerts."""

from __future__ import annotations

import re
import urllib.parse
from pathlib import Path
from typing import Any

import yaml

from .cluster import Cluster
from .helm import Helm
from .waiting import eventually

CHART = Path(__file__).parent / "charts" / "prometheus"
NAMESPACE = "monitoring"
URL = f"http://prometheus.{NAMESPACE}:9090"
API = f"/api/v1/namespaces/{NAMESPACE}/services/prometheus:http/proxy/api/v1"
SHORTENED = "shortened"
"""Label of the second copy of each alert, see `rule_groups`."""


class PrometheusRelease:
    """Installed with `install`; queried through the API server's proxy, so that no port need be open."""

    def __init__(self, cluster: Cluster, helm: Helm, image: str, groups: list[dict[str, Any]]) -> None:
        self._cluster, self._helm = cluster, helm
        self._values = {"image": image, "groups": groups}

    def install(self) -> None:
        """Install and wait until it answers. Its data is gone with its pod."""
        self._helm.install("prometheus", CHART, NAMESPACE, self._values)
        eventually(lambda: self.query("vector(1)"), 60, "Prometheus answers")

    def uninstall(self) -> None:
        """Delete all of it, its Service and its data included."""
        self._helm("uninstall", "prometheus", f"--namespace={NAMESPACE}", "--wait")

    def query(self, expression: str) -> list[dict[str, Any]]:
        """An instant query: a list of `{"metric": labels, "value": [time, text]}`."""
        found: list[dict[str, Any]] = self._get("query", query=expression)["result"]
        return found

    def value(self, expression: str) -> float | None:
        """The one value of an instant query; None where there is none."""
        found = self.query(expression)
        return float(found[0]["value"][1]) if found else None

    def rules(self) -> list[dict[str, Any]]:
        """Every rule with its health, its last error and its alerts."""
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def alerts(self) -> list[dict[str, Any]]:
        """Alerts that are pending or firing."""
        found: list[dict[str, Any]] = self._get("alerts")["alerts"]
        return found

    def states(self, alert: str, **labels: str) -> dict[str, str]:
        """Of an alert with these labels: its state as the chart has it, and as shortened, by those two words."""
        states = {}
        for one in self.alerts():
            carried = one["labels"]
            if carried["alertname"] == alert and labels.items() <= carried.items():
                states["shortened" if SHORTENED in carried else "chart"] = one["state"]
        return states

    def _get(self, endpoint: str, **parameters: str) -> dict[str, Any]:
        query = f"?{urllib.parse.urlencode(parameters)}" if parameters else ""
        data: dict[str, Any] = self._cluster.client.get(f"{API}/{endpoint}{query}")["data"]
        return data


def rule_groups(helm: Helm, chart: Path, release: str, namespace: str) -> list[dict[str, Any]]:
    """The chart's alerts for a release, as they are, and each once more with a label and without its patience.

    Nobody waits half an hour for a test. The first copy shows that each alert loads and becomes pending, the second
    that it fires and that its words can be rendered.
    """
    only = "--show-only=templates/prometheusrule.yaml"
    values = "--set=prometheusRule.enabled=true,image.repository=any"
    text = helm("template", release, chart, f"--namespace={namespace}", only, values)
    groups = [{**group, "name": f"{namespace}-{group['name']}"} for group in yaml.safe_load(text)["spec"]["groups"]]
    return [*groups, *map(_shortened, groups)]


def only(groups: list[dict[str, Any]], alert: str) -> list[dict[str, Any]]:
    """The groups with one alert left in them."""
    return [{**group, "rules": rules} for group in groups if (rules := _named(group, alert))]


def _named(group: dict[str, Any], alert: str) -> list[dict[str, Any]]:
    return [rule for rule in group["rules"] if rule["alert"] == alert]


def _shortened(group: dict[str, Any]) -> dict[str, Any]:
    rules = [{**rule, "for": "5s", "labels": {**rule["labels"], SHORTENED: "true"}} for rule in group["rules"]]
    return {"name": f"{group['name']}-{SHORTENED}", "rules": rules}


def dashboard_queries(dashboard: dict[str, Any]) -> list[tuple[str, str]]:
    """Title and query of every panel, with Grafana's variables at what they are when it is opened."""
    variables = {"cluster": ".*", "namespace": ".*", "pool": ".*", "__rate_interval": "1m"}
    return [
        (panel["title"], re.sub(r"\$(\w+)", lambda found: variables[found[1]], target["expr"]))
        for panel in dashboard["panels"]
        for target in panel.get("targets", [])
    ]
