"""`servingpool check`, as far as no Prometheus is needed; `helm test` on kind has a real one (tests/e2e/test_install.py)."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from servingpool.cli.main import app


def check(tmp_path: Path, text: str) -> Result:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return CliRunner().invoke(app, ["check", "--config", str(path)])


def test_a_configuration_on_the_command_line_wins_over_a_prometheus_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVINGPOOL_PROMETHEUS", "http://127.0.0.1:2")
    told = check(tmp_path, "backends: [{name: default, url: 'http://127.0.0.1:1/prefix'}]")
    assert (told.exit_code, told.stdout) == (1, "")
    assert "URL: http://127.0.0.1:1/prefix. Nothing listens at 127.0.0.1:1. " in told.stderr
    alone = CliRunner().invoke(app, ["history", "chat", "-n", "prod"])
    assert "URL: http://127.0.0.1:2. " in alone.stderr


@pytest.mark.parametrize("command", ["history chat -n prod", "check deployment/llama -n prod"])
def test_a_backend_on_the_command_line_wins_over_a_prometheus_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("backends: [{name: us, url: 'http://127.0.0.1:1'}]")
    monkeypatch.setenv("SERVINGPOOL_PROMETHEUS", "http://127.0.0.1:2")
    monkeypatch.setenv("SERVINGPOOL_CONFIG", str(path))
    found = CliRunner().invoke(app, ["history", "chat", "-n", "prod", "--backend", "us"])
    assert "URL: http://127.0.0.1:1. " in found.stderr
    lacks = CliRunner().invoke(app, [*command.split(), "--backend", "eu"])
    assert "--backend must be one of us, got 'eu'" in lacks.stderr
