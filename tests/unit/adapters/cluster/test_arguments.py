"""What is read of a container's command line."""

from __future__ import annotations

import math
from typing import Any

import pytest

from servingpool.adapters.cluster.arguments import batch_limit, option


@pytest.mark.parametrize(
    "container",
    [
        {"args": ["--max-num-seqs=8"]},
        {"args": ["--max-num-seqs", "8"]},
        {"args": ["--max_num_seqs", "8"]},
        {"command": ["sh", "-c", "exec vllm serve m --max-num-seqs 8 # not more"]},
        {"args": ["--max-num-seqs=$(SEQS)"], "env": [{"name": "SEQS", "value": "8"}]},
        {"args": ["--max-num-seqs=64", "--max-num-seqs=8"]},
        {"args": ["--max-running-requests", "8"]},
        {"args": ["--max_batch_size", "8"]},
        {"command": ["/opt/llama-server"], "args": ["-np", "8"]},
        {"image": "ollama/ollama:0.17.4", "env": [{"name": "OLLAMA_NUM_PARALLEL", "value": "8"}]},
        {"command": ["/opt/ollama", "serve"], "env": [{"name": "OLLAMA_NUM_PARALLEL", "value": "8"}]},
    ],
)
def test_engines_say_in_their_own_ways_that_they_run_eight_requests_at_a_time(container: dict[str, Any]) -> None:
    assert batch_limit([{"image": "sidecar"}, container]) == 8.0


@pytest.mark.parametrize(
    "container",
    [
        {},
        {"args": ["--max-num-seqs"]},
        {"args": ["--max-num-seqs=auto"]},
        {"args": ["--max-num-seqs=0"]},
        {"args": [f"--max-num-seqs={'9' * 5_000}"]},
        {"args": ["--max-num-seqs=$(SEQS)"], "env": [{"name": "SEQS", "valueFrom": {"configMapKeyRef": {}}}]},
        {"args": ["--max-num-seqs=8", "--data-parallel-size=2"]},
        {"image": "fetch-model", "args": ["--parallel", "8"]},
        {"image": "ollama/ollama", "env": [{"name": "OLLAMA_NUM_PARALLEL", "valueFrom": {"configMapKeyRef": {}}}]},
        {"image": "ollama/ollama", "envFrom": [{"configMapRef": {"name": "settings"}}]},
        {"image": "ollama-mirror.example.com/vllm/vllm-openai:v0.11.0"},
    ],
)
def test_what_arguments_do_not_tell_is_no_limit(container: dict[str, Any]) -> None:
    assert batch_limit([container]) == math.inf


def test_ollama_runs_one_request_at_a_time_where_nothing_is_set() -> None:
    assert batch_limit([{"image": "ollama/ollama:0.17.4"}]) == 1.0


def test_an_option_without_a_value_is_not_the_next_ones() -> None:
    assert option(["--config"], "--config") == ""
    assert option(["--other=1"], "--config") is None
