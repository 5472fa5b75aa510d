"""The chart, pushed into a registry on this machine and installed from there."""

from __future__ import annotations

import hashlib
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from servingpool import __version__
from servingpool.api.serving_pool import ServingPool
from servingpool_lab.binaries import ensure_binaries

from .conftest import DIST, ROOT

PACKAGE = DIST / f"servingpool-operator-{__version__}.tgz"
VALUES = ("--set=image.repository=servingpool-operator", "--set=backends[0].url=http://prometheus.monitoring:9090")


def helm(*arguments: str | Path) -> str:
    done = subprocess.run([ensure_binaries("helm")["helm"], *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of a registry that is empty at first."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = "127.0.0.1:{1}".format(*free.getsockname())
    crane = ensure_binaries("crane")["crane"]
    log = (tmp_path_factory.mktemp("registry") / "log").open("w")
    process = subprocess.Popen([crane, "registry", "serve", f"--address={address}"], stdout=log, stderr=log)
    try:
        subprocess.run(  # it answers
            [crane, "catalog", "--insecure", address], check=False, capture_output=True, timeout=30
        )
        yield address
    finally:
        process.terminate()
        process.wait(10)
        log.close()


@pytest.fixture(scope="module")
def pushed(registry: str) -> str:
    """The chart's address in the registry."""
    said = helm("push", "--plain-http", PACKAGE, f"oci://{registry}/charts")
    assert "Digest: sha256:" in said
    return f"oci://{registry}/charts/servingpool-operator"


def test_what_comes_back_from_the_registry_is_what_was_packed(pushed: str, tmp_path: Path) -> None:
    helm("pull", "--plain-http", pushed, "--version", __version__, "--destination", tmp_path)
    sums = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (PACKAGE, tmp_path / PACKAGE.name)]
    assert sums[0] == sums[1]


def test_the_chart_renders_from_the_registry_and_names_the_image_of_its_version(pushed: str) -> None:
    text = helm("template", "servingpool-operator", "--plain-http", pushed, "--version", __version__, *VALUES)
    objects = [each for each in yaml.safe_load_all(text.partition("---")[2]) if each]
    [deployment] = [each for each in objects if each["kind"] == "Deployment"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"].endswith(f"servingpool-operator:{__version__}")
    assert {"CustomResourceDefinition", "ServiceAccount", "ConfigMap"} <= {each["kind"] for each in objects}


def test_artifact_hub_finds_all_that_it_shows(pushed: str) -> None:
    said = helm("show", "chart", "--plain-http", pushed, "--version", __version__)
    chart = yaml.safe_load(said[said.index("annotations:") :])
    assert chart["appVersion"] == chart["version"] == __version__
    notes = {key.removeprefix("artifacthub.io/"): yaml.safe_load(text) for key, text in chart["annotations"].items()}
    assert [each["image"] for each in notes["images"]] == [f"servingpool-operator:{__version__}"]
    crds = [yaml.safe_load(path.read_text()) for path in sorted((ROOT / "crds").glob("*.yaml"), reverse=True)]
    assert [(each["kind"], each["version"], each["name"]) for each in notes["crds"]] == [
        (each["spec"]["names"]["kind"], each["spec"]["versions"][-1]["name"], each["metadata"]["name"]) for each in crds
    ]
    assert [ServingPool.read(each).metadata.name for each in notes["crdsExamples"]] == ["llama-70b"]
    assert {each["kind"] for each in notes["changes"]} <= {"added", "changed", "fixed", "removed", "security"}
