"""The CRD GPUBudget before a real API server: what it accepts, what it refuses, and in which words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from servingpool.api.gpu_budget import GPUBudget
from servingpool.api.serving_pool import problems
from servingpool_lab.api_client import ApiError
from servingpool_lab.control_plane import ControlPlane

ROOT = Path(__file__).parents[2]
CASES = yaml.safe_load((Path(__file__).parent / "cases/gpu_budget.yaml").read_text())
SAMPLE = yaml.safe_load((ROOT / "deploy/samples/gpubudget.yaml").read_text())
PATH = "/apis/servingpool.dev/v1alpha1/gpubudgets?dryRun=All"


@pytest.fixture(scope="module", autouse=True)
def crd(control_plane: ControlPlane) -> dict[str, Any]:
    [applied] = control_plane.apply(ROOT / "crds/gpubudgets.servingpool.dev.yaml")
    return control_plane.client.get(control_plane.client.path_of(applied))


def manifest(spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "servingpool.dev/v1alpha1", "kind": "GPUBudget", "metadata": {"name": "h100"}, "spec": spec}


def test_the_crd_is_established_and_cluster_scoped(crd: dict[str, Any]) -> None:
    conditions = {condition["type"]: condition["status"] for condition in crd["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    assert (crd["spec"]["scope"], crd["status"]["acceptedNames"]["shortNames"]) == ("Cluster", ["gb"])


@pytest.mark.parametrize("spec", [*CASES["accepted"], SAMPLE["spec"]])
def test_accepts_with_the_types_own_defaults(control_plane: ControlPlane, spec: dict[str, Any]) -> None:
    stored = control_plane.client.create(f"{PATH}&fieldValidation=Strict", manifest(spec))
    assert GPUBudget.read(stored).spec == GPUBudget.read(manifest(spec)).spec


@pytest.mark.parametrize("case", CASES["rejected"], ids=lambda case: str(case["spec"]))
def test_both_reject_and_say_the_range_and_the_value(control_plane: ControlPlane, case: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as refused:
        control_plane.client.create(PATH, manifest(case["spec"]))
    path, _, said = case["says"].partition(": ")
    assert len(re.findall(r"spec[\w.\[\]]*: Invalid value", str(refused.value))) == 1, "one mistake is one error"
    assert re.search(rf"{re.escape(path)}: Invalid value: (.*: )?{re.escape(said)}", str(refused.value))
    with pytest.raises(ValidationError) as wrong:
        GPUBudget.read(manifest(case["spec"]))
    assert problems(wrong.value) == case.get("operator", case["says"])
