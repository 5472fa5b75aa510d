from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from servingpool.cli.demo import demo
from servingpool.cli.simulate import simulate

MANIFEST = """\
apiVersion: servingpool.dev/v1alpha1
kind: ServingPool
metadata: {name: llama}
spec:
  model: llama
  slo: {timeToFirstToken: 1s, timePerOutputToken: 50ms}
  targets:
    - {name: llama, min: 1, max: 4, costPerReplicaHour: 3}
"""


@pytest.fixture
def servingpool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """The command, in a folder of its own with trace.csv and pool.yaml, and room for messages on one line."""
    rows = [f"{index / 4},600,40" for index in range(800)]
    (tmp_path / "trace.csv").write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]))
    (tmp_path / "pool.yaml").write_text(MANIFEST)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setenv("TERMINAL_WIDTH", "400")
    app = typer.Typer()
    app.command()(demo)
    app.command()(simulate)

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(app, arguments)

    return invoke
