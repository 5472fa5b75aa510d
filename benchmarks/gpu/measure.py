"""What one real vLLM on one real GPU does: step times, and conversations at several rates.

On a machine with a GPU, in a Python that has vLLM and aiohttp: `python benchmarks/gpu/measure.py --out record.json.gz`
(6 minutes). The model has the shape of Llama-3.1-8B and random weights, for step times do not depend on them; nothing
is fetched. `python benchmarks/real_gpu.py` sets a record beside the engine model and what the operator reads.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import gzip
import json
import os
import random
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp

PORT = 8123
URL = f"http://127.0.0.1:{PORT}"
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
PROMPTS = (512, 1024, 2048, 4096, 8192)
ALONE = 7
"""Prompts of each length."""
DECODES = ((1, 1024), (8, 1024), (32, 1024), (64, 1024), (128, 1024), (256, 1024), (64, 4096), (16, 16_384))
"""Requests that decode together, and the tokens that each has in the KV cache in the mean of the measured steps."""
STEPS = 128
RATES = (8, 14, 18, 22, 26)
"""Requests/s. The engine model holds TTFT 1 s and TPOT 40 ms for 95% up to 22 or so."""
STAGE_SECONDS = 40.0
CLIENTS = 4
"""Processes that send and listen: one could not follow 6,000 tokens a second and measure."""
TRACE = Path(__file__).parents[2] / "simulation" / "servingpool_simulation" / "data" / "azure2023_conv.csv.gz"


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


def fetched(path: str) -> str:
    """A page of the engine."""
    with urllib.request.urlopen(URL + path, timeout=30) as response:
        return str(response.read().decode())


def wait_until_ready(engine: subprocess.Popen[bytes]) -> float:
    """Seconds until it serves.

    Raises:
        RuntimeError: it ended, or took too long.
    """
    begin = time.monotonic()
    while time.monotonic() - begin < START_SECONDS:
        if engine.poll() is not None:
            raise RuntimeError(f"vLLM ended with {engine.returncode}")
        try:
            fetched("/health")
        except OSError:
            time.sleep(0.5)
        else:
            return time.monotonic() - begin
    raise RuntimeError(f"vLLM does not serve after {START_SECONDS:.0f} s")


async def complete(
    session: aiohttp.ClientSession, prompt: Sequence[int], output: int, *, stream: bool = True
) -> list[float]:
    """Seconds from sending to each token; to the end alone where the answer is not streamed."""
    body: dict[str, Any] = {"model": "m", "prompt": list(prompt), "max_tokens": output, "ignore_eos": True}
    if stream:
        # The number of tokens so far comes with each event: an event is not always one token.
        body |= {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    sent = time.perf_counter()
    times: list[float] = []
    async with session.post(f"{URL}/v1/completions", json=body) as response:
        response.raise_for_status()
        if not stream:
            await response.read()
            return [time.perf_counter() - sent]
        async for line in response.content:
            data = line.strip().removeprefix(b"data: ")
            if data and data != b"[DONE]":
                done = json.loads(data)["usage"]["completion_tokens"]
                times += [time.perf_counter() - sent] * (done - len(times))
    return times


def client() -> aiohttp.ClientSession:
    """Without a limit of connections: the queue is to be in the engine."""
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=600), connector=aiohttp.TCPConnector(limit=0))


def tokens(draw: random.Random, length: int) -> list[int]:
    """A prompt that nobody sent before: the prefix cache has nothing of it."""
    return [draw.randrange(3, VOCABULARY) for _ in range(length)]


def count_and_sum(page: str, name: str) -> tuple[float, float]:
    """What a histogram's page says of how many observations there were, and of their sum."""
    found = {
        part: sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(f"{name}_{part}"))
        for part in ("count", "sum")
    }
    return found["count"], found["sum"]


async def prefills(draw: random.Random) -> list[dict[str, Any]]:
    """Prompts alone: the client's TTFT, and the engine's."""
    rows = []
    async with client() as session:
        for _ in range(3):
            await complete(session, tokens(draw, 512), 4)
        for length in PROMPTS:
            before = count_and_sum(fetched("/metrics"), "vllm:time_to_first_token_seconds")
            seen = [(await complete(session, tokens(draw, length), 1))[0] for _ in range(ALONE)]
            after = count_and_sum(fetched("/metrics"), "vllm:time_to_first_token_seconds")
            engine = (after[1] - before[1]) / (after[0] - before[0])
            rows.append({"tokens": length, "client_seconds": seen, "engine_mean_seconds": engine})
    return rows


async def decodes(draw: random.Random) -> list[dict[str, Any]]:
    """Requests that decode together. The last one sent is listened to: when it begins, all others decode."""
    rows = []
    async with client() as session:
        for batch, context in DECODES:
            prompt = context - STEPS // 2
            # The others must go on until the last one is done: a token for each step that the prompts of the rest take.
            longer = STEPS + 64 + batch * prompt // 8192
            others = [
                asyncio.create_task(complete(session, tokens(draw, prompt), longer, stream=False))
                for _ in range(batch - 1)
            ]
            await asyncio.sleep(0.05 + 0.006 * batch)  # until the engine has them all; their prompts take longer
            times = await complete(session, tokens(draw, prompt), STEPS)
            still = sum(not task.done() for task in others)
            await asyncio.gather(*others)
            gaps = [round(later - earlier, 6) for earlier, later in pairwise(times)]
            rows.append({"batch": batch, "context": context, "others_at_end": still, "gap_seconds": gaps})
    return rows


Ask = tuple[float, int, int]
"""When (seconds from the stage's begin), tokens in, tokens out."""


def conversations(rate: float, seed: int) -> list[Ask]:
    """Poisson arrivals; the lengths of requests of the Azure conversation trace of 2023, drawn at random."""
    draw = random.Random(seed)
    with gzip.open(TRACE, "rt") as file:
        lengths = [(int(row["prompt_tokens"]), int(row["output_tokens"])) for row in csv.DictReader(file)]
    asks, at = [], draw.expovariate(rate)
    while at < STAGE_SECONDS:
        asks.append((at, *draw.choice(lengths)))
        at += draw.expovariate(rate)
    return asks


def send(asks: Sequence[Ask], begin: float, seed: int) -> list[tuple[float, float]]:
    """One client process's part, open loop: TTFT and end of each request, seconds from its sending."""
    draw = random.Random(seed)
    prompts = [tokens(draw, prompt) for _, prompt, _ in asks]

    async def one(session: aiohttp.ClientSession, ask: Ask, prompt: Sequence[int]) -> tuple[float, float]:
        await asyncio.sleep(max(0.0, begin + ask[0] - time.time()))
        times = await complete(session, prompt, ask[2])
        return times[0], times[-1]

    async def together() -> list[tuple[float, float]]:
        async with client() as session:
            return list(await asyncio.gather(*(one(session, *pair) for pair in zip(asks, prompts, strict=True))))

    return asyncio.run(together())


def page() -> str:
    """What the engine itself tells of its metrics; not Python's and the API server's."""
    lines = fetched("/metrics").splitlines()
    return "\n".join(line for line in lines if line.startswith("vllm:") and "_created" not in line)


def stage(pool: ProcessPoolExecutor, rate: float, seed: int) -> dict[str, Any]:
    """Conversations at one rate, until the last is answered; the engine's page each 5 s, by Unix time."""
    asks = conversations(rate, seed)
    begin = time.time() + 3.0  # prompts are drawn before
    parts = [pool.submit(send, asks[place::CLIENTS], begin, 1000 * seed + place) for place in range(CLIENTS)]
    pages = []
    while not all(part.done() for part in parts):
        pages.append([round(time.time(), 3), page()])
        time.sleep(5.0)
    ended = [part.result() for part in parts]
    requests = [
        [*(round(figure, 6) for figure in (ask[0], *ended[number % CLIENTS][number // CLIENTS])), *ask[1:]]
        for number, ask in enumerate(asks)
    ]
    columns = ["at", "ttft", "end", "prompt", "output"]
    return {"rate": rate, "begin": begin, "columns": columns, "requests": requests, "pages": pages}


def about(engine_options: Iterable[str]) -> dict[str, Any]:
    """The machine and the versions."""
    query = [
        shutil.which("nvidia-smi") or "true",
        "--query-gpu=name,driver_version,clocks.max.sm",
        "--format=csv,noheader",
    ]
    gpu = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    version = json.loads(fetched("/version"))["version"]
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "gpu": gpu,
        "vllm": version,
        "cpus": os.cpu_count(),
        "options": list(engine_options),
        "steps": STEPS,
        "stage_seconds": STAGE_SECONDS,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the record, gzipped JSON")
    parser.add_argument("--work", type=Path, default=Path("/tmp/measured-engine"), help="model and log")
    options = parser.parse_args()
    write_model(options.work / "model")
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(options.work / "model")]
    settings = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    record: dict[str, Any] = {}

    def save() -> None:
        with gzip.open(options.out, "wt") as file:
            json.dump(record, file)
        print(f"{time.strftime('%X')} {', '.join(record)}", flush=True)

    with (options.work / "vllm.log").open("wb") as log, ProcessPoolExecutor(CLIENTS) as pool:
        engine = subprocess.Popen(
            [*command, *OPTIONS, "--host", "127.0.0.1", "--port", str(PORT)],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | settings,
        )
        try:
            record["start_seconds"] = wait_until_ready(engine)
            record["about"] = about(OPTIONS)
            save()
            record["prefill"] = asyncio.run(prefills(random.Random(1)))
            save()
            record["decode"] = asyncio.run(decodes(random.Random(2)))
            save()
            record["stages"] = []
            for seed, rate in enumerate(RATES):
                record["stages"].append(stage(pool, rate, seed))
                save()
        finally:
            engine.terminate()
            engine.wait(60)


if __name__ == "__main__":
    main()
