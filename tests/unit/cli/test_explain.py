"""What a person sees who asks why."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner, Result

from servingpool.adapters.cluster.pools import Pools
from servingpool.api.serving_pool import ServingPool
from servingpool.cli.explain import show
from servingpool.cli.main import app

AT = "2026-01-01T10:00:00Z"
SPEC = {
    "model": "llama-70b",
    "slo": {"timeToFirstToken": "2s", "timePerOutputToken": "100ms"},
    "targets": [{"name": "vllm", "min": 1, "max": 8}],
}
CONDITION = {"type": "Ready", "status": "True", "reason": "SucceededGetScale", "message": "vllm can be scaled"}
DECISION = {
    "at": AT,
    "replicas": 4,
    "verdict": "ScaleUp",
    "need": 5.2,
    "limits": [{"name": "TooManyReplicas", "before": 6, "after": 4, "reason": "max is 4"}],
    "reason": "scale up 2 -> 4: 12 requests/s now",
    "load": 0.71,
    "safeLoad": 0.5,
    "forecast": 2.6,
    "horizon": "1m40s",
    "warnings": ["time per output token 10 ms cannot be held at any fleet size"],
}
STATUS: dict[str, Any] = {
    "fleet": "2/4/4",
    "bounds": {"min": 1, "max": 4, "schedule": "night"},
    "replicas": 2,
    "attainment": 96.2,
    "throughput": {"generationTokensPerSecond": 2400.0, "dollarsPerMillionTokens": 1.5, "tokensPerDollar": 666667.0},
    "cost": {
        "dollarsPerHour": 12.96,
        "comparedTo": "acme",
        "noted": "2026-11-01",
        "comparedDollarsPerHour": 9.5,
        "breakEvenTokensPerSecond": 3274.1,
        "breakEvenLoad": 0.969,
    },
    "latency": {"timeToFirstToken": "1.32s"},
    "queueDepth": 3.0,
    "conditions": [CONDITION | {"lastTransitionTime": AT}],
    "lastDecision": DECISION,
    "history": [
        {"at": AT, "from": 2, "to": 4, "why": "scale up 2 -> 4", "by": "servingpool-operator"},
        {
            "at": "2026-01-01T09:00:00Z",
            "from": 3,
            "to": 2,
            "why": "by hand",
            "by": "kubectl",
            "outcome": "removed after 15s",
        },
    ],
}


def stored(status: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "chat", "namespace": "prod"}, "spec": SPEC, "status": status}


class FakePools:
    """With one pool, in the context's namespace."""

    namespace = "prod"

    def __init__(self, answer: dict[str, Any] | Exception) -> None:
        self.answer = answer
        self.nobody = ""

    def nobody_decides(self, _: float) -> str:
        return self.nobody

    def read(self, *key: str) -> dict[str, Any]:
        assert key == ("prod", "chat")
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def explain(monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any] | Exception, *arguments: str) -> Result:
    monkeypatch.setattr(Pools, "connect", lambda *_: FakePools(answer))
    monkeypatch.setenv("COLUMNS", "160")
    return CliRunner().invoke(app, ["explain", *(arguments or ("prod/chat",))])


def test_tells_need_limits_figures_and_conditions_with_units(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = explain(monkeypatch, stored(STATUS))
    assert shown.exit_code == 0
    for line in (
        "ServingPool prod/chat",
        "mode Auto: llama-70b on Deployment vllm",
        "scale up 2 -> 4: 12 requests/s now",
        "raw need",
        "5.2",
        "6 -> 4",
        "max is 4",
        "1 to 4  by schedule night",
        "96.2%",
        "objective 95%",
        "TTFT p95",
        "1.32s  SLO 2s",
        "2400.0 tokens/s",
        "666667 tokens  $1.50 per million output tokens",
        "$12.96 per hour",
        "$9.50 per hour  noted 2026-11-01",
        "3274.1 output tokens/s  load 0.969, safe up to 0.5",
        "SucceededGetScale",
        "2026-01-01T09:00:00Z  3 -> 2    removed after 15s  kubectl               by hand",
        "! time per output token 10 ms cannot be held at any fleet size",
    ):
        assert line in shown.output, shown.output


def test_several_targets_have_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replicas of the reference need not be whole."""
    limits = [{"name": "TooManyReplicas", "before": 6.25, "after": 4.8, "reason": "max is 8"}]
    targets = [
        {"name": "h100", "replicas": 3, "ready": 2, "desired": 4, "speed": 1.0, "coldStart": "1m40s"},
        {"name": "l40s", "replicas": 4, "ready": 4, "desired": 4, "coldStart": "2m", "stuck": "pods without a node: 1"},
    ]
    status = STATUS | {"lastDecision": DECISION | {"limits": limits}, "targets": targets}
    pool = stored(status)
    pool["spec"] = SPEC | {"targets": [{"name": "h100", "max": 8}, {"name": "l40s", "max": 8}]}
    shown = explain(monkeypatch, pool).output
    assert "mode Auto: llama-70b on Deployment h100, Deployment l40s" in shown
    assert "6.25 -> 4.8" in shown
    rows = [" ".join(line.strip("│ ").split()) for line in shown.splitlines()]
    assert "h100 3 2 4 1 1m40s delivers" in rows
    assert "l40s 4 4 4 unknown 2m pods without a node: 1" in rows


def test_the_cause_comes_first_then_the_age_and_what_is_unknown_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cause stood behind a dozen rows "unknown", and an operator that was dead looked as one that decides."""
    decision = {key: value for key, value in DECISION.items() if key not in ("need", "safeLoad", "load", "forecast")}
    lost = {"type": "MetricsAvailable", "status": "False", "reason": "NotScraped", "message": "No target."}
    contested = CONDITION | {"status": "False", "reason": "ReplicasContested", "message": "argocd resets."}
    bad = [one | {"lastTransitionTime": "2026-01-01T09:50:00Z"} for one in (contested, lost)]
    pools = FakePools(stored({"fleet": "2/2/8", "replicas": 2, "lastDecision": decision, "conditions": bad}))
    pools.nobody = "Nobody decides since 10:00."
    monkeypatch.setattr(Pools, "connect", lambda *_: pools)
    monkeypatch.setattr("time.time", lambda: datetime.fromisoformat(AT).timestamp() + 150.0)
    shown = CliRunner().invoke(app, ["explain", "prod/chat"])
    assert (shown.exit_code, shown.stderr) == (0, "Nobody decides since 10:00.\n")
    lines = shown.stdout.splitlines()
    assert lines[2:4] == [
        "NotScraped, since 2026-01-01T09:50:00Z: No target.",
        "What to do: Add a PodMonitor or ServiceMonitor that selects the pods.",
    ]
    assert lines[6] == f"decided 2m30s ago ({AT}), ScaleUp"
    assert [line.split()[0] for line in lines if "attainment, last hour, " in line] == ["unknown"]
    assert "None" not in shown.output
    bad[0] |= {"status": "True", "reason": "WaitingForNode", "message": "2 pods wait."}
    shown = explain(monkeypatch, stored({"lastDecision": decision, "conditions": bad[:1]}))
    assert "WaitingForNode: 2 pods wait." in shown.output


def test_roles_of_which_nothing_is_known_yet_have_an_unknown_load(monkeypatch: pytest.MonkeyPatch) -> None:
    roles = [
        {"role": role, "replicas": 2, "readyReplicas": 0, "desiredReplicas": 2, "lastDecision": decision}
        for role, decision in (
            ("prefill", {key: value for key, value in DECISION.items() if key not in ("need", "load", "safeLoad")}),
            ("decode", DECISION),
        )
    ]
    shown = explain(monkeypatch, stored(STATUS | {"roles": roles})).output
    rows = [line.strip("│ ") for line in shown.splitlines()]
    assert [line for line in rows if line.startswith("load ")] == ["load unknown", "load 0.71, safe up to 0.5"]


def test_a_cost_that_is_unknown_is_not_shown_as_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    cost = {"comparedTo": "acme", "noted": "2026-11-01"}
    shown = explain(monkeypatch, stored(STATUS | {"cost": cost})).output
    assert re.search("unknown +.*cost, cost at acme, cheaper here from", shown), shown
    assert "cost at" not in explain(monkeypatch, stored({**STATUS, "cost": {"dollarsPerHour": 1.0}})).output


def test_exits_3_where_nothing_was_decided_yet_and_says_what_stands_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {"status": "False", "reason": "TargetNotFound", "message": "no Deployment vllm", "lastTransitionTime": AT}
    assert "No operator has read this pool" in explain(monkeypatch, stored({})).output
    shown = explain(monkeypatch, stored({"conditions": [CONDITION | missing]}))
    assert shown.exit_code == 3
    assert "No decision yet" in shown.output
    assert "TargetNotFound" in shown.output


def test_json_is_the_status_as_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = explain(monkeypatch, stored(STATUS), "prod/chat", "-o", "json")
    assert shown.exit_code == 0
    assert json.loads(shown.stdout)["lastDecision"]["limits"] == DECISION["limits"]
    shown = explain(monkeypatch, stored(STATUS), "prod/chat", "-o", "yaml")
    assert yaml.safe_load(shown.stdout)["lastDecision"]["limits"] == DECISION["limits"]


def test_a_pool_that_is_not_valid_is_told_with_field_range_and_value(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = explain(monkeypatch, {**stored({}), "spec": SPEC | {"slo": {"timeToFirstToken": "20m"}}})
    assert shown.exit_code == 5
    assert shown.stderr == (
        "ServingPool prod/chat is not valid: spec.slo.timeToFirstToken: must be 1ms to 10m, got 20m\n"
    )


def test_a_watch_explains_each_decision_that_says_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    later = STATUS | {"lastDecision": DECISION | {"at": "2026-01-01T10:00:15Z"}}
    other = STATUS | {"lastDecision": DECISION | {"reason": "hold 4: 13 requests/s now"}}

    class Watched(FakePools):
        def changes(self, *_: object) -> Iterator[dict[str, Any]]:
            yield from (stored(later), stored(other))

    monkeypatch.setattr(Pools, "connect", lambda *_: Watched(stored(STATUS)))
    shown = CliRunner().invoke(app, ["explain", "prod/chat", "--watch"])
    assert shown.exit_code == 130
    assert shown.stdout.count("ServingPool prod/chat") == 2
    assert shown.stdout.index("hold 4: 13 requests/s") > shown.stdout.index("scale up 2 -> 4: 12 requests/s")
    assert CliRunner().invoke(app, ["explain", "prod/chat", "-w", "--at", AT]).exit_code == 2


def test_a_pipe_gets_no_box_and_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    reason = "hold 4: " + "13 requests/s now, and " * 7
    monkeypatch.setattr(
        Pools, "connect", lambda *_: FakePools(stored(STATUS | {"lastDecision": DECISION | {"reason": reason}}))
    )
    piped = CliRunner().invoke(app, ["explain", "prod/chat"]).stdout
    assert piped.startswith("ServingPool prod/chat\n")
    assert reason.strip() in piped
    assert "│" not in piped
    screen = io.StringIO()
    show(ServingPool.read(stored(STATUS)), Console(file=screen, force_terminal=True, width=120))
    assert "╭─ ServingPool prod/chat" in screen.getvalue()
