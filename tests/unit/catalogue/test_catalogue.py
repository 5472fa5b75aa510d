"""The catalogue and the code name the same things: what is declared is used, what is used is declared."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

import servingpool
from servingpool.adapters.prometheus.diagnosis import Cause
from servingpool.catalogue.alerts import ALERTS
from servingpool.catalogue.condition_types import ConditionType
from servingpool.catalogue.conditions import Reason
from servingpool.catalogue.events import EventReason
from servingpool.catalogue.limits import LimitName
from servingpool.catalogue.metrics import Metric
from servingpool.catalogue.template import fields, render
from servingpool.loop.metrics import LoopMetrics, PoolCollector

SOURCES = Path(servingpool.__file__).parent
OPERATOR = ("api", "decision", "adapters", "gpubudget", "status", "loop", "reconcile", "handlers", "cli")
MESSAGES = {"Reason": Reason, "EventReason": EventReason}
DASHBOARD = Path(__file__).parents[3] / "charts/servingpool-operator/files/dashboard.json"


def trees(*folders: str) -> Iterator[ast.AST]:
    """Of every source file in them."""
    return (ast.parse(path.read_text()) for folder in folders for path in sorted((SOURCES / folder).rglob("*.py")))


def calls(*folders: str) -> Iterator[ast.Call]:
    """Of methods."""
    for tree in trees(*folders):
        for part in ast.walk(tree):
            if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):
                yield part


def arguments(folder: str, methods: set[str], position: int, of: int) -> list[str]:
    """What is given at this position of so many to calls of these methods, as written."""
    return [
        ast.unparse(call.args[position])
        for call in calls(folder)
        if isinstance(call.func, ast.Attribute) and call.func.attr in methods
        if len(call.args) == of  # other classes have methods of these names too
    ]


def rendered() -> dict[str, list[set[str]]]:
    """For each entry whose message is rendered, as `Owner.NAME`: the fields given, call by call."""
    found: dict[str, list[set[str]]] = {}
    for call in calls(*OPERATOR):
        if isinstance(call.func, ast.Attribute) and call.func.attr in {"message", "said"}:
            given = {keyword.arg or "**" for keyword in call.keywords} | {"(positional)" for _ in call.args}
            names = re.split(r" or | if .* else ", ast.unparse(call.func.value))
            causes = [f"Reason.{one.value.name}" for one in Cause if one.value]
            for name in causes if "cause.value" in names else names:
                found.setdefault(name, []).append(given)
    return found


@pytest.mark.parametrize(("owner", "entries"), MESSAGES.items())
def test_every_message_is_rendered_with_its_fields_and_no_other_is(
    owner: str, entries: type[Reason | EventReason]
) -> None:
    wanted = {f"{owner}.{entry.name}": fields(entry.template) for entry in entries}
    given = {name: each for name, each in rendered().items() if name.partition(".")[0] == owner}
    assert given.keys() == wanted.keys()
    assert [name for name, each in given.items() if any(one != wanted[name] for one in each)] == []


def test_only_the_catalogue_renders_messages() -> None:
    """A reason in a variable, `reason.message(...)`, would not be seen by the test above."""
    assert {name.partition(".")[0] for name in rendered()} == MESSAGES.keys()


def test_figures_are_written_as_the_template_says() -> None:
    assert render("{share:.0%} of {count}", {"share": 0.123, "count": 3}) == "12% of 3"


@pytest.mark.parametrize("given", [{}, {"target": "vllm", "node": "a"}])
def test_a_message_with_a_missing_or_unknown_field_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"has the fields \['target'\]"):
        Reason.SUCCEEDED_GET_SCALE.message(**given)


def test_a_condition_type_has_a_reason_for_its_good_status() -> None:
    assert {reason.type for reason in Reason if reason.status is reason.type.good} == set(ConditionType)


def test_every_event_has_a_declared_reason() -> None:
    """That of a condition, or one of its own; an API server takes any text."""
    given = {each for folder in ("loop", "reconcile", "status") for each in arguments(folder, {"event"}, 2, of=4)}
    assert given == {f"EventReason.{reason.name}" for reason in EventReason} | {"found.reason"}


def test_every_limit_of_the_core_is_applied_with_the_fields_of_its_sentence_and_no_other_is() -> None:
    applied = [
        (ast.unparse(call.args[1]), {keyword.arg for keyword in call.keywords})
        for call in calls("decision")
        if isinstance(call.func, ast.Attribute) and call.func.attr in {"at_least", "at_most"}
    ]
    wanted = {f"LimitName.{limit.name}": fields(limit.template) for limit in LimitName}
    assert {name for name, _ in applied} == wanted.keys()
    assert [name for name, given in applied if given != wanted[name]] == []


def test_the_metrics_are_those_that_are_exposed() -> None:
    registry = CollectorRegistry()
    LoopMetrics(registry)
    registry.register(PoolCollector(dict, dict, dict))
    exposed = {
        (family.name + ("_total" if family.type == "counter" else ""), family.type, family.documentation)
        for family in registry.collect()
    }
    assert exposed == {(metric.value, metric.kind, metric.help) for metric in Metric}


def test_no_metric_is_named_outside_of_the_catalogue() -> None:
    texts = {
        part.value
        for tree in trees(*OPERATOR)
        for part in ast.walk(tree)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    }
    assert [text for text in texts if re.fullmatch(r"servingpool_[a-z_]+", text)] == []


def watched() -> dict[str, str]:
    """The expressions of alerts and of the dashboard's panels, by alert and panel."""
    found = {alert.name: alert.expr for alert in ALERTS}
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", ()):
            found[f"{panel['title']} {target['refId']}"] = target["expr"]
    return found


def test_alerts_and_panels_watch_metrics_that_exist() -> None:
    series = {metric.value for metric in Metric}
    series |= {
        f"{metric.value}_{part}" for metric in Metric if metric.kind == "histogram" for part in ("bucket", "count")
    }
    unknown = {name: set(re.findall(r"\bservingpool_[a-z_]+\b", expr)) - series for name, expr in watched().items()}
    assert {name for name, each in unknown.items() if each} == set()
    assert [name for name, expr in watched().items() if "servingpool_" not in expr] == []


def test_alerts_name_reasons_that_exist() -> None:
    assert [alert.name for alert in ALERTS if not alert.state_of.keys() <= alert.action_of.keys()] == []
    named = {name for alert in ALERTS for name in re.findall(r'reason!?="(\w+)"', alert.expr)}
    assert named
    assert named <= {reason.value for reason in Reason}


def test_alerts_name_a_pool_to_the_command_line_by_name_and_namespace() -> None:
    """NAMESPACE/NAME is taken for a kind and a name where the namespace is called servingpool or sp."""
    told = [words for alert in ALERTS for words in alert.action.split("servingpool explain ")[1:]]
    assert len(told) >= 4
    assert {" ".join(words.split()[:7]) for words in told} == {"{{ $labels.pool }} -n {{ $labels.namespace }}"}


def test_every_entry_is_explained() -> None:
    """Nothing is left blank, and no sentence is one that nobody can read in one go."""
    texts = [text for reason in Reason for text in (reason.meaning, reason.action)]
    texts += [text for event in EventReason for text in (event.meaning, event.action)]
    texts += [text for limit in LimitName for text in (limit.meaning, limit.action)]
    texts += [text for metric in Metric for text in (metric.help, metric.meaning)]
    texts += [text for alert in ALERTS for text in (alert.summary, alert.description, alert.effect, alert.action)]
    texts += [text for alert in ALERTS for text in alert.state_of.values()]
    texts += [entry.template for entry in Reason]
    assert [text for text in texts if not text.strip()] == []
    sentences = [sentence for text in texts for sentence in re.split(r"(?<=[.;:])\s", text)]
    assert [sentence for sentence in sentences if len(sentence.split()) > 20] == []
