"""What is read of a pod template about its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from servingpool.adapters.cluster.drain import (
    ARGUMENTS_ELSEWHERE,
    ARGUMENTS_UNSEEN,
    HOOK_UNCLEAR,
    Drain,
    read_drain,
)
from servingpool.decision.observation import Reading

ROOT = Path(__file__).parents[4]


def engine(**more: Any) -> dict[str, Any]:
    return {"name": "vllm", "image": "vllm/vllm-openai:v0.32.0", **more}


def drain(*containers: dict[str, Any], **spec: Any) -> Drain:
    return read_drain({"containers": list(containers), **spec})


def test_the_sample_says_all() -> None:
    manifests = yaml.safe_load_all((ROOT / "deploy/samples/vllm-deployment.yaml").read_text())
    [deployment] = [each for each in manifests if each["kind"] == "Deployment"]
    assert read_drain(deployment["spec"]["template"]["spec"]) == Drain(150.0, 15.0, 120.0)


def test_a_template_that_says_nothing_has_kubernetes_and_vllms_defaults() -> None:
    assert drain(engine()) == Drain(grace=30.0, pre_stop=0.0, shutdown_timeout=0.0)
    assert read_drain({}) == Drain(30.0, 0.0, ARGUMENTS_UNSEEN)


@pytest.mark.parametrize(
    ("hook", "seconds"),
    [
        ({"sleep": {"seconds": 15}}, 15.0),
        ({"exec": {"command": ["sleep", "15"]}}, 15.0),
        ({"exec": {"command": ["/bin/sleep", "0.5m"]}}, 30.0),
        ({"exec": {"command": ["sh", "-c", "sleep 15"]}}, 15.0),
        ({"exec": {"command": ["/bin/bash", "-c", "echo bye; sleep 15; kill 1"]}}, 15.0),
        ({"exec": {"command": ["sh", "-c", "sleep $WAIT"]}}, HOOK_UNCLEAR),
        ({"exec": {"command": ["sh", "-c", "while busy; do sleep 1; done"]}}, HOOK_UNCLEAR),
        ({"exec": {"command": ["sh", "-c", "it's not closed"]}}, HOOK_UNCLEAR),
        ({"exec": {"command": ["sleep"]}}, HOOK_UNCLEAR),
        ({"exec": {"command": ["/drain.sh"]}}, HOOK_UNCLEAR),
        ({"httpGet": {"path": "/drain", "port": 8000}}, HOOK_UNCLEAR),
        ({}, 0.0),
    ],
)
def test_how_long_the_pre_stop_hook_takes(hook: dict[str, Any], seconds: Reading) -> None:
    assert drain(engine(lifecycle={"preStop": hook})).pre_stop == seconds


@pytest.mark.parametrize(
    ("container", "seconds"),
    [
        (engine(args=["--shutdown-timeout=120"]), 120.0),
        (engine(args=["--shutdown-timeout", "120"]), 120.0),
        (engine(args=["--shutdown_timeout=120"]), 120.0),
        (engine(args=["--shutdown-timeout=120", "--shutdown-timeout=60"]), 60.0),
        (engine(args=["--model=llama", "--port=8000"]), 0.0),
        (engine(args=["--shutdown-timeout=0"]), 0.0),
        (engine(args=["--shutdown-timeout"]), ARGUMENTS_ELSEWHERE),
        (engine(args=["--shutdown-timeout=2m"]), ARGUMENTS_ELSEWHERE),
        (engine(args=["--shutdown-timeout=$(DRAIN)"], env=[{"name": "DRAIN", "value": "90"}]), 90.0),
        (engine(args=["--shutdown-timeout=$(DRAIN)"], env=[{"name": "DRAIN", "valueFrom": {}}]), ARGUMENTS_ELSEWHERE),
        (engine(args=["--config=/etc/vllm.yaml"]), ARGUMENTS_ELSEWHERE),
        (engine(args=["$(EXTRA)"]), ARGUMENTS_ELSEWHERE),
        (engine(image="mine:1", command=["vllm", "serve", "llama"], args=["--shutdown-timeout=120"]), 120.0),
        (engine(image="mine:1", command=["sh", "-c", "exec vllm serve llama --shutdown-timeout 120"]), 120.0),
        (engine(image="mine:1", command=["/bin/sh", "-c"], args=["pip list\nvllm serve llama # --config"]), 0.0),
        (engine(image="mine:1", command=["python3", "-m", "vllm.entrypoints.openai.api_server"]), 0.0),
        (engine(image="mine:1", command=["/start.sh"]), ARGUMENTS_UNSEEN),
        (engine(command=["/start.sh"]), ARGUMENTS_UNSEEN),
        (engine(image="mine:1"), ARGUMENTS_UNSEEN),
        (engine(image="mine:1", command=["/start.sh", "--shutdown-timeout=120"]), 120.0),
    ],
)
def test_how_long_vllm_gives_to_what_is_running(container: dict[str, Any], seconds: Reading) -> None:
    assert drain(container).shutdown_timeout == seconds


def test_the_engine_is_told_from_what_stands_beside_it() -> None:
    proxy = {"name": "proxy", "image": "envoy:1", "lifecycle": {"preStop": {"sleep": {"seconds": 60}}}}
    assert drain(proxy, engine(args=["--shutdown-timeout=120"])) == Drain(30.0, 0.0, 120.0)


def test_a_thousand_deployments_of_one_template_share_what_was_read() -> None:
    assert drain(engine()) is drain(engine(name="other"))
