"""The operator's own types judge every case as the API server does (tests/integration/test_admission.py)."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from servingpool.api.serving_pool import ServingPool, problems

CASES = yaml.load((Path(__file__).parents[2] / "integration/cases/serving_pool.yaml").read_text(), yaml.CSafeLoader)


def pool(spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "servingpool.dev/v1alpha1", "kind": "ServingPool", "metadata": {"name": "chat"}, "spec": spec}


@pytest.mark.parametrize("case", CASES["accepted"], ids=lambda case: case["name"])
def test_accepts(case: dict[str, Any]) -> None:
    assert ServingPool.read(pool(case["spec"])).spec.model == case["spec"]["model"]


@pytest.mark.parametrize("case", CASES["rejected"], ids=lambda case: case["name"])
def test_rejects_and_says_why(case: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as refusal:
        ServingPool.read(pool(case["spec"]))
    assert str(case.get("says", case.get("operator"))) in problems(refusal.value)


def test_tells_every_problem_at_once() -> None:
    spec = {"model": "", "slo": {}, "targets": [{"name": "llama", "max": 0}], "mode": "auto"}
    with pytest.raises(ValidationError) as refusal:
        ServingPool.read(pool(spec))
    said = problems(refusal.value)
    for path in ("spec.model: ", "spec.slo: ", "spec.targets[0].max: ", "spec.mode: "):
        assert path in said
