"""A real prefill engine and a real decode engine on one GPU: the handover, and what the core decides on their pages.

`python benchmarks/control/real_gpu_pair.py` writes docs/benchmarks/real-gpu.md, in seconds: one engine alone by
real_gpu.py, then the pair from a record of gpu/measure_pair.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import real_gpu
from disaggregated import Transfer
from real_gpu import RECORDS, TTFT, Latencies, Record, decode_together, known, load, ms, observed
from tables import table

from servingpool.decision.decide import Stage, decide_stages
from servingpool.decision.decision import Decision
from servingpool.decision.learn.memory import Memory
from servingpool.decision.observation import Unknown
from servingpool.decision.pool import Pool, Slo
from servingpool.decision.roles import Ratio, decode_slo, joined, prefill_slo

RECORD = RECORDS / "h200-8b-pair.json.gz"
TPOT = 0.04
SLO = Slo(TTFT, TPOT)
PAGE = Path(__file__).parents[2] / "docs" / "benchmarks" / "real-gpu.md"
MODELLED = Transfer()
"""As the simulated pairs have it, of the same model."""


def decisions(record: Record) -> list[tuple[float, tuple[Decision, Decision], Decision]]:
    """At each page of both engines: seconds since the traffic began, each role's decision, and the pool's."""
    (stage,) = record["stages"]
    pools = [Pool(slo, min_replicas=1, max_replicas=8) for slo in (prefill_slo(SLO), decode_slo(SLO))]
    memories, found = [Memory(), Memory()], []
    ready = stage["pages"][0][0]
    for at, *texts in stage["pages"]:
        prefill, decode = (
            Stage(observed(text, pool.slo, at, at - ready + start, at - ready), pool, memory)
            for pool, memory, text, start in zip(pools, memories, texts, record["start_seconds"], strict=True)
        )
        first, second = decide_stages([prefill, decode], Ratio(), at)
        memories = [first.memory, second.memory]
        both = first.decision, second.decision
        found.append((at - stage["begin"], both, joined(both)))
    return found


def measured(record: Record) -> Latencies:
    """As the clients saw them."""
    (stage,) = record["stages"]
    _, _, ttft, end, _, output = np.array(stage["requests"]).T
    return Latencies.of(ttft, end, output)


def handover(record: Record) -> tuple[float, float]:
    """A line through the medians: seconds whatever the prompt, and bytes a second."""
    rows = record["alone"]
    medians = [float(np.median(row["reply_to_first_token"])) for row in rows]
    slope, fixed = np.polyfit([row["tokens"] for row in rows], medians, 1)
    return float(fixed), MODELLED.bytes_per_token / float(slope)


def alone_rows(record: Record) -> Iterator[Sequence[str]]:
    for row in record["alone"]:
        figures = (row["prefill_reply"], row["reply_to_first_token"], row["undivided_first_token"])
        yield f"{row['tokens']:,}", *(ms(float(np.median(figure))) for figure in figures)


def decision_rows(steps: Sequence[tuple[float, tuple[Decision, Decision], Decision]]) -> Iterator[Sequence[str]]:
    for since, (prefill, decode), pool in steps:
        share = pool.figures.attainment_now
        yield (
            f"{since:.0f}",
            f"{known(decode.figures.queue):.0f}",
            "" if isinstance(share, Unknown) else f"{share:.1%}",
            f"{prefill.replicas} + {decode.replicas}",
        )


TEXT = """\
## A prefill and a decode engine on one GPU

From a record of {date}: a prefill engine and a decode engine, both vLLM {vllm} with the same shape and random weights,
shared one {gpu} and were joined by NIXL. The client does what vLLM's proxy does. Steps of the two disturb each other,
so this is no measure of what a pair can serve.

### The handover

One request at a time, medians in ms. Undivided: the decode engine computes the prompt itself.

{alone}

The KV cache moved at {rate:.2f} GB/s, and {fixed:.0f} ms came on top, for NIXL, HTTP and a decode step. A GPU's memory,
NVLink or 200 Gbit/s give many times that; what slowed it on this virtual machine was not looked into.
The model of the simulated pairs has {rate_modelled:.0f} GB/s and {fixed_modelled:.0f} ms.

After a prompt of {tokens} tokens the decode engine gave a token each {gap} ms. The engine model gives one each {model}
ms; nothing was fitted to this record.

### What the operator makes of a slow handover

{rate_asked} conversations/s for {seconds:.0f} s. The clients' first tokens came after {ttft} s (median / 95th
percentile), and {attained:.1%} of the requests met TTFT 1 s and TPOT 40 ms. The prefill engine was never late.

{decisions}

The core starts with one replica of each role and reads {read:.1%} at the end. The first tokens are late because the
transfer of the KV cache is slow. The core sees requests that wait for a decode engine, and asks for up to {most} decode
replicas. More of them help only where each one fetches over a link of its own; the run had one decode engine, so this
was not tried. The core asks for no more prefill replicas. Until this run it counted
the time in the decode engines toward no bound, and read an attainment of 100%.
"""


def text(record: Record) -> str:
    """The second part of the page."""
    about, (stage,), (fixed, rate) = record["about"], record["stages"], handover(record)
    clients, steps = measured(record), decisions(record)
    shortest = record["alone"][0]
    output = len(shortest["gaps"]) // len(shortest["prefill_reply"]) + 1
    return TEXT.format(
        date=about["date"],
        vllm=about["vllm"],
        gpu=about["gpu"].partition(",")[0],
        alone=table(("tokens", "prefill's reply", "from there to the first token", "undivided"), alone_rows(record)),
        rate=rate / 1e9,
        fixed=1000 * fixed,
        rate_modelled=MODELLED.bytes_per_second / 1e9,
        fixed_modelled=1000 * MODELLED.fixed,
        tokens=shortest["tokens"],
        gap=ms(float(np.mean(shortest["gaps"]))),
        model=ms(decode_together(1, shortest["tokens"] + output // 2, output)),
        rate_asked=stage["rate"],
        seconds=40.0,
        ttft=" / ".join(f"{one:.0f}" for one in np.quantile(clients.ttft, (0.5, 0.95))),
        attained=clients.attained(TPOT),
        read=known(steps[-1][2].figures.attainment_now),
        most=max(decode.replicas for _, (_, decode), _ in steps),
        decisions=table(
            ("s", "waiting for decode, requests", "attained, as read", "prefill + decode, replicas"),
            decision_rows(steps),
        ),
    )


def page(one: Record, pair: Record) -> str:
    """The whole page, of one engine and of the pair."""
    return "\n".join((real_gpu.text(one), text(pair)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=PAGE)
    parser.parse_args().output.write_text(page(load(), load(RECORD)))
