"""`servingpool check`, as far as no Prometheus is needed; tests/integration/test_helm_test.py has a real one."""

from __future__ import annotations

from pathlib import Path

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
    told = "Prometheus backend 'default' cannot be reached. URL: http://127.0.0.1:1/prefix. Correct the backend's url"
    assert told in result.stderr


def test_a_configuration_that_is_wrong_is_said_and_nothing_is_asked(tmp_path: Path) -> None:
    result = check(tmp_path, "backends: []")
    assert result.exit_code == 2
    assert "backends: Tuple should have at least 1 item" in result.stderr
