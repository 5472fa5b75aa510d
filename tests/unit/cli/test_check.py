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


def test_a_backend_that_cannot_be_reached_is_named_with_its_url(tmp_path: Path) -> None:
    # Port 1 is reserved, and nothing listens there.
    result = check(tmp_path, "backends: [{name: default, url: 'http://127.0.0.1:1/prefix'}]")
    assert result.exit_code == 1
    assert result.stdout == ""
    told = "Prometheus backend 'default' cannot be reached. URL: http://127.0.0.1:1/prefix. Nothing listens at 127.0.0.1:1. "
    assert told in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Give --config FILE, or a KIND/NAME with --prometheus URL or --config FILE"),
        (["deployment/", "--prometheus", "http://x"], "got 'deployment/'"),
        (["deployment/llama", "--prometheus", "http://x", "--engine", "ollamma"], "--engine must be one of llamacpp, "),
        (
            ["deployment/llama", "--prometheus", "http://x", "--engine", "ollama"],
            "--engine ollama exports no metrics; give --gateway one that meters it (litellm)",
        ),
    ],
)
def test_a_target_that_cannot_be_looked_at_is_wrong_usage(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["check", *arguments])
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_configuration_on_the_command_line_wins_over_a_prometheus_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVINGPOOL_PROMETHEUS", "http://127.0.0.1:2")
    told = check(tmp_path, "backends: [{name: default, url: 'http://127.0.0.1:1'}]").stderr
    assert "URL: http://127.0.0.1:1. " in told
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


@pytest.mark.parametrize("order", ["--backend us --prometheus http://x", "--prometheus http://x --backend us"])
def test_a_backend_beside_a_url_is_wrong_usage(order: str) -> None:
    for command in ("history chat", "check deployment/llama"):
        result = CliRunner().invoke(app, [*command.split(), "-n", "prod", *order.split()])
        assert (result.exit_code, result.stderr) == (2, "Give --prometheus URL or --backend NAME, not both\n")


def test_a_namespace_that_the_backend_is_closed_to_is_told(tmp_path: Path) -> None:
    """A pool there would be refused with UnknownBackend, whatever its metrics."""
    path = tmp_path / "config.yaml"
    path.write_text("backends: [{url: 'http://x', namespaces: [team-*, shared]}]")
    result = CliRunner().invoke(app, ["check", "deployment/llama", "-n", "chat", "--config", str(path)])
    assert result.exit_code == 2
    assert "--backend 'default' does not allow namespace chat, only team-*, shared" in result.stderr
