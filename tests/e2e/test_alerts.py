"""The chart's alerts, evaluated by a real Prometheus on what the scenarios cause."""

from __future__ import annotations

import re

import pytest

from . import test_conditions
from .alert_names import CAUSED, ELSEWHERE, NEVER_CAUSED, OF_SHARDS, STUCK, TOO_SMALL
from .cluster import Cluster
from .pools import serving_pool
from .prometheus import PrometheusRelease
from .results import Results
from .waiting import eventually

NEEDS = (test_conditions,)


def prepare(cluster: Cluster) -> None:
    target = {"name": STUCK, "min": 1, "max": 1}
    cluster.namespace(STUCK)
    cluster.apply(serving_pool(STUCK, TOO_SMALL, model=STUCK, mode="Recommend", targets=[target]))


def test_every_alert_loads_and_is_evaluated(prometheus: PrometheusRelease) -> None:
    def evaluated() -> list[dict[str, str]]:
        rules = prometheus.rules()
        return rules if all(rule["health"] != "unknown" for rule in rules) else []

    rules = eventually(evaluated, 60, "an evaluation of every rule")
    assert {rule["name"]: rule.get("lastError", "") for rule in rules if rule["health"] != "ok"} == {}
    names = {rule["name"] for rule in rules}
    assert names | OF_SHARDS == CAUSED.keys() | NEVER_CAUSED | ELSEWHERE.keys()


@pytest.mark.parametrize("alert", CAUSED)
def test_what_is_wrong_is_alerted(prometheus: PrometheusRelease, results: Results, alert: str) -> None:
    labels = CAUSED[alert]

    def both() -> bool:
        states = prometheus.states(alert, **labels)
        return states.get("chart") in {"pending", "firing"} and states.get("shortened") == "firing"

    eventually(both, 240, f"{alert} {labels}", every=2)
    [fired] = [
        one
        for one in prometheus.alerts()
        if one["labels"]["alertname"] == alert
        and labels.items() <= one["labels"].items()
        and one["state"] == "firing"
        and "shortened" in one["labels"]
    ]
    words = fired["annotations"]
    assert {"summary", "description", "runbook"} <= words.keys()
    assert not re.search("%!|<error|<no value>", " ".join(words.values())), words
    results.add(scenario=f"alert {alert}", outcome=words["description"])


@pytest.mark.parametrize("alert", sorted(NEVER_CAUSED))
def test_what_no_scenario_causes_looks_at_series_that_exist(prometheus: PrometheusRelease, alert: str) -> None:
    expression = next(
        rule["query"] for rule in prometheus.rules() if rule["name"] == alert and "system" in rule["query"]
    )
    looked_at = re.sub(r"\s*>\s*[0-9.]+\s*$", "", expression)
    assert looked_at != expression
    eventually(lambda: prometheus.query(looked_at), 60, f"data for {looked_at}")
    assert not prometheus.states(alert)
