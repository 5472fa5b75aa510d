"""Lists in tests/e2e that must equal something of the project: CI does not run that lane, so they are compared here."""

from __future__ import annotations

import ast
import json
import runpy
from pathlib import Path

from servingpool.catalogue.alerts import ALERTS

ROOT = Path(__file__).parents[3]
E2E = ROOT / "tests" / "e2e"
NAMES = runpy.run_path(str(E2E / "alert_names.py"))


def test_each_alert_of_the_chart_is_seen_somewhere() -> None:
    seen = [*NAMES["CAUSED"], *NAMES["NEVER_CAUSED"], *NAMES["ELSEWHERE"]]
    assert sorted(seen) == sorted(alert.name for alert in ALERTS)


def test_an_alert_that_another_test_causes_is_named_there() -> None:
    lacking = {alert: path for alert, path in NAMES["ELSEWHERE"].items() if alert not in (ROOT / path).read_text()}
    assert lacking == {}


def test_the_panels_that_may_be_empty_exist() -> None:
    dashboard = json.loads((ROOT / "charts/servingpool-operator/files/dashboard.json").read_text())
    titles = {panel["title"] for panel in dashboard["panels"]}
    assert literal(E2E / "test_dashboard.py", "EMPTY") <= titles


def test_every_module_of_scenarios_is_in_the_table() -> None:
    text = (E2E / "README.md").read_text()
    assert [path.name for path in sorted(E2E.glob("test_*.py")) if f"`{path.name}`" not in text] == []


def literal(path: Path, name: str) -> set[str]:
    """The value of a constant of a module that cannot be imported without a cluster."""
    for statement in ast.parse(path.read_text()).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == name:
            found: set[str] = ast.literal_eval(statement.value)
            return found
    raise AssertionError(f"{path.name} has no {name}")
