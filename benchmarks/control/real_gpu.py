"""A real vLLM on a real GPU beside the engine model, and what the operator's core makes of its pages.

The first part of docs/benchmarks/real-gpu.md, which real_gpu_pair.py writes. gpu/measure.py made the record.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tables import table
from validate_simulator import prefill

from servingpool.adapters.prometheus import page
from servingpool.adapters.prometheus.engines import profile_of
from servingpool.adapters.prometheus.samples import ReadRequest, with_own_buckets
from servingpool.decision.decide import decide
from servingpool.decision.decision import Decision
from servingpool.decision.learn.memory import Memory
from servingpool.decision.observation import Observation, Reading, Replica, Unknown
from servingpool.decision.pool import Pool, Slo
from servingpool_simulation.engine import Engine
from servingpool_simulation.hardware import engine_profile

RECORDS = Path(__file__).parents[1] / "gpu"
RECORD = RECORDS / "h200-8b.json.gz"
PROFILE = engine_profile("h200-8b-tp1")
"""The engine model that this project ships for that GPU and model, fitted to half of the record
(docs/records/serving-fit.md)."""
SERVER_SECONDS = 0.0028
"""Seconds that a prompt alone spends in the API server, before and after its step; fitted together with the step."""
TTFT = 1.0
"""Seconds."""
TPOTS = (0.025, 0.04, 0.05)
"""Seconds. vLLM's buckets end at the first and the last; the second lies within a bucket."""

Record = dict[str, Any]
Floats = NDArray[np.float64]


class Step(NamedTuple):
    """One decision."""

    rate: float
    """Requests/s of the stage."""
    since: float
    """Seconds since the stage began."""
    decision: Decision


def load(path: Path = RECORD) -> Record:
    """What measure.py or measure_pair.py wrote."""
    with gzip.open(path, "rt") as file:
        found: Record = json.load(file)
    return found


@dataclass(frozen=True, slots=True)
class Latencies:
    """TTFT and TPOT of each request, in seconds."""

    ttft: Floats
    tpot: Floats
    """NaN for an answer of a single token."""

    @classmethod
    def of(cls, ttft: Floats, end: Floats, output: Floats) -> Latencies:
        """From seconds to the first and to the last token, and the number of tokens."""
        return cls(ttft, (end - ttft) / np.where(output > 1, output - 1, np.nan))

    def attained(self, tpot: float) -> float:
        """Share of requests within both bounds, 0 to 1."""
        return float(((self.ttft <= TTFT) & ~(self.tpot > tpot)).mean())


def measured(stage: Record) -> Latencies:
    """As the clients saw them."""
    _, ttft, end, _, output = np.array(stage["requests"]).T
    return Latencies.of(ttft, end, output)


def sum_of(text: str, name: str) -> float:
    """Of all series of this name on the engine's page."""
    lines = (line for line in text.splitlines() if line.startswith(f"vllm:{name}{{"))
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def clients_overhead(stage: Record) -> float:
    """Seconds by which the clients' mean TTFT is longer than the engine's, whose page counts in the API server."""
    (_, before), (_, after) = stage["pages"][0], stage["pages"][-1]
    names = (f"time_to_first_token_seconds_{part}" for part in ("sum", "count"))
    total, count = (sum_of(after, name) - sum_of(before, name) for name in names)
    return float(np.mean([ttft for _, ttft, *_ in stage["requests"]])) - total / count


def modelled(stage: Record) -> Latencies:
    """As the engine model answers the same requests; API server and clients are added to its TTFT."""
    engine = Engine(PROFILE, 0.0)
    for at, _, _, prompt, output in stage["requests"]:
        engine.submit(at, int(prompt), int(output))
    engine.drain()
    ended = engine.take_outcomes()
    ttft, tpot = (np.array([getattr(one, name) for one in ended], dtype=float) for name in ("ttft", "tpot"))
    return Latencies(ttft + SERVER_SECONDS + clients_overhead(stage), tpot)


@cache
def samples(text: str) -> list[page.Sample]:
    """The samples of a page: parsing is most of the work, and each SLO reads all pages."""
    return page.parse(text)


def observed(text: str, slo: Slo, at: float, age: float, ready_for: float) -> Observation:
    """A fleet of one replica as the operator reads the replica's page, scraped `at` a Unix time; ages in seconds."""
    ttft, tpot = slo.time_to_first_token, slo.time_per_output_token
    request = ReadRequest(ttft_bounds=_only(ttft), tpot_bounds=_only(tpot))
    (read,) = page.read(profile_of("vllm"), samples(text), request).values()
    metrics = with_own_buckets(replace(read, replica="pod", scraped_at=at), ttft, tpot)
    return Observation(1, (Replica("pod", age, ready_for),), metrics=(metrics,))


def _only(bound: float | None) -> frozenset[float]:
    return frozenset() if bound is None else frozenset({bound})


def decisions(record: Record, tpot: float) -> list[Step]:
    """What the core decides at each page of the engine, for a pool of one replica that it has never seen before.

    `tpot`: of the SLO, in seconds. Time is the pages' own.
    """
    pool, memory, found = Pool(Slo(TTFT, tpot), min_replicas=1, max_replicas=8), Memory(), []
    ready = record["stages"][0]["pages"][0][0]
    for stage in record["stages"]:
        for at, text in stage["pages"]:
            observation = observed(text, pool.slo, at, at - ready + record["start_seconds"], at - ready)
            outcome = decide(observation, pool, memory, at)
            memory = outcome.memory
            found.append(Step(stage["rate"], at - stage["begin"], outcome.decision))
    return found


def at_rates(record: Record, steps: Iterable[Step]) -> dict[float, Decision]:
    """The decision at the last page of each stage while requests still came."""
    until = record["about"]["stage_seconds"]
    return {rate: decision for rate, since, decision in steps if since <= until}


def known(figure: Reading | None) -> float:
    assert not isinstance(figure, Unknown | None), figure
    return figure


def ms(*seconds: float) -> str:
    """Three digits, or whole milliseconds."""
    return " / ".join(f"{1000 * one:.3g}" if one < 1.0 else f"{1000 * one:,.0f}" for one in seconds)


def middle_and_late(values: Floats) -> str:
    return ms(*np.nanquantile(values, (0.5, 0.95)))


def prefill_rows(record: Record) -> Iterator[Sequence[str]]:
    for row in record["prefill"]:
        client, engine, model = (
            float(np.median(row["client_seconds"])),
            row["engine_mean_seconds"],
            prefill(PROFILE, row["tokens"]) + SERVER_SECONDS,
        )
        yield f"{row['tokens']:,}", ms(client), ms(engine), ms(model), f"{model / engine - 1:+.0%}"


def decode_together(batch: int, context: int, steps: int) -> float:
    """Seconds between two tokens of the last of `batch` requests, which came as gpu/measure.py sent them.

    `context`: tokens that each has in the KV cache in the mean of the last one's `steps`.
    """
    engine, prompt = Engine(PROFILE, 0.0), context - steps // 2
    for place in range(batch):
        engine.submit(0.0, prompt, steps if place == batch - 1 else steps + 64 + batch * prompt // 8192)
    engine.drain()
    tpot = engine.take_outcomes()[-1].tpot
    assert tpot is not None
    return tpot


def decode_rows(record: Record) -> Iterator[Sequence[str]]:
    for row in record["decode"]:
        real = float(np.mean(row["gap_seconds"]))
        model = decode_together(row["batch"], row["context"], record["about"]["steps"])
        yield f"{row['batch']} of {row['context']:,} tokens", ms(real), ms(model), f"{model / real - 1:+.0%}"


def attained_rows(record: Record) -> Iterator[Sequence[str]]:
    for stage in record["stages"]:
        real, model = measured(stage), modelled(stage)
        yield f"{stage['rate']}", *(f"{real.attained(bound):.1%} / {model.attained(bound):.1%}" for bound in TPOTS)


def latency_rows(record: Record) -> Iterator[Sequence[str]]:
    for stage in record["stages"]:
        both = measured(stage), modelled(stage)
        ttft, tpot = ([middle_and_late(getattr(one, name)) for one in both] for name in ("ttft", "tpot"))
        yield f"{stage['rate']}", *ttft, ms(clients_overhead(stage)), *tpot


def decision_rows(record: Record, steps: Mapping[float, Sequence[Step]]) -> Iterator[Sequence[str]]:
    """`steps`: by the SLO's TPOT."""
    for bound, each in steps.items():
        decided = at_rates(record, each)
        for stage in record["stages"]:
            decision = decided[stage["rate"]]
            yield (
                *(f"{ms(bound)} ms", f"{stage['rate']}", f"{known(decision.figures.arrivals):.1f}"),
                *(f"{measured(stage).attained(bound):.1%}", f"{capacity(decision):.1f}", f"{decision.replicas}"),
            )


def capacity(decision: Decision) -> float:
    """Requests/s that one replica takes within the SLO, as the core says."""
    return known(decision.figures.safe_load) / known(decision.figures.work_per_request)


TEXT = """\
# A real vLLM on a real GPU

Written by `python benchmarks/control/real_gpu_pair.py` from a record of {date}: vLLM {vllm} on one {gpu}, with the
shape of Llama-3.1-8B in bf16 and random weights, at most 256 requests and 8,192 tokens in a step. FlashInfer's sampler
was off. Four client processes on the same machine streamed the answers. vLLM's first start took {start:.0f} s, most
of it compilation. `python benchmarks/gpu/measure.py` makes such a record on any machine that has vLLM, in six minutes.

The tables compare the record with the engine model of all simulated pages, with the step times that it ships for this
GPU: kernel times measured by others, and three constants [fitted to half of this
record](../records/serving-fit.md). No case of the other pages has this model on this GPU.

## What the operator makes of it

The core met this engine for the first time and read its pages, one each 5 s, as it does in a cluster. The pool has one
replica, and an SLO for 95%: TTFT {ttft:g} s, TPOT as in the first column. Each rate came for {stage:.0f} s. A row is
the decision at its end.

{decisions}

It keeps one replica wherever the clients' requests met the SLO, and asks for more wherever they did not. What one
replica takes is learned as traffic shows it: at 8 requests/s nobody can know.

Of all requests, {truth} met an SLO with a TPOT of 25, 40 and 50 ms.
The operator read {read} at the last page. 40 ms lie within one of vLLM's buckets, where the share is
interpolated; 25 and 50 ms are ends of buckets.

## Conversations

Poisson arrivals with the lengths of Azure's conversations of 2023, each rate for {stage:.0f} s on an idle engine.
Attained, by the SLO's TPOT: the real engine / the model.

{attained}

Latencies in ms: median / 95th percentile.

{latencies}

The model's TTFT holds {server:.1f} ms in vLLM's API server, of a prompt alone, and the clients' own time: their mean
TTFT less that of the engine's pages at this rate. Its median is {middle} of the real one, and its 95th percentiles
are {late}. At {rate} requests/s and TPOT 40 ms the real engine attains {real:.0%}, the model {model:.0%}.

## Steps

One prompt on an idle engine: time to the first token, in ms.

{prefills}

Requests that decode together, with so many tokens in each one's KV cache: time between two tokens, in ms.

{decodes}
"""


def ratios(record: Record, share: float, *names: str) -> str:
    """The model's quantile over the real one, least and most of the stages."""
    both = [(modelled(stage), measured(stage)) for stage in record["stages"]]
    found = [
        float(np.divide(*(np.nanquantile(getattr(one, name), share) for one in pair)))
        for pair in both
        for name in names
    ]
    return f"{min(found):.2f} to {max(found):.2f}"


def text(record: Record) -> str:
    """The first part of the page."""
    about, last = record["about"], record["stages"][-1]
    requests = [measured(stage) for stage in record["stages"]]
    together = Latencies(*(np.concatenate([getattr(one, name) for one in requests]) for name in ("ttft", "tpot")))
    steps = {bound: decisions(record, bound) for bound in TPOTS}
    return TEXT.format(
        date=about["date"],
        vllm=about["vllm"],
        gpu=about["gpu"].partition(",")[0],
        start=record["start_seconds"],
        ttft=TTFT,
        stage=about["stage_seconds"],
        truth=", ".join(f"{together.attained(bound):.1%}" for bound in TPOTS),
        read=", ".join(f"{known(each[-1].decision.figures.attainment_now):.1%}" for each in steps.values()),
        decisions=table(
            (
                "TPOT",
                "requests/s",
                "as read",
                "attained by clients",
                "one replica takes, requests/s",
                "replicas asked for",
            ),
            decision_rows(record, steps),
        ),
        attained=table(("requests/s", *(f"TPOT {ms(bound)} ms" for bound in TPOTS)), attained_rows(record)),
        latencies=table(
            ("requests/s", "TTFT", "TTFT, model", "of it clients", "TPOT", "TPOT, model"), latency_rows(record)
        ),
        server=1000 * SERVER_SECONDS,
        late=ratios(record, 0.95, "ttft", "tpot"),
        middle=ratios(record, 0.5, "ttft"),
        rate=last["rate"],
        real=requests[-1].attained(0.04),
        model=modelled(last).attained(0.04),
        prefills=table(("tokens", "client", "engine", "model", "deviation"), prefill_rows(record)),
        decodes=table(("requests", "measured", "model", "deviation"), decode_rows(record)),
    )
