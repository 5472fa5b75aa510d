"""deploy/ as kubectl takes it. Its objects are the chart's, as `make verify` holds."""

import subprocess
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"


def test_kustomize_takes_the_folder_as_it_is(binaries: dict[str, Path]) -> None:
    """`kubectl apply -k deploy/`, as the README has it, without a cluster: nothing is left out, nothing is changed."""
    command = [str(binaries["kubectl"]), "kustomize", str(DEPLOY)]
    made = yaml.safe_load_all(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    resources = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())["resources"]
    given = [each for name in resources for each in yaml.safe_load_all((DEPLOY / name).read_text())]
    assert sorted(made, key=named) == sorted(given, key=named)
    assert {path.name for path in DEPLOY.glob("*.yaml")} == {*resources, "kustomization.yaml"}


def named(manifest: dict[str, Any]) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]
