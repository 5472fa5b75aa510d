from __future__ import annotations

import webbrowser
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from typer.testing import Result

Command = Callable[..., Result]
BASE = (
    *("demo", "--trace", "trace.csv", "--hardware", "h100-8b-tp1", "--ttft", "1s", "--tpot", "50ms"),
    *("--history", "0s"),  # two hours before each of 200 s would be most of the time
)


def test_it_prints_a_table_and_writes_report_and_picture(servingpool: Command) -> None:
    result = servingpool(*BASE, "--picture", "docs/run.svg", "--max-replicas", "3")
    assert result.exit_code == 0
    assert "llm-d slo-aware" in result.stdout
    assert "Report: report/demo.html" in result.stdout
    assert Path("docs/run.svg").read_text().startswith("<svg")


def test_json_is_all_that_stdout_gets(servingpool: Command) -> None:
    result = servingpool(*BASE, "-o", "json", "--report", "here.html")
    found = orjson.loads(result.stdout)
    assert list(found) == ["verdict", "conclusion", "format", "entries", "frontier", "variants"]
    assert found["verdict"] in {"cheapest", "level", "dearer", "missed"}
    assert Path("here.html").exists()


def test_the_report_says_what_was_seen_before_the_start(servingpool: Command) -> None:
    """The trace has three whole minutes to draw from."""
    servingpool(*BASE, "--history", "5m")
    report = Path("report/demo.html").read_text()
    assert "first sees 5m of similar traffic" in report
    assert "nothing seen before" in report
    servingpool(*BASE)
    report = Path("report/demo.html").read_text()
    assert "No policy has seen traffic before the start." in report
    assert "nothing seen before" not in report


def test_it_opens_the_report_when_asked(servingpool: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    servingpool(*BASE, "--open")
    assert opened == [Path("report/demo.html").resolve().as_uri()]
