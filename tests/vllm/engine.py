"""vLLM's API server with a small model of random weights, made here: nothing is fetched from a model hub."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType
from typing import Self

from servingpool_lab.control_plane import free_ports
from servingpool_lab.processes import SupervisedProcess, http_ready, open_local

MODEL = "tiny"
VOCABULARY = 1024
SPECIAL = ("<unk>", "<s>", "</s>")
MAX_NUM_SEQS = 4
"""So few that a burst queues, also on a machine that is fast."""
MAX_UNFINISHED = 24
"""Requests beyond which the engine turns more away: queued and running ones."""
KV_CACHE_BYTES = 256 * 2**20
"""8,000 tokens of this model: four of the longest requests fit, so none is preempted."""
START_SECONDS = 600.0
"""20 s on two idle cores; a machine that compiles Python files for the first time takes minutes."""

# Eight layers of 512 take 10 to 20 ms a token on one core: slow enough that clocks and transport do not matter, and
# around a bucket's bound (25 ms). Four of 64 take 3 ms, of which most is Python.
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCABULARY,
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "max_position_embeddings": 2048,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "float32",
}


class Vllm:
    """One engine, one process tree."""

    def __init__(
        self, python: Path, directory: Path, *options: str, environment: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """With these further options and settings of the environment."""
        model = directory / "model"
        write_model(model)
        self.address = f"127.0.0.1:{free_ports(1)[0]}"
        self.process = SupervisedProcess(
            "vllm",
            [
                *(python, "-m", "vllm.entrypoints.openai.api_server"),
                *options_of(MODEL, MAX_NUM_SEQS),
                *("--model", model, "--max-num-queued-reqs", str(MAX_UNFINISHED)),
                # The client is told how much of its prompt was cached, and can compare.
                "--enable-prompt-tokens-details",
                *("--host", "127.0.0.1", "--port", self.address.rpartition(":")[2]),
                *options,
            ],
            directory / "vllm.log",
            ready=http_ready(f"{self.url}/health"),
            ready_timeout_seconds=START_SECONDS,
            stop_timeout_seconds=60.0,
            environment={**os.environ, **ENVIRONMENT, **environment},
        )

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def start(self) -> Self:
        self.process.start().wait_ready()
        return self

    def stop(self) -> None:
        self.process.stop()

    def page(self) -> str:
        """Its metrics, as Prometheus would be told."""
        return self._get("/metrics")

    @property
    def version(self) -> str:
        return str(json.loads(self._get("/version"))["version"])

    def _get(self, path: str) -> str:
        with open_local(self.url + path, 10.0) as response:
            return response.read().decode()


ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    # One core for the engine: the client, Prometheus and the operator's part need the other one.
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}


def options_of(name: str, max_num_seqs: int) -> list[str]:
    """Command-line options of any engine of this model, under this name."""
    return [
        f"--served-model-name={name}",
        *("--load-format=dummy", "--dtype=float32", "--enforce-eager", "--seed=0", "--max-model-len=2048"),
        f"--max-num-seqs={max_num_seqs}",
        f"--kv-cache-memory-bytes={KV_CACHE_BYTES}",
    ]


def write_model(directory: Path) -> None:
    """A configuration, and a tokenizer in which each word is a token. Weights are random: `--load-format dummy`."""
    directory.mkdir(parents=True)
    words = [*SPECIAL, *(f"w{number}" for number in range(len(SPECIAL), VOCABULARY))]
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": number, "content": word, "special": True}
            | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
            for number, word in enumerate(SPECIAL)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {word: number for number, word in enumerate(words)},
            "unk_token": SPECIAL[0],
        },
    }
    names = dict(zip(("unk_token", "bos_token", "eos_token"), SPECIAL, strict=True))
    files = {
        "config.json": CONFIG,
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", **names},
    }
    for name, content in files.items():
        (directory / name).write_text(json.dumps(content))


StartVllm = Callable[..., AbstractContextManager[Vllm]]
"""Starts an engine with these further options, and stops it at the end."""
