"""The pages on names that users see, from the operator's catalogue: conditions, limits and events, metrics, alerts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from reference.markdown import anchored, code, table
from reference.markdown import page as whole
from servingpool.catalogue.alerts import ALERTS, Alert
from servingpool.catalogue.condition_types import ConditionType
from servingpool.catalogue.conditions import Reason
from servingpool.catalogue.events import WARNED, EventReason
from servingpool.catalogue.limits import LimitName
from servingpool.catalogue.metrics import Metric

CONDITIONS = """\
`kubectl describe sp NAME` shows the conditions, `servingpool explain NAMESPACE/NAME` shows them with the last decision.
A pool that needs no attention has the good status in each. `{field}` stands for a value. If a pool cannot be judged at
all, its other conditions turn Unknown with the reason and the message of `Ready`.
"""
LIMITS = """\
A limit stands between the replicas that the load needs and the replicas that are set. `status.lastDecision.limits` has
those that changed the answer, in the order applied; `servingpool explain` lists them. Column `WHY` of `kubectl get sp`
shows the last one while the size stays. Where targets have roles, those of each are in
`status.roles[].lastDecision.limits`, and `WHY` shows the one that `ScalingLimited` names.
"""
METRICS = """\
The operator serves them on port 9090, path `/metrics`. The metrics of pools come from the leader only, and carry the
pool's own namespace: scrape with `honorLabels`, as the chart's monitors do. A figure that is unknown has no series.
"""
DASHBOARD = "The chart's Grafana dashboard, `grafanaDashboard.enabled`, shows these panels."
ALERTING = """\
The chart creates these alerts with `prometheusRule.enabled`. With `prometheusRule.runbookBaseUrl` each carries a
`runbook_url` that leads to its part of this page. `prometheusRule.rules` switches single alerts off, or changes their
severity, `for` and threshold.

`critical` is a page: somebody is called. On a pool it means that many users are waiting too long right now: the error
budget is spent 14.4 times too fast over the last hour and the last 5 minutes, or 6 times over 6 hours and 30 minutes,
and at least 10 requests of the hour missed the SLO. `warning` is a ticket: look at it in the day. A window is the mean
over time of the operator's own figures, which count requests that still wait as missed.

No alert on the SLO fires for pools in mode Recommend. Every alert on a pool has the label `mode` (Auto, Recommend or
Paused), which Alertmanager may route by.

The alerts expect one Prometheus for each cluster. Two clusters in one Prometheus may have pools of the same namespace
and name: their figures are then taken as those of one pool.
"""


def conditions() -> str:
    """The page on conditions and their reasons."""
    types = [(f"[{each.value}](#{each.lower()})", each.good.value, each.meaning) for each in ConditionType]
    sections = [part for each in ConditionType for part in _reasons(each)]
    return whole(
        "Conditions",
        CONDITIONS,
        table(("condition", "good status", "meaning"), types),
        *sections,
    )


def limits_and_events() -> str:
    """The page on limits and events."""
    types = ", ".join(f"`{each.value}`" for each in WARNED)
    follow = f"Besides these, {types} post a Warning event when False, SLOMet where no fleet size helps."
    limits = [(anchored(each.value), _template(each.template), each.meaning, each.action) for each in LimitName]
    events = [
        (anchored(each.value), each.type, _template(each.template), each.meaning, each.action) for each in EventReason
    ]
    return whole(
        "Limits and events",
        "## Limits",
        LIMITS,
        table(("limit", "sentence", "what it does", "what to do"), limits),
        "## Events",
        follow,
        table(("reason", "type", "message", "meaning", "what to do"), events),
    )


def metrics(dashboard: Path) -> str:
    """The page on the operator's metrics, and the panels that show them."""
    rows = [
        (code(each.value), each.kind, ", ".join(map(code, each.labels)), each.unit, each.help, each.meaning)
        for each in Metric
    ]
    panels = [
        (panel["title"], panel["description"], ", ".join(map(code, _named(panel["targets"]))))
        for panel in json.loads(dashboard.read_text(encoding="utf-8"))["panels"]
        if panel["type"] != "row"
    ]
    return whole(
        "Metrics and dashboard",
        METRICS,
        table(("metric", "kind", "labels", "unit", "what it is", "how to read it"), rows),
        "## Dashboard",
        DASHBOARD,
        table(("panel", "what it shows", "metrics"), panels),
    )


def alerts() -> str:
    """The page on alerts: one heading each, which the chart's `runbook_url` leads to."""
    rows = [(f"[{each.name}](#{each.name.lower()})", each.severity, _plain(each.summary)) for each in ALERTS]
    sections = [part for each in ALERTS for part in _alert(each)]
    return whole("Alerts", ALERTING, table(("alert", "severity", "summary"), rows), *sections)


def _reasons(type_: ConditionType) -> Iterator[str]:
    yield f"## {type_.value}"
    rows = [
        (anchored(each.value), each.status.value, _template(each.template), each.meaning, each.action)
        for each in Reason
        if each.type is type_
    ]
    yield table(("reason", "status", "message", "meaning", "what to do"), rows)


def _alert(alert: Alert) -> Iterator[str]:
    alert = replace(alert, description=_settled(alert.description, alert), expr=_settled(alert.expr, alert))
    yield f"## {alert.name}"
    wait = "at once" if alert.wait == "0s" else f"after {alert.wait}"
    threshold = "" if alert.threshold is None else f" Threshold {alert.threshold:g}."
    yield f"Severity {alert.severity}, fires {wait}.{threshold}"
    yield f"**Meaning.** {_plain(alert.description)}"
    yield f"**What it does to users.** {_plain(alert.effect)}"
    yield f"**What to do.** {_linked(_plain(alert.action))}"
    if alert.action_of:
        rows = [(each, alert.state_of.get(each, Reason(each).meaning), todo) for each, todo in alert.action_of.items()]
        yield table(("reason", "state", "what to do"), rows)
    yield f"```text\n{_plain(alert.expr)}\n```"


def _linked(text: str) -> str:
    """A text whose reasons lead to what they mean."""
    reasons = "|".join(each.value for each in Reason)
    return re.sub(
        rf"\b({reasons})\b", lambda found: f"[{found[1]}](../reference/conditions.md#{found[1].lower()})", text
    )


def _template(template: str) -> str:
    """A message's template without the form of its figures."""
    return code(re.sub(r"{(\w+):[^}]*}", r"{\1}", template))


def _settled(text: str, alert: Alert) -> str:
    """With the alert's own threshold and wait, as the chart has them by default."""
    threshold = "" if alert.threshold is None else f"{alert.threshold:g}"
    return text.replace("$(THRESHOLD)", threshold).replace("$(FOR)", alert.wait)


def _plain(text: str) -> str:
    """An alert's text without the templates of Helm and Prometheus."""
    text = re.sub(r"\$\((\w+)\)", r"\1", text)
    text = re.sub(r"{{ \$labels\.(\w+) }}", lambda found: found[1].upper(), text)
    return re.sub(r"{{ \$value \| \w+ }}", "N", text)


def _named(targets: list[dict[str, str]]) -> list[str]:
    """The metrics of a panel, each once."""
    found = [name for target in targets for name in re.findall(r"\bservingpool_[a-z_]+\b", target["expr"])]
    return list(dict.fromkeys(found))
