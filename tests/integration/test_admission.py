"""The CRD before a real API server: what it accepts, what it refuses, and in which words."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from servingpool.api.serving_pool import ServingPool
from servingpool_lab.api_client import ApiError
from servingpool_lab.control_plane import ControlPlane

ROOT = Path(__file__).parents[2]
CRD = ROOT / "crds/servingpools.servingpool.dev.yaml"
BAD_INPUT = ROOT / "docs/records/bad-input.md"
CASES = yaml.load((Path(__file__).parent / "cases/serving_pool.yaml").read_text(), yaml.CSafeLoader)
UNCHECKED = (
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)
ERROR = re.compile(r"(?:^|, )(?:spec|<nil>)[\w.\[\]]*: ")
"""The beginning of an error in the API server's answer."""
UPDATE = "SERVINGPOOL_UPDATE_DOCS"
MERGE = "application/merge-patch+json"


@pytest.fixture(scope="module", autouse=True)
def crd(control_plane: ControlPlane) -> dict[str, Any]:
    [applied] = control_plane.apply(CRD)
    return control_plane.client.get(control_plane.client.path_of(applied))


def pools(namespace: str) -> str:
    return f"/apis/servingpool.dev/v1alpha1/namespaces/{namespace}/servingpools"


def manifest(spec: dict[str, Any], name: str = "chat") -> dict[str, Any]:
    return {"apiVersion": "servingpool.dev/v1alpha1", "kind": "ServingPool", "metadata": {"name": name}, "spec": spec}


def refusal(control_plane: ControlPlane, method: str, path: str, body: dict[str, Any], **options: Any) -> str:
    with pytest.raises(ApiError) as refused:
        control_plane.client.request(method, f"{path}?dryRun=All", body, **options)
    assert refused.value.status == 422
    return str(refused.value)


def assert_said(case: dict[str, Any], message: str) -> None:
    if "server" in case:
        assert case["server"] in message
        return
    path, _, said = case["says"].partition(": ")
    assert re.search(rf"{re.escape(path)}: Invalid value: (.*: )?{re.escape(said)}", message), (case["name"], message)


def test_the_crd_is_established_and_structural(crd: dict[str, Any]) -> None:
    conditions = {condition["type"]: condition["status"] for condition in crd["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    assert crd["status"]["acceptedNames"]["shortNames"] == ["sp"]


def test_accepts_as_the_operator_does(control_plane: ControlPlane) -> None:
    for case in CASES["accepted"]:
        stored = control_plane.client.create(f"{pools('default')}?dryRun=All", manifest(case["spec"]))
        assert ServingPool.read(stored).spec == ServingPool.read(manifest(case["spec"])).spec, case["name"]


def test_an_update_may_change_model_or_target_but_not_both(control_plane: ControlPlane, namespace: str) -> None:
    control_plane.client.create(pools(namespace), manifest(CASES["valid"]))
    path = f"{pools(namespace)}/chat"
    for case in CASES["updates"]["accepted"]:
        control_plane.client.request("PATCH", f"{path}?dryRun=All", {"spec": case["spec"]}, content_type=MERGE)


def test_server_side_defaults_are_the_types_own(control_plane: ControlPlane) -> None:
    stored = control_plane.client.create(f"{pools('default')}?dryRun=All", manifest(CASES["valid"]))
    expected = ServingPool.read(manifest(CASES["valid"])).spec.to_dict()
    del expected["targets"][0]["min"]  # its default depends on the place in the list
    assert stored["spec"] == expected


def test_status_is_a_subresource(control_plane: ControlPlane, namespace: str) -> None:
    client, path = control_plane.client, f"{pools(namespace)}/chat"
    created = client.create(pools(namespace), manifest(CASES["valid"]) | {"status": {"fleet": "1/1/8"}})
    assert "status" not in created
    status: dict[str, Any] = {
        "observedGeneration": 1,
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "SucceededGetScale",
                "message": "",
                "lastTransitionTime": "2026-01-02T03:04:05Z",
            }
        ],
        "fleet": "3/4/8",
        "history": [],
        "throughput": {"generationTokensPerSecond": 4210.5},
        "profile": {"version": 1, "fit": {"gram": [1.5, 0.0]}, "later": {"nested": True}},
        "lastDecision": {
            "at": "2026-01-02T03:04:05Z",
            "replicas": 4,
            "verdict": "ScaleUp",
            "need": 3.4,
            "limits": [{"name": "TooFewReplicas", "before": 0, "after": 1, "reason": "min is 1"}],
            "reason": "because",
            "figures": {"penalty": 7.8, "forForecast": 3.0},
            "candidates": [{"replicas": 3, "misses": 0.02}],
            "warnings": [],
        },
    }
    role = {"replicas": 4, "readyReplicas": 3, "desiredReplicas": 4, "lastDecision": status["lastDecision"]}
    status["roles"] = [{"role": "prefill", **role}, {"role": "decode", **role}]
    client.patch(f"{path}/status", {"status": status, "spec": {"mode": "Paused"}})
    stored = client.get(path)
    assert stored["spec"]["mode"] == "Auto"
    assert stored["metadata"]["generation"] == 1
    assert stored["status"] == status
    assert ServingPool.read(stored).status.to_dict() == status


def test_kubectl_get_answers_at_a_glance(
    control_plane: ControlPlane, namespace: str, binaries: dict[str, Path]
) -> None:
    client, path = control_plane.client, f"{pools(namespace)}/chat"
    client.create(pools(namespace), manifest(CASES["valid"]))
    status = {
        "fleet": "3/4/8",
        "bounds": {"min": 2, "max": 8, "schedule": "peak, launch"},
        "why": "ScaleUp",
        "lastDecision": {"at": "2026-11-01T00:00:00Z", "replicas": 4, "verdict": "ScaleUp", "reason": "more"},
        "queueDepth": 12,
        "attainment": 97.2,
        "throughput": {"generationTokensPerSecond": 4210},
    }
    client.patch(f"{path}/status", {"status": status})
    kubectl: list[str | Path] = [binaries["kubectl"], f"--kubeconfig={control_plane.kubeconfig}"]
    command = [*kubectl, f"--namespace={namespace}", "get", "sp"]
    header, row = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert " ".join(header.split()) == "NAME MODE MODEL READY/DESIRED/MAX TOK/S QUEUE ATTAINMENT WHY DECIDED AGE"
    assert row.split()[:-2] == ["chat", "Auto", "llama", "3/4/8", "4210", "12", "97.2", "ScaleUp"]
    wide = subprocess.run([*command, "-o", "wide"], check=True, capture_output=True, text=True).stdout.splitlines()
    assert wide[0].split()[8:13] == ["DECIDED", "AGE", "MIN", "MAX", "SCHEDULE"]
    assert wide[1].split()[10:14] == ["2", "8", "peak,", "launch"]


def test_rejects_and_says_why_as_the_table_has_it(control_plane: ControlPlane, namespace: str) -> None:
    rows = []
    for case in CASES["rejected"]:
        message = refusal(control_plane, "POST", pools(namespace), manifest(case["spec"]))
        assert_said(case, message)
        # One mistake is one error, but where the API server's own validation has two words on it.
        assert len(ERROR.findall(told(message))) == case.get("errors", 1), (case["name"], message)
        rows.append((case["name"], case["spec"], message))
    control_plane.client.create(pools(namespace), manifest(CASES["valid"]))
    for case in CASES["updates"]["rejected"]:
        body = {"spec": case["spec"]}
        message = refusal(control_plane, "PATCH", f"{pools(namespace)}/chat", body, content_type=MERGE)
        assert_said(case, message)
        rows.append((f"update: {case['name']}", case["spec"], message))
    text = table_of_bad_input(rows)
    if os.environ.get(UPDATE):
        BAD_INPUT.write_text(text)
    assert BAD_INPUT.read_text() == text, f"run this test with {UPDATE}=1"


def table_of_bad_input(rows: list[tuple[str, dict[str, Any], str]]) -> str:
    """Markdown: what is wrong, the part of `spec` that is, and the API server's words."""
    lines = [
        "# What a wrong manifest is told",
        "",
        "Recorded from a real kube-apiserver; the rules are in the CRD, so no webhook runs. Where a value has the wrong",
        f"type, the API server adds: {UNCHECKED}.",
        "The operator judges alike: a pool that got in around admission says so in its condition `Ready`.",
        "",
        f"To record again: `{UPDATE}=1 .venv/bin/python -m pytest tests/integration/test_admission.py`.",
        "",
        "| what is wrong | in `spec` | message |",
        "|---|---|---|",
    ]
    for name, spec, said in rows:
        wrong = min((_beside(CASES[base], spec) for base in ("valid", "roles")), key=len)
        missing = ", ".join(f"no {key}" for key in CASES["valid"] if key not in spec)
        shown = json.dumps(wrong)[1:-1] if wrong else missing
        lines.append(f"| {name} | `{shown}` | `{told(said)}` |")
    return "\n".join(lines) + "\n"


def _beside(valid: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in spec.items() if valid.get(key) != value}


def told(said: str) -> str:
    """The message without the object's name and what the API server adds to any error of type."""
    message = said.partition(" is invalid: ")[2].replace(f", <nil>: Invalid value: null: {UNCHECKED}", "")
    return message.removeprefix("[").removesuffix("]") if message.startswith("[") else message
