"""What serving adds to the kernel times of a GPU: fitted to half of a record, judged by the other half.

`python benchmarks/control/real_gpu_fit.py` writes the constants that the simulation ships (data/serving_ms.json), in a
second. Its section of docs/benchmarks/real-gpu.md has the candidates; real_gpu_pair.py writes that page.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import real_gpu
from real_gpu import PROFILE, TPOTS, Record, load, sum_of
from tables import table
from validate_simulator import short_requests

import servingpool_simulation
from servingpool_simulation.hardware import HOST_OVERHEAD, EngineProfile, kernel_profile, serving_profile

CONSTANTS = Path(servingpool_simulation.__file__).parent / "data" / "serving_ms.json"
KERNELS = kernel_profile(PROFILE.name)
DENSE = KERNELS.dense_table()
FITTED_RATES = (8, 18, 26)
"""Requests/s: the windows of these rates, and every other row of steps, are fitted; the others judge."""
SERVER = "api_server"
"""Term for the time in the API server: the engine counts TTFT there, so this is no part of a step."""
TERMS = ("decode_base", "decode_per_request", "prefill_per_token")
"""Fields of EngineProfile: the candidate that ships."""


@dataclass(frozen=True, slots=True)
class Sample:
    """So many seconds of steps."""

    seconds: float
    kernels: float
    """Seconds that the kernels of these steps take."""
    counts: Mapping[str, float]
    """By term: how often it counts."""
    fitted: bool
    rate: int = 0
    """Requests/s, of a window."""


def windows(record: Record) -> list[Sample]:
    """Each 5 s between two pages of an engine that never idles: its steps, its tokens, and its clients' KV cache.

    Steps of more tokens than vLLM's bucket of 256 count as those with a prompt, each as long as their mean.
    """
    return [
        _window(stage, *pair)
        for stage in record["stages"]
        for pair in zip(stage["pages"], stage["pages"][1:], strict=False)
        if pair[0][0] - stage["begin"] > 2.0 and pair[1][0] - stage["begin"] < record["about"]["stage_seconds"] + 1.0
    ]


def _window(stage: Record, before: tuple[float, str], after: tuple[float, str]) -> Sample:
    def more(name: str) -> float:
        return sum_of(after[1], name) - sum_of(before[1], name)

    begin, end = before[0] - stage["begin"], after[0] - stage["begin"]
    at, ttft, last, prompt, output = np.array(stage["requests"]).T
    first = at + ttft
    moments = np.linspace(begin, end, 101)[:, None]
    decoding = (first <= moments) & (moments < at + last)
    answered = (moments - first) / np.maximum(last - ttft, 1e-9) * output
    kv = float((decoding * (prompt + answered)).sum(1).mean())
    squares = float((prompt[(begin < first) & (first <= end)] ** 2).sum())
    steps, prompts = more("iteration_tokens_total_count"), more("prompt_tokens_total")
    mixed = steps - (_below(after[1]) - _below(before[1]))
    batch = more("generation_tokens_total") / steps
    tokens = min(prompts / mixed + batch, KERNELS.max_num_batched_tokens)
    kernels = (steps - mixed) * _dense(batch) + mixed * (_dense(tokens) + KERNELS.prefill_base)
    kernels += steps * (KERNELS.decode_base + KERNELS.decode_per_kv_token * kv)
    kernels += prompts * KERNELS.prefill_per_token + squares / 2 * KERNELS.prefill_per_token_context
    counts = {
        "host_overhead": steps,
        "decode_base": steps,
        "decode_per_request": steps * batch,
        "beyond_128": steps * max(0.0, batch - 128),
        "kv_beside_prompt": mixed * kv,
        "prefill_base": mixed,
        "prefill_per_token": prompts,
    }
    return Sample(end - begin, kernels, counts, stage["rate"] in FITTED_RATES, stage["rate"])


def _below(page: str) -> float:
    """Steps of 256 tokens or fewer."""
    found = re.search(r'^vllm:iteration_tokens_total_bucket\{.*le="256.0".*\} (\S+)$', page, re.MULTILINE)
    assert found
    return float(found[1])


def _dense(tokens: float) -> float:
    return float(np.interp(tokens, np.arange(len(DENSE)), DENSE))


def decodes(record: Record) -> list[Sample]:
    """Requests that decode together, a step of them."""
    samples = []
    for place, row in enumerate(record["decode"]):
        batch, context = row["batch"], row["context"]
        kernels = _dense(batch) + KERNELS.decode_base + KERNELS.decode_per_kv_token * batch * context
        counts = {"decode_base": 1, "decode_per_request": batch, "beyond_128": max(0, batch - 128), "host_overhead": 1}
        samples.append(Sample(float(np.mean(row["gap_seconds"])), kernels, counts, place % 2 == 0))
    return samples


def prefills(record: Record) -> list[Sample]:
    """Prompts alone."""
    samples = []
    for place, row in enumerate(record["prefill"]):
        tokens = row["tokens"]
        each = KERNELS.prefill_per_token + KERNELS.prefill_per_token_context * tokens / 2
        kernels = _dense(tokens) + KERNELS.prefill_base + tokens * each
        counts = {"prefill_base": 1, "prefill_per_token": tokens, SERVER: 1, "host_overhead": 1}
        samples.append(Sample(row["engine_mean_seconds"], kernels, counts, place % 2 == 0))
    return samples


def fit(samples: Sequence[Sample], terms: Sequence[str]) -> dict[str, float]:
    """Seconds of each term that make the relative squares least."""
    x = [[one.counts.get(term, 0.0) / one.seconds for term in terms] for one in samples]
    found = np.linalg.lstsq(np.array(x), np.array([1.0 - one.kernels / one.seconds for one in samples]))[0]
    return dict(zip(terms, found.tolist(), strict=True))


def deviation(sample: Sample, found: Mapping[str, float]) -> float:
    """Error of the fitted seconds of a step, relative to the measured ones."""
    return (sample.kernels + sum(value * sample.counts.get(term, 0.0) for term, value in found.items())) / (
        sample.seconds
    ) - 1.0


def constants(record: Record, *, fitted: bool = True) -> dict[str, float]:
    """Constants of the candidate that ships, in seconds, fitted to one half of the record: to the half that judges if
    `fitted` is False."""
    samples = [one for part in (windows, decodes, prefills) for one in part(record) if one.fitted is fitted]
    return fit(samples, (*TERMS, SERVER))


@dataclass(frozen=True, slots=True)
class Candidate:
    """One form of what serving adds."""

    what: str
    terms: tuple[str, ...] = ()
    ahead: bool = True
    """Steps are scheduled ahead."""
    given: Mapping[str, float] | None = None
    """Seconds that are not fitted."""


USUAL = ("decode_base", "decode_per_request")
CANDIDATES = (
    Candidate("before: 0.65 ms a step on the host", ahead=False, given={"host_overhead": HOST_OVERHEAD}),
    Candidate("nothing: the host's work overlaps"),
    Candidate("step", USUAL[:1]),
    Candidate("step, request beyond 128", ("decode_base", "beyond_128")),
    Candidate("step, request", USUAL),
    Candidate("step, request, step with a prompt", (*USUAL, "prefill_base")),
    Candidate("**step, request, prompt token**", TERMS),
    Candidate("the same, not scheduled ahead", TERMS, ahead=False),
    Candidate("step, request, prompt token, step with a prompt", (*TERMS, "prefill_base")),
    Candidate("step, request, prompt token, KV cache beside a prompt", (*TERMS, "kv_beside_prompt")),
)


def candidate_rows(record: Record) -> Iterator[Sequence[str]]:
    each, alone, prompts = windows(record), decodes(record), prefills(record)
    for candidate in CANDIDATES:
        given = dict(candidate.given or {})
        samples = [one for one in (*each, *alone, *prompts) if one.fitted]
        found = given | fit(samples, (*candidate.terms, SERVER)) if candidate.terms else given
        judged = [deviation(one, found) for one in each if not one.fitted]
        steps = [deviation(one, found) for one in alone if not one.fitted]
        served = "-", "-"
        if all(term == SERVER or hasattr(KERNELS, term) for term in found):
            fields = {term: 1e3 * value for term, value in found.items() if term != SERVER}
            profile = serving_profile(KERNELS, fields, async_scheduling=candidate.ahead)
            served = worst_served(record, profile)
        squares = float(np.sqrt(np.mean(np.square(judged))))
        yield candidate.what, f"{squares:.1%}", _largest(judged), _largest(steps), *served


def _largest(deviations: Sequence[float]) -> str:
    return f"{max(deviations, key=abs):+.1%}"


def worst_served(record: Record, profile: EngineProfile) -> tuple[str, str]:
    """Largest deviations of all rates: of the share attained, in points, and of TTFT's median."""
    shares, medians = [], []
    for stage in record["stages"]:
        real, model = real_gpu.measured(stage), real_gpu.modelled(stage, profile)
        shares += [100 * (model.attained(bound) - real.attained(bound)) for bound in TPOTS]
        medians.append(float(np.median(model.ttft) / np.median(real.ttft)) - 1.0)
    return f"{max(shares, key=abs):+.1f}", f"{max(medians, key=abs):+.0%}"


TEXT = """\
## What serving adds to the kernels

`python benchmarks/control/real_gpu_fit.py` fits it, in a second: on the steps between two pages, 5 s apart, at
{rates} requests/s, and on every other row of the tables above. The other half judges: {other} requests/s and the
other rows. Each row of this table adds to the kernel times what it names. The last two columns are the largest
deviations from the clients' figures, of all five rates and three bounds; to these figures nothing was fitted.

{candidates}

The row in bold ships: no smaller form keeps the deviations under 8%, 8 points and 20%, and the other form with three
constants is further off. Its constants:

- {base:+.2f} ms in each step: the host costs nothing, and kernels in a row take less time than measured one by one.
- {request:.1f} µs for each request that gets a token. The kernel times hold no sampler.
- {prompt:.2f} µs for each prompt token, {slower:.0%} of its kernels.

The half that judges would give {again}.

vLLM chooses the batch of a step when the step before it begins. A request that arrives during a step therefore also
waits for the whole next step. Without this rule the model's median TTFT is too low.

Work of the host that grows with the batch and shows only where it outlasts the GPU would explain the step of 256
requests. It was refused: steps with prompts last longer and would hide it, so the steps at 26 requests/s stay
{hidden:.0%} too short, as with a constant alone.

For an H100, figures of an earlier vLLM are published ([simulator](simulator.md)): 7.0 and 8.7 ms between two tokens of
1 and 64 requests. The same constants give {overlapped} there, and {in_turn} with the 0.65 ms of a host that does
not work ahead. So this is the model of this GPU with this vLLM; all other GPUs keep their kernel times plus 0.65 ms.
"""


def h100_gap(batch: int, host: float) -> float:
    """Milliseconds between two tokens of requests of 128 tokens in and out on an H100 with the constants of the H200.

    `host`: seconds of each step.
    """
    added = {term: 1e3 * (getattr(PROFILE, term) - getattr(KERNELS, term)) for term in TERMS}
    return 1e3 * short_requests(batch, serving_profile(kernel_profile("h100-8b-tp1"), added, host_overhead=host))


def text(record: Record) -> str:
    """The section of the page."""
    found, again = constants(record), constants(record, fitted=False)
    each = windows(record)
    constant = fit([one for one in each if one.fitted], ("decode_base",))
    last = [one for one in each if one.rate == record["stages"][-1]["rate"]]
    rates = {one.rate: one.fitted for one in each}
    return TEXT.format(
        rates=_listed([str(rate) for rate, fitted in rates.items() if fitted]),
        other=_listed([str(rate) for rate, fitted in rates.items() if not fitted]),
        candidates=table(
            (
                *("added", "steps of the judging half, rms", "largest", "decoding alone, largest"),
                *("attained, points", "TTFT's median"),
            ),
            candidate_rows(record),
        ),
        base=1e3 * found["decode_base"],
        request=1e6 * found["decode_per_request"],
        prompt=1e6 * found["prefill_per_token"],
        slower=found["prefill_per_token"] / ((DENSE[8192] - DENSE[2048]) / 6144),
        again=f"{1e3 * again['decode_base']:+.2f} ms, {1e6 * again['decode_per_request']:.1f} µs and "
        f"{1e6 * again['prefill_per_token']:.2f} µs",
        hidden=-float(np.mean([deviation(one, constant) for one in last])),
        overlapped=_listed([f"{h100_gap(batch, 0.0):.1f}" for batch in (1, 64)]),
        in_turn=_listed([f"{h100_gap(batch, HOST_OVERHEAD):.1f}" for batch in (1, 64)]),
    )


def _listed(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"


if __name__ == "__main__":
    shipped = constants(load())
    CONSTANTS.write_text(
        json.dumps({PROFILE.name: {term: float(f"{1e3 * shipped[term]:.4g}") for term in TERMS}}, indent=1) + "\n"
    )
    print(f"{1e3 * shipped[SERVER]:.1f} ms in the API server (real_gpu.SERVER_SECONDS)")
