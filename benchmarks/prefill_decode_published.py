"""The model of prefill and decode apart beside figures that others measured.

`python benchmarks/prefill_decode_published.py` writes the last section of docs/benchmarks/prefill-decode.md, in a
minute. The figures and their sources are in prefill_decode_published.toml.
"""

from __future__ import annotations

import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from prefill_decode import PAGE, PUBLISHED, best_pair, cases, parted

from servingpool.decision.pool import Slo
from servingpool_simulation.disaggregated import PairResult, Side, Transfer, decode_profile, prefills, simulate_pair
from servingpool_simulation.hardware import EngineProfile, engine_profile
from servingpool_simulation.policies import Static
from servingpool_simulation.traces import Trace, poisson

HERE = Path(__file__).parent
DATA = HERE / "prefill_decode_published.toml"
NVLINK = 450e9
"""Bytes/s each way between two H100."""
NVLINK_A100 = 300e9
PUBLISHED_RATE = 5.6
"""Requests/s of one prefill engine, figure 6 of DistServe's blog."""
SLOW = 0.2
"""Seconds: the longest published handover, 197 ms, rounded up."""
ANY = Slo(60.0, None)
"""What a fleet is asked for where nothing decides by it."""

Setup = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """One figure, or several of a kind: what was published and what the model gives."""

    setup: Setup
    ours: tuple[float, ...]

    @property
    def ratios(self) -> tuple[float, ...]:
        """Ours over the published ones."""
        return tuple(ours / theirs for ours, theirs in zip(self.ours, self.setup["published"], strict=True))


@cache
def data() -> dict[str, Any]:
    """The published figures, as the file has them."""
    return tomllib.loads(DATA.read_text())


def fleet(profile: EngineProfile, replicas: int) -> Side:
    """So many replicas that stay."""
    return Side(profile, Static(replicas), replicas, replicas, ANY)


def fixed(arrival: Any, prompt: int, output: int, duration: float) -> Trace:
    """Requests of the same lengths at these times."""
    times = np.asarray(arrival, dtype=np.float64)
    return Trace("published", times, np.full(len(times), prompt), np.full(len(times), output), duration)


def prefill(setup: Setup) -> list[float]:
    """TTFT of a prompt on an idle engine, in ms."""
    side = fleet(engine_profile(setup["profile"]), 1)
    runs = (side.run(prefills(fixed([0.0], prompt, 2, 60.0)), seed=0) for prompt in setup["prompts"])
    return [1e3 * float(run.outcomes.ttft[0]) for run in runs]


def decode(setup: Setup) -> list[float]:
    """Mean TPOT of requests that are handed over at once, in ms."""
    side = fleet(decode_profile(engine_profile(setup["profile"])), 1)
    runs = (side.run(fixed([0.0] * batch, 512, 128, 60.0), seed=0) for batch in setup["batches"])
    return [1e3 * float(run.outcomes.tpot.mean()) for run in runs]


def measured_engines(name: str) -> tuple[EngineProfile, EngineProfile]:
    """A prefill and a decode engine of OPT-13B on an A100, with step times as DistServe fitted them."""
    given = data()["engines"][name]
    (base, token, pair), (every, kv_token, request) = given["prefill"], given["decode"]

    def profile(dense: tuple[float, float], attention: float, kv: float) -> EngineProfile:
        return EngineProfile(
            name=name,
            dense=((0, dense[0] * 1e-3), (1, sum(dense) * 1e-3)),
            decode_base=0.0,
            decode_per_request=0.0,
            decode_per_kv_token=kv * 1e-3,
            prefill_base=0.0,
            prefill_per_token=0.0,
            # Theirs is for the square of the prompt, which has half as many pairs of a token and one before it.
            prefill_per_token_context=2.0 * attention * 1e-3,
            kv_tokens=given["kv_tokens"],
            host_overhead=0.0,
            max_num_seqs=128,
            max_model_len=2048,
        )

    return profile((base, token), pair, 0.0), profile((every, request), 0.0, kv_token)


@cache
def most(name: str) -> tuple[float, float, float]:
    """Requests/s of 512 + 64 tokens with a P90 TTFT within 0.4 s and a P90 TPOT within 0.04 s.

    Of one prefill engine by TTFT, of one decode engine by TPOT, and of two and one together, for each of three GPUs.
    """
    first, second = measured_engines(name)
    transfer = Transfer(2 * 2 * 40 * 5120, NVLINK_A100, 0.0)  # keys and values, two bytes, 40 layers of 5,120

    def late(times: Any, bound: float) -> bool:
        return float((np.nan_to_num(times, nan=np.inf) > bound).mean()) > 0.1

    def prefills_in_time(rate: float) -> bool:
        trace = poisson("prefill", [rate], 600.0, prompt=512, output=64)
        return not late(fleet(first, 1).run(prefills(trace), seed=0).outcomes.ttft, 0.4)

    def decodes_in_time(rate: float) -> bool:
        trace = poisson("decode", [rate], 600.0, prompt=512, output=63)
        return not late(fleet(decode_profile(second), 1).run(trace, seed=0).outcomes.tpot, 0.04)

    def both_in_time(rate: float) -> bool:
        trace = poisson("both", [rate], 600.0, prompt=512, output=64)
        sides = fleet(first, 2), fleet(decode_profile(second), 1)
        return simulate_pair(trace, *sides, Slo(0.4, 0.04), transfer=transfer).attained >= 0.9

    return highest(prefills_in_time), highest(decodes_in_time), highest(both_in_time) / 3


def highest(holds: Callable[[float], bool], low: float = 0.5, high: float = 40.0, within: float = 0.05) -> float:
    """The highest rate that holds, if every lower one does."""
    while high - low > within:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def rates(setup: Setup) -> list[float]:
    """Requests/s, as `most`."""
    return list(most(setup["engine"]))


def balance(setup: Setup) -> list[float]:
    """The rate of a decode engine over that of a prefill engine."""
    return [most(name)[1] / most(name)[0] for name in setup["engines"]]


def transfer(setup: Setup) -> list[float]:
    """The model knows no blocks: the same twice, in ms."""
    time = Transfer(bytes_per_second=NVLINK).seconds(np.array([setup["prompt"]]))
    return [1e3 * float(time[0])] * len(setup["published"])


def regular(setup: Setup) -> PairResult:
    """Arrivals nearly as regular as a clock: vLLM's benchmark with a burstiness of 100."""
    shape = 100.0
    gaps = np.random.default_rng(0).gamma(shape, 1.0 / (shape * setup["rate"]), setup["requests"])
    arrival = np.cumsum(gaps)
    trace = fixed(arrival, setup["prompt"], setup["output"], float(arrival[-1]) + 60.0)
    profile = engine_profile(setup["profile"])
    sides = fleet(profile, setup["prefill"]), fleet(decode_profile(profile), setup["decode"])
    return simulate_pair(trace, *sides, ANY, transfer=Transfer(bytes_per_second=NVLINK))


def open_loop(setup: Setup) -> list[float]:
    """The client's TTFT and TPOT, in ms."""
    pair, median = regular(setup), setup["statistic"] == "median"
    return [1e3 * float(np.median(times) if median else times.mean()) for times in (pair.ttft, pair.tpot)]


def handover(setup: Setup) -> list[float]:
    """Mean seconds between the first token of the prefill engine and the client's, in ms."""
    pair = regular(setup)
    return [1e3 * float(pair.ttft.mean() - pair.prefill.outcomes.ttft.mean())]


def burst(setup: Setup) -> list[float]:
    """Requests/s until the last of those that came at once has ended."""
    trace = fixed([0.0] * setup["requests"], setup["prompt"], setup["output"], 4000.0)
    profile = engine_profile(setup["profile"])
    # 70B: 80 layers, 8 KV heads of 128, two bytes each, keys and values.
    moved = Transfer(2 * 2 * 80 * 8 * 128, NVLINK)
    pair = simulate_pair(trace, fleet(profile, 1), fleet(decode_profile(profile), 1), ANY, transfer=moved)
    return [len(trace) / float((pair.ttft + (setup["output"] - 2) * pair.tpot).max())]


KINDS: dict[str, Callable[[Setup], list[float]]] = {
    "prefill": prefill,
    "decode": decode,
    "alone": prefill,
    "rates": rates,
    "balance": balance,
    "transfer": transfer,
    "handover": handover,
    "open": open_loop,
    "burst": burst,
}


def row(setup: Setup) -> Row:
    """A figure with ours beside it."""
    return Row(setup, tuple(KINDS[setup["kind"]](setup)))


def shown(value: float) -> str:
    """Three digits that count."""
    return f"{value:.3g}" if value < 1e3 else f"{value:,.0f}"


def cells(one: Row) -> str:
    """Its line of the table."""
    unit = f" {one.setup['unit']}".rstrip()
    theirs, ours = (", ".join(map(shown, values)) + unit for values in (one.setup["published"], one.ours))
    ratios = ", ".join(f"{ratio:.2f}" for ratio in one.ratios)
    names = list(data()["sources"])
    sources = [names.index(one.setup[key]) + 1 for key in ("source", "input") if key in one.setup]
    what = f"{one.setup['what']} [{', '.join(map(str, sources))}]"
    return f"| {what} | {theirs} | {ours} | {ratios} |"


def spread(rows: Iterable[Row], kind: str, places: slice = slice(None)) -> str:
    """Lowest and highest ratio of this kind; of the figures at these places of each row."""
    found = [ratio for one in rows if one.setup["kind"] == kind for ratio in one.ratios[places]]
    return f"{min(found):.2f}" if len(found) == 1 else f"{min(found):.2f} to {max(found):.2f}"


def busy() -> str:
    """How a prefill engine does at the published rate with each engine's steps, by the formula of M/D/1."""
    sides = (fleet(measured_engines(name)[0], 1) for name in data()["engines"])
    steps = [float(side.run(prefills(fixed([0.0], 512, 2, 60.0)), seed=0).outcomes.ttft[0]) for side in sides]
    shares = [step * PUBLISHED_RATE for step in steps]
    waits = [1e3 * share * step / (2 * (1 - share)) for share, step in zip(shares, steps, strict=True)]
    return (
        f"{' or '.join(f'{share:.0%}' for share in shares)} of the time, "
        f"and the mean wait in its queue is {' or '.join(f'{wait:.0f}' for wait in waits)} ms (M/D/1)"
    )


def slower() -> str:
    """What the page's best static pairs attain with a handover that takes longer."""
    told = []
    for case in cases(quick=False):
        trace = case.trace()
        pair, usual = best_pair(case, trace, seed=0)
        sides = case.sides(Static(pair[0]), Static(pair[1]), pair)
        later = simulate_pair(trace, *sides, case.slo, transfer=Transfer(fixed=SLOW))
        told.append(f"{later.attained:.2%} ({usual.attained:.2%})")
    return ", ".join(told)


def section(rows: list[Row], **more: str) -> Iterator[str]:
    """The page's section. `more`: what the texts name that is not in the rows."""
    values = {kind: spread(rows, kind) for kind in KINDS} | more
    values |= {"ttft": spread(rows, "open", slice(0, 1)), "tpot": spread(rows, "open", slice(1, 2))}

    def told(text: str) -> str:
        return "\n" + textwrap.fill(" ".join(text.format(**values).split()), 120, break_on_hyphens=False)

    yield f"{PUBLISHED}\n"
    yield "Written by `python benchmarks/prefill_decode_published.py`. Each ratio is ours over the published one."
    yield told(data()["summary"]["text"])
    for name, group in data()["groups"].items():
        yield f"\n### {group['title']}\n\n| what | published | ours | ratio |\n|---|---|---|---|"
        yield from (cells(one) for one in rows if one.setup["group"] == name)
        yield told(group["text"])
    yield told(data()["left_out"]["text"]) + "\n\nSources:\n"
    for place, source in enumerate(data()["sources"].values(), 1):
        yield f"{place}. [{source['title']}]({source['url']}). {source['licence']}."


def main() -> int:
    rows = [row(setup) for setup in data()["figures"]]
    text = "\n".join(section(rows, busy=busy(), slower=slower()))
    print(text)
    PAGE.write_text(f"{parted(PAGE.read_text())[0]}\n{text}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
