"""A real prefill engine and a real decode engine on one GPU: the handover, and what the core decides on their pages.

`python benchmarks/real_gpu_pair.py` writes docs/benchmarks/real-gpu-pair.md; gpu/measure_pair.py made the record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from real_gpu import Record, known, load, ms, samples, table

from servingpool.adapters.prometheus import ReadRequest, page, with_own_buckets
from servingpool.adapters.prometheus.engines import profile_of
from servingpool.decision.decide import Side, decide_both
from servingpool.decision.decision import Decision
from servingpool.decision.observation import Observation, Replica, Unknown
from servingpool.decision.pool import Pool
from servingpool.decision.roles import Ratio, decode_slo, joined, prefill_slo
from servingpool.decision.slo import Slo
from servingpool.decision.state import Memory

RECORD = Path(__file__).parent / "gpu" / "h200-8b-pair.json.gz"
SLO = Slo(1.0, 0.04)
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks" / "real-gpu-pair.md"
BYTES_PER_TOKEN = 131_072
"""32 layers, 8 KV heads of 128, two bytes each, keys and values."""


def only(bound: float | None) -> frozenset[float]:
    return frozenset() if bound is None else frozenset({bound})


def decisions(record: Record) -> Iterator[tuple[float, list[Decision], Decision]]:
    """At each page of both engines: seconds since the traffic began, each role's decision, and the pool's."""
    (stage,) = record["stages"]
    pools = [Pool(slo, min_replicas=1, max_replicas=8) for slo in (prefill_slo(SLO), decode_slo(SLO))]
    memories = [Memory(), Memory()]
    ready = stage["pages"][0][0]
    for at, *texts in stage["pages"]:
        sides = []
        for pool, memory, text, start in zip(pools, memories, texts, record["start_seconds"], strict=True):
            ttft, tpot = pool.slo.time_to_first_token, pool.slo.time_per_output_token
            request = ReadRequest(ttft_bounds=only(ttft), tpot_bounds=only(tpot))
            (read,) = page.read(profile_of("vllm"), samples(text), request).values()
            metrics = with_own_buckets(replace(read, replica="pod", scraped_at=at), ttft, tpot)
            pod = Replica("pod", at - ready + start, at - ready)
            sides.append(Side(Observation(1, (pod,), metrics=(metrics,)), pool, memory))
        outcomes = decide_both(sides[0], sides[1], Ratio(), at)
        memories = [one.memory for one in outcomes]
        each = [one.decision for one in outcomes]
        yield at - stage["begin"], each, joined(*each)


def attained(record: Record) -> float:
    """Share of the clients' requests within both bounds, 0 to 1."""
    (stage,) = record["stages"]
    _, _, ttft, end, _, output = np.array(stage["requests"]).T
    tpot = (end - ttft) / np.maximum(output - 1, 1)
    return float(((ttft <= known(SLO.time_to_first_token)) & (tpot <= known(SLO.time_per_output_token))).mean())


def handover(record: Record) -> tuple[float, float]:
    """A line through the medians: seconds whatever the prompt, and bytes a second."""
    rows = record["alone"]
    medians = [float(np.median(row["reply_to_first_token"])) for row in rows]
    slope, fixed = np.polyfit([row["tokens"] for row in rows], medians, 1)
    return float(fixed), BYTES_PER_TOKEN / float(slope)


def alone_rows(record: Record) -> Iterator[Sequence[str]]:
    for row in record["alone"]:
        figures = (row["prefill_reply"], row["reply_to_first_token"], row["undivided_first_token"])
        yield f"{row['tokens']:,}", *(ms(float(np.median(figure))) for figure in figures)


def decision_rows(record: Record) -> Iterator[Sequence[str]]:
    for since, (prefill, decode), pool in decisions(record):
        share = pool.figures.attainment_now
        yield (
            f"{since:.0f}",
            f"{known(decode.figures.queue):.0f}",
            "" if isinstance(share, Unknown) else f"{share:.1%}",
            f"{prefill.replicas} + {decode.replicas}",
        )


TEXT = """\
# A real prefill and decode pair on one GPU

Written by `python benchmarks/real_gpu_pair.py` from a record of {date}: a prefill engine and a decode engine, both
vLLM {vllm} with the shape of Llama-3.1-8B and random weights, shared one {gpu} and were joined by NIXL. The
client does what vLLM's proxy does. Steps of the two disturb each other, so this is no measure of what a pair can serve;
[one engine alone](real-gpu.md) is.

## The handover

One request at a time, medians in ms. Undivided: the decode engine computes the prompt itself.

{alone}

The KV cache moved at {rate:.2f} GB/s, and {fixed:.0f} ms came on top, for NIXL, HTTP and a decode step. A GPU's memory,
NVLink or 200 Gbit/s give many times that; what slowed it on this virtual machine was not looked into.
The model of the simulated pairs has 25 GB/s and 8 ms.

## What the operator makes of a slow handover

{rate_asked} conversations/s for {seconds:.0f} s. The clients' first tokens came after {ttft} s (median / 95th
percentile), and {attained:.1%} of the requests met TTFT 1 s and TPOT 40 ms. The prefill engine was never late.

{decisions}

The core starts with one replica of each role. It reads {read:.1%} at the end, and asks for more decode replicas, each
of which would fetch for itself. It asks for no more prefill replicas. Before this run the time in the decode engines
was in no bound: attainment was read as 100%.
"""


def text(record: Record) -> str:
    """The page."""
    about, (stage,), (fixed, rate) = record["about"], record["stages"], handover(record)
    *_, (_, _, last) = decisions(record)
    return TEXT.format(
        date=about["date"],
        vllm=about["vllm"],
        gpu=about["gpu"].partition(",")[0],
        alone=table(("tokens", "prefill's reply", "from there to the first token", "undivided"), alone_rows(record)),
        rate=rate / 1e9,
        fixed=1000 * fixed,
        rate_asked=stage["rate"],
        seconds=40.0,
        ttft=" / ".join(f"{one:.0f}" for one in np.quantile([one[2] for one in stage["requests"]], (0.5, 0.95))),
        attained=attained(record),
        read=known(last.figures.attainment_now),
        decisions=table(("s", "waiting for decode", "attained, as read", "prefill + decode"), decision_rows(record)),
    )


if __name__ == "__main__":
    PAGE.write_text(text(load(RECORD)))
