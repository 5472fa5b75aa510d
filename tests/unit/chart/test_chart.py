"""The chart as it is committed: values are used, figures exist. That generated parts are fresh, `make verify` holds."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from chart import alerts, crd
from chart.values import Value, read
from servingpool.adapters.prometheus.backend_config import BackendConfig, GatewayChoice, SeriesLabels
from servingpool.reconcile.config import LeaderElection, OperatorConfig, PodDeletionCost, ShardsConfig

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "servingpool-operator"
TEMPLATES = sorted(path for path in (CHART / "templates").rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def values() -> list[Value]:
    return read(CHART / "values.yaml")


@pytest.fixture(scope="module")
def definitions() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "tools/chart/definitions.yaml").read_text())
    return loaded


def test_braces_in_the_crd_are_not_read_by_helm() -> None:
    head = "apiVersion: v1\nmetadata:\n  name: servingpools.servingpool.dev\n"
    assert 'x: {{ "{{" }} y }}' in crd.template(head + "x: {{ y }}\n")


def test_a_crd_with_another_head_is_refused() -> None:
    with pytest.raises(ValueError, match="has not the metadata"):
        crd.template("apiVersion: v1\nmetadata:\n  labels: {}\n")


def test_every_value_is_used_and_every_used_one_documented(values: list[Value]) -> None:
    used = {name for path in TEMPLATES for name in re.findall(r"\.Values\.([\w.]+)", path.read_text())}
    assert used == {value.name for value in values}


def test_a_value_that_is_used_as_a_section_is_one(values: list[Value]) -> None:
    """A leaf that is a prefix of another leaf would be documented twice."""
    names = [value.path for value in values]
    assert not [(a, b) for a in names for b in names if a != b and b[: len(a)] == a]


def test_a_backend_can_be_given_all_that_the_operator_knows(definitions: dict[str, Any]) -> None:
    """Files of the operator's configuration are Secrets in the values."""
    offered = definitions["backend"]["properties"].keys()
    known = {field.alias for field in BackendConfig.model_fields.values()}
    assert {"bearerTokenFile" if key == "bearerToken" else key for key in offered} == known
    for key, model in (("labels", SeriesLabels), ("gateway", GatewayChoice)):
        nested = definitions["backend"]["properties"][key]["properties"].keys()
        assert nested == {field.alias for field in model.model_fields.values()}


def test_the_operators_settings_are_values(values: list[Value]) -> None:
    names = {value.name for value in values}
    # Ports are the pod's own affair, and the Lease lies beside the operator under the release's name.
    settled = {"namespaces", "leaderElection", "shards", "podDeletionCost", "healthPort", "metricsPort"}
    assert {field.alias for field in OperatorConfig.model_fields.values()} - settled <= names
    election = {f"leaderElection.{field.alias}" for field in LeaderElection.model_fields.values()}
    assert election - {"leaderElection.namespace", "leaderElection.name"} <= names
    assert {f"shards.{field.alias}" for field in ShardsConfig.model_fields.values()} <= names
    assert {f"podDeletionCost.{field.alias}" for field in PodDeletionCost.model_fields.values()} <= names


def test_every_alert_has_its_own_part_of_the_alerts_page() -> None:
    """The chart's `runbook_url` leads there: its anchor is the heading in lower case."""
    headings = re.findall(r"^## (\w+)$", (ROOT / "docs/operate/alerts.md").read_text(), re.MULTILINE)
    groups = yaml.safe_load((CHART / "files/alerts.yaml").read_text())["groups"]
    assert headings == [rule["alert"] for group in groups for rule in group["rules"]]


def test_every_placeholder_of_the_alerts_is_filled_in() -> None:
    named = set(re.findall(r"\$\((\w+)\)", alerts.rules().partition("\n")[2]))
    filled = set(re.findall(r'"(?:\$\()?([A-Z_]+)\)?" ', (CHART / "templates/prometheusrule.yaml").read_text()))
    assert named == filled


def test_the_dashboards_panels_do_not_overlap_and_explain_themselves() -> None:
    panels = json.loads((CHART / "files/dashboard.json").read_text())["panels"]
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert all(panel.get("description") for panel in panels if panel["type"] != "row")
    assert len({panel["id"] for panel in panels}) == len(panels)
