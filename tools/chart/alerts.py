"""files/alerts.yaml: the rules of the chart's PrometheusRule, from the operator's catalogue."""

from __future__ import annotations

from collections.abc import Mapping
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
    threshold = {} if alert.threshold is None else {"threshold": alert.threshold}
    return {
        "alert": alert.name,
        "expr": alert.expr,
        "for": alert.wait,
        **threshold,
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": alert.summary,
            "description": _by_reason(alert.state_of, f"{alert.description} {alert.effect}"),
            "runbook": f"{alert.action} {_by_reason(alert.action_of)}".strip(),
        },
    }


def _by_reason(texts: Mapping[str, str], otherwise: str = "") -> str:
    """The text of the alert's reason, chosen by Prometheus."""
    if not texts:
        return otherwise
    cases = [f'if eq $labels.reason "{reason}" }}}}{text}' for reason, text in texts.items()]
    last = f"{{{{ else }}}}{otherwise}" if otherwise else ""
    return "{{ " + "{{ else ".join(cases) + last + "{{ end }}"
