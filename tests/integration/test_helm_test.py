"""The part of `helm test` that asks Prometheus: its very command, with the release's own configuration."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from servingpool_lab.control_plane import free_ports
from servingpool_lab.prometheus import Prometheus

CHART = Path(__file__).parents[2] / "charts" / "servingpool-operator"
RELEASE = "servingpool-operator"
CONFIG = "/etc/servingpool/config.yaml"

Check = Callable[..., "subprocess.CompletedProcess[str]"]

pytestmark = pytest.mark.timeout(120, func_only=True)


@pytest.fixture
def check(binaries: dict[str, Path], tmp_path: Path) -> Check:
    """Runs what the test pod would run in a release with these backends, by name and URL."""

    def run(**urls: str) -> subprocess.CompletedProcess[str]:
        values = tmp_path / "values.yaml"
        values.write_text(yaml.safe_dump({"backends": [{"name": name, "url": url} for name, url in urls.items()]}))
        command: list[str | Path] = [binaries["helm"], "template", RELEASE, CHART, f"--values={values}"]
        rendered = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        objects = {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(rendered) if each}
        config = tmp_path / "config.yaml"
        config.write_text(objects["ConfigMap", RELEASE]["data"]["config.yaml"])
        arguments = container(objects)["args"]
        assert f"--config={CONFIG}" in arguments, "the file that the ConfigMap is mounted as"
        words = [argument.replace(CONFIG, str(config)) for argument in arguments]
        program = [sys.executable, "-m", "servingpool.cli.main"]  # the image's entry point
        return subprocess.run([*program, *words], capture_output=True, text=True, check=False)

    return run


def container(objects: dict[tuple[str, str], dict[str, Any]]) -> dict[str, Any]:
    pod = objects["Pod", f"{RELEASE}-test-prometheus"]
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    [found] = pod["spec"]["containers"]
    return dict(found)


def test_it_passes_where_prometheus_answers(prometheus: Prometheus, check: Check) -> None:
    done = check(default=prometheus.url)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"Prometheus backend 'default' answers. URL: {prometheus.url}\n"


@pytest.mark.parametrize("wrong", ["nobody listens", "another path"])
def test_it_fails_with_a_wrong_url_and_names_the_backend_the_url_and_the_error(
    prometheus: Prometheus, check: Check, wrong: str
) -> None:
    nobody = f"http://127.0.0.1:{free_ports(1)[0]}"
    url, said = {
        "nobody listens": (nobody, "cannot be reached"),
        "another path": (f"{prometheus.url}/thanos", "answered HTTP 404"),
    }[wrong]
    done = check(right=prometheus.url, wrong=url)
    assert done.returncode == 1
    assert f"Prometheus backend 'right' answers. URL: {prometheus.url}\n" in done.stdout
    assert f"Prometheus backend 'wrong' {said}. URL: {url}. " in done.stderr
    assert "Traceback" not in done.stderr
