"""What one real vLLM on one real GPU does: step times, and conversations at several rates.

On a machine with a GPU, in a Python that has vLLM and aiohttp: `python benchmarks/gpu/measure.py --out record.json.gz`
(6 minutes). The model has the shape of Llama-3.1-8B and random weights, for step times do not depend on them; nothing
is fetched. `python benchmarks/control/real_gpu.py` sets a record beside the engine model and what the operator reads.
"""

from __future__ import annotations

import asyncio
import csv
import gzip
import random
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
from gpu_engine import Engine, arguments, client, complete, save, tokens

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
TRACE = Path(__file__).parents[2] / "packages/simulation/servingpool_simulation/data/azure2023_conv.csv.gz"


def count_and_sum(page: str, name: str) -> tuple[float, float]:
    """What a histogram's page says of how many observations there were, and of their sum."""
    found = {
        part: sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(f"{name}_{part}"))
        for part in ("count", "sum")
    }
    return found["count"], found["sum"]


async def prefills(engine: Engine, draw: random.Random) -> list[dict[str, Any]]:
    """Prompts alone: the client's TTFT, and the engine's."""
    rows = []
    async with client() as session:
        for _ in range(3):
            await complete(session, engine.url, tokens(draw, 512), 4)
        for length in PROMPTS:
            before = count_and_sum(engine.page(), "vllm:time_to_first_token_seconds")
            seen = [(await complete(session, engine.url, tokens(draw, length), 1))[0][0] for _ in range(ALONE)]
            after = count_and_sum(engine.page(), "vllm:time_to_first_token_seconds")
            mean = (after[1] - before[1]) / (after[0] - before[0])
            rows.append({"tokens": length, "client_seconds": seen, "engine_mean_seconds": mean})
    return rows


async def decodes(engine: Engine, draw: random.Random) -> list[dict[str, Any]]:
    """Requests that decode together. The last one sent is listened to: when it begins, all others decode."""
    rows = []
    async with client() as session:
        for batch, context in DECODES:
            prompt = context - STEPS // 2
            # The others must go on until the last one is done: a token for each step that the prompts of the rest take.
            longer = STEPS + 64 + batch * prompt // 8192
            others = [
                asyncio.create_task(complete(session, engine.url, tokens(draw, prompt), longer, stream=False))
                for _ in range(batch - 1)
            ]
            await asyncio.sleep(0.05 + 0.006 * batch)  # until the engine has them all; their prompts take longer
            times, _ = await complete(session, engine.url, tokens(draw, prompt), STEPS)
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


def send(url: str, asks: Sequence[Ask], begin: float, seed: int) -> list[tuple[float, float]]:
    """One client process's part, open loop: TTFT and end of each request, seconds from its sending."""
    draw = random.Random(seed)
    prompts = [tokens(draw, prompt) for _, prompt, _ in asks]

    async def one(session: aiohttp.ClientSession, ask: Ask, prompt: Sequence[int]) -> tuple[float, float]:
        await asyncio.sleep(max(0.0, begin + ask[0] - time.time()))
        times, _ = await complete(session, url, prompt, ask[2])
        return times[0], times[-1]

    async def together() -> list[tuple[float, float]]:
        async with client() as session:
            return list(await asyncio.gather(*(one(session, *pair) for pair in zip(asks, prompts, strict=True))))

    return asyncio.run(together())


def stage(engine: Engine, pool: ProcessPoolExecutor, rate: float, seed: int) -> dict[str, Any]:
    """Conversations at one rate, until the last is answered; the engine's page each 5 s, by Unix time."""
    asks = conversations(rate, seed)
    begin = time.time() + 3.0  # prompts are drawn before
    seeds = [1000 * seed + place for place in range(CLIENTS)]
    parts = [pool.submit(send, engine.url, asks[one % 1000 :: CLIENTS], begin, one) for one in seeds]
    pages = []
    while not all(part.done() for part in parts):
        pages.append([round(time.time(), 3), engine.page()])
        time.sleep(5.0)
    ended = [part.result() for part in parts]
    requests = [
        [*(round(figure, 6) for figure in (ask[0], *ended[number % CLIENTS][number // CLIENTS])), *ask[1:]]
        for number, ask in enumerate(asks)
    ]
    columns = ["at", "ttft", "end", "prompt", "output"]
    return {"rate": rate, "begin": begin, "columns": columns, "requests": requests, "pages": pages}


def main() -> None:
    options = arguments(__doc__, "/tmp/measured-engine")
    record: dict[str, Any] = {}
    with Engine(options.work, 8123) as engine, ProcessPoolExecutor(CLIENTS) as pool:
        record["start_seconds"] = engine.wait_until_ready()
        record["about"] = {**engine.about(), "steps": STEPS, "stage_seconds": STAGE_SECONDS}
        record["prefill"] = asyncio.run(prefills(engine, random.Random(1)))
        save(record, options.out)
        record["decode"] = asyncio.run(decodes(engine, random.Random(2)))
        save(record, options.out)
        record["stages"] = []
        for seed, rate in enumerate(RATES):
            record["stages"].append(stage(engine, pool, rate, seed))
            save(record, options.out)


if __name__ == "__main__":
    main()
