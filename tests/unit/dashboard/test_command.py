"""`servingpool dashboard`: what it refuses, and that it serves on this machine alone."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from servingpool.cli.main import app

CONTEXT = {"name": "c", "context": {"cluster": "c", "user": "u"}}


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    """Of a cluster that is not there."""
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    parts = {"clusters": [cluster], "users": [{"name": "u", "user": {}}], "contexts": [CONTEXT], "current-context": "c"}
    file = tmp_path / "config"
    file.write_text(json.dumps(parts))
    return file


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["dashboard", *arguments])


def test_what_is_wrong_is_said_at_the_start(kubeconfig: Path) -> None:
    unlinked = run("--kubeconfig", str(kubeconfig), "--grafana", "javascript:alert(1)")
    assert (unlinked.exit_code, "--grafana must be http:// or https://" in unlinked.stderr) == (2, True)
    unmatched = run("--kubeconfig", str(kubeconfig), "--match", "eu")
    assert (unmatched.exit_code, "--match must be LABEL=VALUE, got 'eu'" in unmatched.stderr) == (2, True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        used = run("--kubeconfig", str(kubeconfig), "--port", str(port))
    assert (used.exit_code, f"Cannot listen on 127.0.0.1:{port}" in used.stderr) == (2, True)


def test_it_serves_without_a_cluster_and_stops_on_ctrl_c(kubeconfig: Path) -> None:
    command = [sys.executable, "-m", "servingpool.cli.main", "dashboard", "--port=0", f"--kubeconfig={kubeconfig}"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}
    ) as served:
        assert served.stdout is not None
        said = served.stdout.readline()
        found = re.search(r"http://(127\.0\.0\.1:\d+)", said)
        assert found is not None, said
        with urllib.request.urlopen(found[0]) as answer:
            assert "All pools" in answer.read().decode()
        request = urllib.request.Request(found[0], headers={"Host": "evil.example"})
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request)
        refused.value.close()
        assert refused.value.code == 421
        assert served.stderr is not None
        assert served.stderr.readline().startswith("Cannot look for Prometheus (no --prometheus given): ")
        assert served.stderr.readline().startswith("The pools cannot be read: ")
        served.send_signal(signal.SIGINT)
        assert served.wait(60) == 0


def test_the_pages_are_told_which_cluster_and_which_user_commands_are_to_name(
    kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[dict[str, object]] = []
    monkeypatch.setattr("servingpool_dashboard.command.run", lambda *_, **given: served.append(given))
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    run("--as", "ann", "--context", "c")
    assert served[0]["where"] == ["--context", "c", "--kubeconfig", str(kubeconfig), "--as", "ann"]
