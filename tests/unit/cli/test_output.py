"""S13: what a stranger named reaches no terminal raw, and is no markup."""

from __future__ import annotations

import ast
import io
import json
import logging
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from rich.table import Table
from rich.text import Text
from typer.testing import CliRunner

import servingpool.cli
from servingpool.adapters.cluster.errors import ClusterError
from servingpool.api.serving_pool import ServingPool
from servingpool.catalogue.plain import plain
from servingpool.cli import explain, logs
from servingpool.cli.kubectl import Output, printed, sentence
from servingpool.cli.main import app
from servingpool.cli.output import LINES, echo, echo_json, terminal

HOSTILE = (
    "\x1b]0;PWNED\x07",
    "\x1b[2J\x1b[31mred",
    "a\r\nFAKE LINE",
    "\x9b31m",
    "\u202egnp.exe",
    "\x7f\x08\x00",
    "[/nope]",
    "[link=http://a.example]b[/link]",
    ":bomb:",
)


def controls(text: str) -> list[str]:
    return [one for one in text if not one.isprintable() and one not in LINES]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_text_on_one_line_has_no_controls_and_loses_no_letter(text: str) -> None:
    shown = plain(text)
    assert shown.isprintable()
    assert all(one in shown for one in text if one.isprintable())


@pytest.mark.parametrize("text", HOSTILE)
def test_what_is_printed_has_no_controls(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    echo(f"model {text} is served")
    echo(text.encode(), err=True)
    printed = capsys.readouterr()
    assert not controls(printed.out + printed.err)


@pytest.mark.parametrize(
    "text", [*HOSTILE, "a\xa0b", "a\u3000b", "\u2028", "\x85", "\U000e0001", "\U0001f469\u200d\U0001f52c"]
)
def test_json_and_yaml_have_no_controls_and_are_read_as_they_were_meant(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {"metadata": {"name": "pool"}, "spec": {"model": f"m{text}", text: [text]}}
    echo_json(orjson.dumps(found))
    one = capsys.readouterr().out
    printed(found, Output.JSON)
    other = capsys.readouterr().out
    printed(found, Output.YAML)
    third = capsys.readouterr().out
    assert json.loads(one) == json.loads(other) == yaml.safe_load(third) == found
    assert not controls(one + other + third)


@pytest.mark.parametrize("text", HOSTILE)
def test_what_is_said_of_wrong_input_has_no_controls(text: str, tmp_path: Path) -> None:
    manifest = {
        "apiVersion": text,
        "kind": "ServingPool",
        "metadata": {"name": "pool"},
        "spec": {"model": "m", "slo": {"timeToFirstToken": text}, "targets": [{"name": "vllm", "max": text}]},
    }
    file = tmp_path / "pool.yaml"
    file.write_text(yaml.safe_dump(manifest), encoding="utf-8")
    told = CliRunner().invoke(app, ["simulate", "--pool", str(file)])
    assert told.exit_code == 2
    assert "spec.slo.timeToFirstToken" in told.output
    assert not controls(told.output)


@pytest.mark.parametrize("text", HOSTILE)
def test_tables_and_panels_take_no_markup_and_no_controls(text: str) -> None:
    file = io.StringIO()
    table = Table()
    table.add_column(text)
    table.add_row(text)
    console = terminal(file=file, width=200, force_terminal=False)
    console.print(table)
    console.print(Text(text, style="bold"))
    assert not controls(file.getvalue())
    for letters in text.split():
        if letters.isprintable():
            assert letters in file.getvalue()


@pytest.mark.parametrize("text", HOSTILE)
def test_explain_shows_a_pool_whose_strings_are_a_strangers(text: str) -> None:
    at = "2026-01-01T10:00:00Z"
    change = {"at": at, "from": 2, "to": 4, "why": text, "by": text}
    condition: dict[str, Any] = {
        "type": "Ready",
        "status": "False",
        "reason": "TargetNotFound",
        "message": text,
        "lastTransitionTime": at,
    }
    limit = {"name": text, "before": 6, "after": 4, "reason": text}
    decision = {"at": at, "replicas": 4, "verdict": "Hold", "reason": text, "limits": [limit], "warnings": [text]}
    raw = {
        "metadata": {"namespace": "chat", "name": "pool", "uid": "u", "generation": 1},
        "spec": {"model": text, "slo": {"timeToFirstToken": "2s"}, "targets": [{"name": "vllm", "min": 1, "max": 8}]},
        "status": {"conditions": [condition], "lastDecision": decision, "history": [change], "replicas": 2},
    }
    file = io.StringIO()
    explain.show(ServingPool.read(raw), terminal(file=file, width=200))
    assert not controls(file.getvalue())


@pytest.mark.parametrize("text", HOSTILE)
def test_a_log_line_and_a_refusal_stay_one_line(text: str) -> None:
    record = logging.LogRecord("a", logging.INFO, "p", 1, "pool %s", (text,), None)
    assert logs._Plain("%(message)s").format(record).isprintable()
    assert sentence(ClusterError(f"Cannot scale {text}")).isprintable()


def test_commands_print_by_this_module_alone() -> None:
    """`typer.echo`, `print` and a Console of their own would print what a stranger wrote as it is."""
    raw = {"typer.echo", "typer.secho", "click.echo", "print", "Console", "rich.print"}
    found = []
    for path in Path(servingpool.cli.__file__).parent.glob("*.py"):
        if path.name == "output.py":
            continue
        found += [
            f"{path.name}:{node.lineno}"
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if (isinstance(node, ast.Call) and ast.unparse(node.func) in raw)
            or (isinstance(node, ast.Attribute) and ast.unparse(node) in raw)
        ]
    assert not found
