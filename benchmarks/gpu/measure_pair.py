"""What it takes to hand a request from a real prefill engine to a real decode engine, both on one GPU, joined by NIXL.

As measure.py, and `nixl` beside vLLM: `python benchmarks/gpu/measure_pair.py --out pair.json.gz` (4 minutes).
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
from gpu_engine import Engine, arguments, client, complete, save, tokens
from measure import conversations

PROMPTS = (512, 1024, 2048, 4096, 8192)
ALONE = 7
OUTPUT = 32
RATES = (4, 8)
"""Requests/s. Both engines share the GPU, so this is no measure of what a pair can do."""
TO_DECODE = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    **dict.fromkeys(("remote_engine_id", "remote_block_ids", "remote_host", "remote_port")),
}
"""What vLLM's own proxy asks a prefill engine for."""


def engine(work: Path, role: str, port: int) -> Engine:
    """With two fifths of the GPU's memory."""
    transfer = {"kv_connector": "NixlConnector", "kv_role": role}
    channel = {"VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1", "VLLM_NIXL_SIDE_CHANNEL_PORT": str(port + 1000)}
    options = ("--gpu-memory-utilization", "0.4", "--kv-transfer-config", json.dumps(transfer))
    return Engine(work, port, *options, settings=channel)


async def hand_over(
    session: aiohttp.ClientSession, prefill: Engine, decode: Engine, prompt: list[int], output: int
) -> tuple[float, list[float]]:
    """As vLLM's proxy does. Seconds until the prefill engine replied, and from then until each token."""
    first, reply = await complete(session, prefill.url, prompt, 1, stream=False, kv_transfer_params=TO_DECODE)
    times, _ = await complete(session, decode.url, prompt, output, kv_transfer_params=reply["kv_transfer_params"])
    return first[0], times


async def alone(prefill: Engine, decode: Engine, draw: random.Random) -> list[dict[str, Any]]:
    """Requests one after the other: by both engines, and by the decode engine without the other."""
    rows = []
    async with client() as session:
        for _ in range(3):
            await hand_over(session, prefill, decode, tokens(draw, 512), 4)
        for length in PROMPTS:
            handed = [await hand_over(session, prefill, decode, tokens(draw, length), OUTPUT) for _ in range(ALONE)]
            whole = [(await complete(session, decode.url, tokens(draw, length), OUTPUT))[0] for _ in range(ALONE)]
            rows.append(
                {
                    "tokens": length,
                    "prefill_reply": [first for first, _ in handed],
                    "reply_to_first_token": [times[0] for _, times in handed],
                    "gaps": [round(later - earlier, 6) for _, times in handed for earlier, later in pairwise(times)],
                    "undivided_first_token": [times[0] for times in whole],
                }
            )
    return rows


async def stage(prefill: Engine, decode: Engine, rate: float, seed: int) -> dict[str, Any]:
    """Conversations at one rate, until the last is answered; both engines' pages each 5 s, by Unix time."""
    draw = random.Random(seed)
    asks = [(at, tokens(draw, prompt), output) for at, prompt, output in conversations(rate, seed)]
    begin = time.time()

    async def one(session: aiohttp.ClientSession, at: float, prompt: list[int], output: int) -> list[float]:
        await asyncio.sleep(max(0.0, begin + at - time.time()))
        reply, times = await hand_over(session, prefill, decode, prompt, output)
        return [round(figure, 6) for figure in (at, reply, reply + times[0], reply + times[-1])] + [len(prompt), output]

    async def watch() -> None:
        while True:
            at = time.time()
            texts = await asyncio.gather(*(asyncio.to_thread(each.page) for each in (prefill, decode)))
            pages.append([round(at, 3), *texts])
            await asyncio.sleep(5.0)

    pages: list[list[Any]] = []
    watching = asyncio.create_task(watch())
    async with client() as session:
        requests = await asyncio.gather(*(one(session, *ask) for ask in asks))
    watching.cancel()
    columns = ["at", "prefill_reply", "ttft", "end", "prompt", "output"]
    return {"rate": rate, "begin": begin, "columns": columns, "requests": requests, "pages": pages}


def main() -> None:
    options = arguments(__doc__, "/tmp/measured-pair")
    record: dict[str, Any] = {}
    with (
        engine(options.work, "kv_producer", 8123) as prefill,
        engine(options.work, "kv_consumer", 8124) as decode,
    ):
        record["start_seconds"] = [each.wait_until_ready() for each in (prefill, decode)]
        record["about"] = decode.about()
        save(record, options.out)
        record["alone"] = asyncio.run(alone(prefill, decode, random.Random(1)))
        save(record, options.out)
        record["stages"] = []
        for seed, rate in enumerate(RATES):
            record["stages"].append(asyncio.run(stage(prefill, decode, rate, seed)))
            save(record, options.out)


if __name__ == "__main__":
    main()
