"""files/alerts.yaml: the rules of the chart's PrometheusRule, from the operator's catalogue."""

from __future__ import annotations

from typing import Any

import yaml

from servingpool.catalogue.alerts import ALERTS, Alert

_HEADER = "# Generated from operator/servingpool/catalogue by `make generate`. $(NAME) is filled in by the template.\n"


def rules() -> str:
    """The file's text: groups with their rules, as a PrometheusRule has them."""
    names = dict.fromkeys(alert.group for alert in ALERTS)
    groups = [{"name": name, "rules": [_rule(alert) for alert in ALERTS if alert.group == name]} for name in names]
    return _HEADER + yaml.safe_dump({"groups": groups}, width=120, sort_keys=False)


def _rule(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expr,
        "for": alert.wait,
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": alert.summary,
            "description": f"{alert.description} {alert.effect}",
            "runbook": alert.action,
        },
    }
