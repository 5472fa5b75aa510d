"""The dashboard on what the operator really exposes, and through real traffic."""

from __future__ import annotations

import json
import math

from . import release
from .cluster import Cluster
from .prometheus import PrometheusRelease, dashboard_queries
from .results import Results
from .waiting import eventually

EMPTY = {"What limits the replicas", "Pools in trouble"}
EMPTY |= {"Backlog", "Expected finish and next deadline", "Replicas for batch work"}
"""Panels without data while all is well, and while no pool has work with deadlines."""
DASHBOARD = release.CHART / "files" / "dashboard.json"


def numbers(prometheus: PrometheusRelease, query: str) -> list[float]:
    """The numbers that a query returns now; NaN is none."""
    return [number for one in prometheus.query(query) if math.isfinite(number := float(one["value"][1]))]


def test_every_panel_has_data(prometheus: PrometheusRelease, results: Results) -> None:
    queries = [each for each in dashboard_queries(json.loads(DASHBOARD.read_text())) if each[0] not in EMPTY]
    assert len(queries) >= 20

    found: dict[str, tuple[str, list[float]]] = {}

    def complete() -> bool:
        found.update({query: (title, numbers(prometheus, query)) for title, query in queries})
        return all(seen for _, seen in found.values())

    try:
        eventually(complete, 180, "data in every panel", every=5)
    except AssertionError:
        raise AssertionError(f"no data for {[query for query, (_, seen) in found.items() if not seen]}") from None
    results.write("dashboard.md", table(found))
    panels = len({title for title, _ in queries})
    results.add(scenario="dashboard", outcome=f"{len(queries)} queries of {panels} panels return data")


def table(found: dict[str, tuple[str, list[float]]]) -> str:
    """What each panel showed."""
    lines = [
        "Each panel's queries, as Grafana would send them, on the Prometheus of `make e2e` while its traffic ran. There is no",
        "screenshot: Grafana is on no package registry that the project's machines reach.",
        "",
        "| panel | series | from | to | query |",
        "|---|---|---|---|---|",
    ]
    for query, (title, seen) in found.items():
        escaped = query.replace("|", "\\|")
        lines.append(f"| {title} | {len(seen)} | {min(seen):.4g} | {max(seen):.4g} | `{escaped}` |")
    return "\n".join([*lines, ""])


def test_the_variables_list_the_pools(prometheus: PrometheusRelease, cluster: Cluster) -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    [namespaces] = [each for each in dashboard["templating"]["list"] if each["name"] == "namespace"]
    assert namespaces["definition"] == "label_values(servingpool_condition, namespace)"
    listed = {series["metric"]["namespace"] for series in prometheus.query("servingpool_condition")}
    assert {"first", "steady"} <= listed
