"""A real vLLM with a model of random weights, started on this machine, and clients of it."""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

VOCABULARY = 128_256
MODEL: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCABULARY,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 131_072,
    "rope_theta": 500_000.0,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "bfloat16",
}
"""The published shape of Llama-3.1-8B."""
OPTIONS = (
    *("--served-model-name", "m", "--load-format", "dummy", "--dtype", "bfloat16", "--seed", "0"),
    # The limits of the engine model's profile, which are those of vLLM's API server on this GPU in 2025.
    *("--max-num-seqs", "256", "--max-num-batched-tokens", "8192", "--max-model-len", "32768"),
)
START_SECONDS = 300.0


class Engine:
    """One vLLM process. `settings` are added to its environment."""

    def __init__(self, work: Path, port: int, *options: str, settings: dict[str, str] | None = None) -> None:
        write_model(work / "model")
        self.url = f"http://127.0.0.1:{port}"
        self.options = [*OPTIONS, *options]
        self._log = (work / f"vllm-{port}.log").open("wb")
        self._begun = time.monotonic()
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(work / "model")),
                *(*self.options, "--host", "127.0.0.1", "--port", str(port)),
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=os.environ | {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"} | (settings or {}),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.terminate()
        self._process.wait(60)
        self._log.close()

    def wait_until_ready(self) -> float:
        """Seconds from its start until it serves.

        Raises:
            RuntimeError: it ended, or took too long.
        """
        while time.monotonic() - self._begun < START_SECONDS:
            if self._process.poll() is not None:
                raise RuntimeError(f"vLLM ended with {self._process.returncode}: {self._log.name} says why")
            try:
                self.fetched("/health")
            except OSError:
                time.sleep(0.5)
            else:
                return time.monotonic() - self._begun
        raise RuntimeError(f"vLLM does not serve after {START_SECONDS:.0f} s")

    def fetched(self, path: str) -> str:
        """What it answers to a GET."""
        with urllib.request.urlopen(self.url + path, timeout=30) as response:
            return str(response.read().decode())

    def page(self) -> str:
        """What the engine itself tells of its metrics; not Python's and the API server's."""
        lines = self.fetched("/metrics").splitlines()
        return "\n".join(line for line in lines if line.startswith("vllm:") and "_created" not in line)

    def about(self) -> dict[str, Any]:
        """The machine and the versions."""
        query = [
            shutil.which("nvidia-smi") or "true",
            "--query-gpu=name,driver_version,clocks.max.sm",
            "--format=csv,noheader",
        ]
        return {
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "gpu": subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip(),
            "vllm": json.loads(self.fetched("/version"))["version"],
            "cpus": os.cpu_count(),
            "options": self.options,
        }


def write_model(directory: Path) -> None:
    """A configuration, and a tokenizer in which each word is a token."""
    directory.mkdir(parents=True, exist_ok=True)
    words = {f"w{number}": number for number in range(VOCABULARY)}
    tokenizer: dict[str, Any] = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "w0"},
    }
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "w0", "bos_token": "w1", "eos_token": "w2"}
    files = {"config.json": MODEL, "tokenizer.json": tokenizer, "tokenizer_config.json": names}
    for name, content in files.items():
        (directory / name).write_text(json.dumps(content))


async def complete(
    session: aiohttp.ClientSession, url: str, prompt: Sequence[int], output: int, **more: Any
) -> tuple[list[float], dict[str, Any]]:
    """Seconds from sending to each token, and the last reply. Not streamed (`stream=False`): to the end alone."""
    body: dict[str, Any] = {
        "model": "m",
        "prompt": list(prompt),
        "max_tokens": output,
        "ignore_eos": True,
        "stream": True,
        # The number of tokens so far comes with each event: an event is not always one token.
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        **more,
    }
    if not body["stream"]:
        del body["stream_options"]
    sent = time.perf_counter()
    times: list[float] = []
    reply: dict[str, Any] = {}
    async with session.post(f"{url}/v1/completions", json=body) as response:
        response.raise_for_status()
        if not body["stream"]:
            return [time.perf_counter() - sent], await response.json()
        async for line in response.content:
            data = line.strip().removeprefix(b"data: ")
            if data and data != b"[DONE]":
                reply = json.loads(data)
                times += [time.perf_counter() - sent] * (reply["usage"]["completion_tokens"] - len(times))
    return times, reply


def client() -> aiohttp.ClientSession:
    """Without a limit of connections: the queue is to be in the engine."""
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=600), connector=aiohttp.TCPConnector(limit=0))


def tokens(draw: random.Random, length: int) -> list[int]:
    """A prompt that nobody sent before: the prefix cache has nothing of it."""
    return [draw.randrange(3, VOCABULARY) for _ in range(length)]


def arguments(doc: str | None, work: str) -> argparse.Namespace:
    """Of a script that measures: `out` and `work`."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the record, gzipped JSON")
    parser.add_argument("--work", type=Path, default=Path(work), help="model and logs")
    return parser.parse_args()


def save(record: Mapping[str, Any], path: Path) -> None:
    """After each phase: what was measured is there if the next one fails."""
    with gzip.open(path, "wt") as file:
        json.dump(record, file)
    print(f"{time.strftime('%X')} {', '.join(record)}", flush=True)
