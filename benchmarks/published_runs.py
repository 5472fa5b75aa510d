"""Runs that llm-d published of its autoscalers on real GPUs, replayed in the simulator.

`python benchmarks/published_runs.py` writes docs/benchmarks/published-runs.md in a minute. Settings, figures, their
sources and what differs are in published_runs.toml.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).parent / "control")]

from tables import table  # noqa: E402

from servingpool.decision.pool import Pool, Slo  # noqa: E402
from servingpool_simulation.baselines import llmd  # noqa: E402
from servingpool_simulation.baselines.measured import prefill_rate  # noqa: E402
from servingpool_simulation.fleet import ColdStart  # noqa: E402
from servingpool_simulation.hardware import EngineProfile, engine_profile  # noqa: E402
from servingpool_simulation.policies import Ours, Policy, Static  # noqa: E402
from servingpool_simulation.run import Result, SimulationOptions, simulate  # noqa: E402
from servingpool_simulation.tables import Floats, Ints  # noqa: E402
from servingpool_simulation.traces import Trace  # noqa: E402

DATA = Path(__file__).with_suffix(".toml")
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks" / "published-runs.md"
SEEDS = (0, 1, 2, 3, 4)
DRAIN = 1200.0
"""Seconds after a load in which a fleet may go back to its minimum, and the last requests may finish."""
PREFILL_RATE = 15_928
"""Tokens/s that llm-d measured of its Qwen3-32B."""
RULE, FIXED, OURS, TAUGHT = "rule", "fixed", "ours", "taught"
RULES: dict[str, Callable[[EngineProfile], Policy]] = {
    "slo-aware": lambda _profile: llmd.slo_aware(),
    "token-aware": lambda profile: llmd.token_aware(prefill_rate(profile)),
}
"""With their published settings. The second one's prefill rate is calibrated on the engine, as its guide asks."""

Setup = Mapping[str, Any]

TEXT = """\
# Published runs, replayed

Written by `python benchmarks/published_runs.py`. **The replayed figures are simulated; no GPU ran for them.** llm-d
measured the published ones with Qwen3-32B on H100, two GPUs a replica.

Each run has the published load, SLO, bounds and first replicas. Three fleets play it: llm-d's rule with its published
settings, the published fixed fleet, and this operator with its one default configuration and no knowledge. Nothing was
tuned for this page. Figures are means of {seeds} seeds, with the lowest and the highest.

{table}

- `!` marks less than {target:.0%}, which the operator is asked for. llm-d's rules know no such share.
- A request attains if it meets both bounds: TTFT 3 s and TPOT 100 ms in the ramp, 2 s and 50 ms in the others.
- Replicas are the Deployment's during the load: least, mean, most. Replica-hours count the load and
  {drain:.0f} minutes after it, for every fleet. So a fleet that shrinks slowly pays for it.
- The burn-in is the traffic with which llm-d trains its predictor. This operator learns from it too.

## In short

Attainment, for so many replica-hours, all replayed:

{short}

## What differs

{differences}

## Sources

{sources}
"""


@cache
def data() -> dict[str, Any]:
    """Runs and sources, as the file has them."""
    return tomllib.loads(DATA.read_text())


@dataclass(frozen=True, slots=True)
class Figures:
    """What one run gave. Times are seconds."""

    attained: float
    p50: float
    """Of TTFT, as the next."""
    p99: float
    least: int
    """Replicas of the Deployment, as the next two."""
    mean: float
    most: int
    hours: float
    """Of replicas."""


def load(setup: Setup, stages: Setup, seed: int) -> Trace:
    """The requests of one load, and DRAIN seconds without any."""
    random = np.random.default_rng(seed)
    spans, rates = stages["spans"], stages["rates"]
    starts = np.concatenate(([0.0], np.cumsum(spans)))
    counts = [round(span * rate) for span, rate in zip(spans, rates, strict=True)]

    def moments(count: int, span: float) -> Floats:
        # inference-perf sends exactly so many, whichever way it spreads them.
        return (
            np.sort(random.random(count)) * span if setup["arrivals"] == "poisson" else np.arange(count) * span / count
        )

    def lengths(mean: float, deviation: float, least: int, most: int) -> Ints:
        drawn: Floats = np.clip(random.normal(mean, deviation, sum(counts)), least, most)
        return np.rint(drawn).astype(np.int64)

    arrival = np.concatenate([at + moments(*stage) for at, *stage in zip(starts, counts, spans, strict=False)])
    prompt, output = lengths(*setup["prompt"]), lengths(*setup["output"])
    return Trace(setup["name"], arrival, prompt, output, float(starts[-1]) + DRAIN)


def in_turn(first: Trace, second: Trace) -> Trace:
    """One load after the other."""
    return Trace(
        second.name,
        np.concatenate((first.arrival, first.duration + second.arrival)),
        np.concatenate((first.prompt, second.prompt)),
        np.concatenate((first.output, second.output)),
        first.duration + second.duration,
    )


def qwen3_32b_tp2() -> EngineProfile:
    """A stand-in: no step times of Qwen3-32B are shipped.

    The pair with the nearest weights per GPU (70B / 4 = 17.6B against 32.8B / 2 = 16.4B), with every step scaled so
    that the prefill rate is the 15,928 tokens/s that llm-d measured. A token of KV cache is 64 layers * 8 heads * 128 *
    2 * 2 bytes = 262 kB, 131 kB for each of 2 GPUs, against 80 * 8 * 128 * 2 * 2 / 4 = 82 kB: reading it takes 1.6
    times as long. The cache holds what 2 * 80 GB * 0.9 leave beside 65.5 GB of weights and about 6 GB of activations:
    275k tokens.
    """
    near = _scaled_to_prefill()
    per_token = engine_profile("h100-70b-tp4").decode_per_kv_token * (64 / 2) / (80 / 4)
    return replace(near, name="Qwen3-32B TP2 stand-in", decode_per_kv_token=per_token, kv_tokens=275_000, gpus=2)


def _scaled_to_prefill() -> EngineProfile:
    """h100-70b-tp4 with every step scaled so that it prefills as fast as llm-d's Qwen3-32B."""
    shipped = engine_profile("h100-70b-tp4")
    factor = prefill_rate(shipped) / PREFILL_RATE
    return replace(shipped.scaled(factor), name=f"h100-70b-tp4, steps times {factor:.3f}")


def engine(setup: Setup) -> EngineProfile:
    """The stand-in, with the published KV cache if there is one."""
    stand_in = qwen3_32b_tp2()
    return replace(stand_in, kv_tokens=setup.get("kv_tokens", stand_in.kv_tokens))


def play(setup: Setup, fleet: str, seed: int) -> Figures:
    """One run with one of RULE, FIXED, OURS, TAUGHT."""
    trace, begin, profile = load(setup, setup, seed), 0.0, engine(setup)
    if fleet == TAUGHT:
        burn_in = load(setup, setup["burn_in"], seed + len(SEEDS))  # other lengths than the run's
        trace, begin = in_turn(burn_in, trace), burn_in.duration
    initial = setup["fixed"] if fleet == FIXED else setup["min"]
    policy = Static(initial) if fleet == FIXED else RULES[setup["rule"]](profile) if fleet == RULE else Ours()
    options = SimulationOptions(
        cold_start=ColdStart(setup["cold_start"]), initial_replicas=initial, seed=seed, tail=DRAIN
    )
    pool = Pool(Slo(**setup["slo"]), setup["min"], setup["max"])
    return figures(simulate(trace, profile, pool, policy, options), begin, begin + sum(setup["spans"]))


def figures(result: Result, begin: float, load_ends: float) -> Figures:
    """Attainment and TTFT of the requests from `begin` on, replicas until `load_ends`, replica-hours DRAIN s longer.

    `begin`, `load_ends`: seconds of the trace.
    """
    truth, series = result.outcomes, result.series
    scored = truth.arrival >= begin
    p50, p99 = np.nanpercentile(truth.ttft[scored], (50, 99)).tolist()
    time, replicas = np.array(series.time), np.array(series.requested)
    loaded = replicas[(time >= begin) & (time < load_ends)]
    counted = replicas[(time >= begin) & (time < load_ends + DRAIN)]
    return Figures(
        attained=float(truth.met[scored].mean()),
        p50=p50,
        p99=p99,
        least=int(loaded.min()),
        mean=float(loaded.mean()),
        most=int(loaded.max()),
        hours=float(counted.mean()) * (load_ends + DRAIN - begin) / 3600,
    )


@dataclass(frozen=True, slots=True)
class Row:
    """All seeds of one run with one fleet."""

    setup: Setup
    fleet: str
    seeds: Sequence[Figures]

    def mean(self, figure: str) -> float:
        """Over the seeds."""
        return fmean(self._each(figure))

    def _each(self, figure: str) -> list[float]:
        return [getattr(one, figure) for one in self.seeds]

    @property
    def name(self) -> str:
        """The fleet's name on the page."""
        return {
            RULE: f"llm-d {self.setup['rule']}",
            FIXED: f"{self.setup['fixed']} fixed",
            OURS: "ServingPool",
            TAUGHT: "ServingPool after the published burn-in",
        }[self.fleet]

    @property
    def misses(self) -> bool:
        """It attains less than the operator is asked for."""
        return self.mean("attained") < Slo(**self.setup["slo"]).attainment

    def cells(self) -> list[str]:
        """Its line of the table."""
        published = self.setup["published"].get(self.fleet, {})
        replicas = [min(self._each("least")), self.mean("mean"), max(self._each("most"))]
        same = replicas[0] == replicas[2]
        return [
            f"{self.setup['name']}: {self.name}",
            published.get("attained", "-"),
            self._spread("attained", "{:.1%}".format),
            published.get("p50", "-"),
            seconds(self.mean("p50")),
            published.get("p99", "-"),
            self._spread("p99", seconds),
            published.get("replicas", "-"),
            f"{replicas[0]:.0f}" if same else f"{replicas[0]:.0f}, {replicas[1]:.2f}, {replicas[2]:.0f}",
            self._spread("hours", "{:.2f}".format),
        ]

    def _spread(self, figure: str, shown: Callable[[float], str]) -> str:
        """Its mean, marked if it is a miss, and the ends."""
        mean, *ends = (shown(find(self._each(figure))) for find in (fmean, min, max))
        mark = "!" if figure == "attained" and self.misses else ""
        return f"{mean}{mark}" if ends[0] == ends[1] else f"{mean}{mark} ({ends[0]} to {ends[1]})"


def seconds(value: float) -> str:
    """As the publication rounds."""
    return f"{value:.0f} s" if value >= 100 else f"{value:.1f} s" if value >= 10 else f"{value:.2f} s"


def fleets(setup: Setup) -> list[str]:
    """That this run is played with."""
    return [RULE, FIXED, OURS, *([TAUGHT] if "burn_in" in setup else [])]


def row(setup: Setup, fleet: str) -> Row:
    """One of the table."""
    return Row(setup, fleet, [play(setup, fleet, seed) for seed in SEEDS])


HEADER = (
    "run: fleet",
    *("attained, published", "replayed"),
    *("TTFT p50, published", "replayed"),
    *("TTFT p99, published", "replayed"),
    *("replicas, published", "replayed"),
    "replica-hours, replayed",
)


def short(found: Sequence[Row]) -> Iterator[str]:
    """What ours did beside the others, run by run."""
    for name in dict.fromkeys(one.setup["name"] for one in found):
        run = {one.fleet: one for one in found if one.setup["name"] == name}
        yield from (f"{name}: {compared(run[each], run[RULE], run[FIXED])}" for each in (OURS, TAUGHT) if each in run)


def compared(ours: Row, rule: Row, fixed: Row) -> str:
    """In words, the bad ones included."""
    points = 100 * (ours.mean("attained") - rule.mean("attained"))
    dearer = ours.mean("hours") / rule.mean("hours") - 1
    told = [
        "; ".join(f"{one.name} {one.mean('attained'):.1%} for {one.mean('hours'):.2f}" for one in (ours, rule, fixed))
    ]
    if points <= -0.05:
        told.append(f"**Worse: {-points:.1f} points less attained than llm-d's rule**")
    if dearer >= 0.005:
        told.append(f"**Worse: {dearer:.0%} more replica-hours than llm-d's rule**")
    if ours.misses:
        told.append(
            "**Both miss the SLO in the replay**"
            if rule.misses
            else "**Worse: it misses the SLO, and the rule holds it**"
        )
    return ". ".join(told) + "."


def page(found: Sequence[Row]) -> str:
    """The page."""
    sources = [f"- [{one['title']}]({one['url']}). {one['licence']}." for one in data()["sources"].values()]
    return TEXT.format(
        seeds=len(SEEDS),
        table=table(HEADER, [one.cells() for one in found]),
        target=Slo(1.0).attainment,
        drain=DRAIN / 60,
        short=bullets(short(found)),
        differences=bullets(f"**{one['what']}.** {' '.join(one['text'].split())}" for one in data()["differences"]),
        sources="\n".join(sources),
    )


def bullets(texts: Iterable[str]) -> str:
    """A list."""
    return "\n".join(
        textwrap.fill(f"- {text}", 120, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)
        for text in texts
    )


def main() -> None:
    """Play all, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=PAGE)
    asked = parser.parse_args()
    text = page([row(run, fleet) for run in data()["runs"] for fleet in fleets(run)])
    print(text)
    asked.output.write_text(text)


if __name__ == "__main__":
    main()
