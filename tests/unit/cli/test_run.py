"""`servingpool run` and `--help`, as far as no cluster is needed."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from aiohttp import ClientResponseError, RequestInfo
from kopf._cogs.clients.errors import APINotFoundError  # what its watches end with
from multidict import CIMultiDict, CIMultiDictProxy
from typer.testing import CliRunner
from yarl import URL

from servingpool.cli import run
from servingpool.cli.assembly import error_text
from servingpool.cli.logs import configure
from servingpool.cli.main import app
from servingpool.reconcile.config import OperatorConfig

CONFIG = "backends: [{name: default, url: 'http://prometheus:9090'}]\nnamespaces: [from-file]\n"


@pytest.fixture
def operated(monkeypatch: pytest.MonkeyPatch) -> list[tuple[OperatorConfig, str | None]]:
    """What the operator would be run with."""
    found: list[tuple[OperatorConfig, str | None]] = []

    def operate(config: OperatorConfig, kubeconfig: str | None) -> int:
        found.append((config, kubeconfig))
        return 0

    monkeypatch.setattr(run, "operate", operate)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("POD_ID", "test")
    return found


def test_a_flag_counts_more_than_the_file(tmp_path: Path, operated: list[tuple[OperatorConfig, str | None]]) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    options = ["--config", str(path), "--interval", "5s", "--namespace", "a", "--namespace", "b", "--kubeconfig", "k"]
    result = CliRunner().invoke(app, ["run", *options])
    assert result.exit_code == 0, result.output
    config, kubeconfig = operated[0]
    assert (config.interval, config.namespaces, kubeconfig) == (5.0, ("a", "b"), "k")
    assert CliRunner().invoke(app, ["run"], env={"SERVINGPOOL_CONFIG": str(path)}).exit_code == 0
    config, kubeconfig = operated[1]
    assert (config.interval, config.namespaces, kubeconfig) == (15.0, ("from-file",), None)


def test_a_log_line_is_one_json_object_with_fields_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    configure(json=True, debug=False)
    logging.getLogger("servingpool.reconcile").info("scale up 2 -> 4", extra={"pool": "prod/chat", "to": 4})
    logging.getLogger("kopf.objects").info("Handler 'handler' succeeded.")
    try:
        int("broken")
    except ValueError:
        logging.getLogger("servingpool").exception("a pool's turn failed")
    line, failed = map(json.loads, capsys.readouterr().err.splitlines())
    told = {"level": "INFO", "logger": "servingpool.reconcile", "message": "scale up 2 -> 4", "pool": "prod/chat"}
    assert told.items() <= line.items()
    assert line["to"] == 4
    assert "ValueError: invalid literal" in failed["exc_info"]


POOLS = "https://10.0.0.1/apis/servingpool.dev/v1alpha1/servingpools"


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ("404 page\nnot found", "404 page not found"),
        ({"kind": "Status", "message": "the server could not find it"}, "the server could not find it"),
        (None, "APINotFoundError"),
    ],
)
def test_the_last_words_of_the_operator_name_the_request_that_failed(payload: object, text: str) -> None:
    request = RequestInfo(URL(POOLS), "GET", CIMultiDictProxy(CIMultiDict()), URL(POOLS))
    error = APINotFoundError(payload, status=404, headers={})  # type: ignore[arg-type]
    error.__cause__ = ClientResponseError(request, ())
    assert error_text(error) == f"{text} (GET {POOLS})"
