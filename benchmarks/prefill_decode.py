"""Prefill and decode on engines of their own, each fleet a pool of its own, against the best static pair.

`python benchmarks/prefill_decode.py` writes docs/benchmarks/prefill-decode.md, in some minutes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from statistics import fmean

from servingpool.decision.pool import Slo
from servingpool.decision.roles import HANDOVER, decode_slo, prefill_slo
from servingpool_simulation.families.large import conv_hours
from servingpool_simulation.families.resampled import code_day
from servingpool_simulation.hardware import EngineProfile, engine_profile
from servingpool_simulation.policies import Ours, Policy, Static
from servingpool_simulation.traces import Trace

sys.path[:0] = [str(Path(__file__).parent / "control")]

from disaggregated import PairResult, Side, decode_profile, prefills, simulate_pair  # noqa: E402

PAGE = Path(__file__).parents[1] / "docs/benchmarks/prefill-decode.md"
HOUR, TUESDAY = 3600.0, 2
GOAL = 1.15
"""GPU-hours over those of the best static pair."""
MOST = 24
OURS = Ours


@dataclass(frozen=True, slots=True)
class Case:
    """Traffic, the engines of both fleets, and what clients are promised."""

    slug: str
    title: str
    trace: Callable[[], Trace]
    prefill: EngineProfile
    decode: EngineProfile
    slo: Slo

    @property
    def slos(self) -> tuple[Slo, Slo]:
        """What the operator asks of each role."""
        return prefill_slo(self.slo), decode_slo(self.slo)

    def sides(self, prefill: Policy, decode: Policy, initial: tuple[int, int]) -> tuple[Side, Side]:
        """Both fleets under these policies."""
        first, second = self.slos
        return (
            Side(self.prefill, prefill, initial[0], MOST, first),
            Side(decode_profile(self.decode), decode, initial[1], MOST, second),
        )


@dataclass(frozen=True, slots=True)
class Found:
    """What became of a case with one seed."""

    case: Case
    pair: tuple[int, int]
    """Replicas of the best static pair."""
    static: PairResult
    ours: PairResult
    seed: int

    @property
    def ratio(self) -> float:
        """Our GPU-hours over the pair's."""
        return self.ours.gpu_hours / self.static.gpu_hours

    @property
    def attains(self) -> bool:
        """Whether ours holds the SLO."""
        return self.ours.attained >= self.case.slo.attainment


def cases(*, quick: bool) -> list[Case]:
    """All of them; of the quick ones half an hour each."""
    hours = 0.5 if quick else 4.0
    h100, a100 = engine_profile("h100-8b-tp1"), engine_profile("a100-8b-tp1")
    code = partial(_between, partial(code_day, TUESDAY, scale=3.0), 10 * HOUR, hours)
    conv = partial(_between, partial(conv_hours, 1.0, begin=9, hours=4), 0.0, hours)
    mixed = partial(_between, partial(conv_hours, 0.6, begin=14, hours=4), 0.0, hours)
    return [
        Case("conv", "conversations, both on H100", conv, h100, h100, Slo(1.0, 0.04)),
        Case("code", "code, both on H100", code, h100, h100, Slo(2.0, 0.04)),
        Case("mixed", "conversations, prefill on H100 and decode on A100", mixed, h100, a100, Slo(1.0, 0.05)),
    ]


def _between(trace: Callable[[], Trace], begin: float, hours: float) -> Trace:
    return trace().between(begin, begin + hours * HOUR)


def best_pair(case: Case, trace: Trace, seed: int) -> tuple[tuple[int, int], PairResult]:
    """The smallest pair that never changes and holds the SLO, known in hindsight."""
    best: tuple[tuple[int, int], PairResult] | None = None
    for first in count(1):
        if best is not None and first >= sum(best[0]):
            return best
        side, _ = case.sides(Static(first), Static(1), (first, 1))
        prefilled = side.run(prefills(trace), seed)
        if prefilled.score.attainment < case.slo.attainment and first < MOST:
            continue
        for second in range(1, (MOST if best is None else sum(best[0]) - first - 1) + 1):
            sides = case.sides(Static(first), Static(second), (first, second))
            found = simulate_pair(trace, *sides, case.slo, seed=seed, prefilled=prefilled)
            if found.attained >= case.slo.attainment:
                best = (first, second), found
                break
    raise AssertionError("an endless loop ends")


def measure(slug: str, seed: int, *, quick: bool) -> Found:
    """One case with one seed."""
    case = next(case for case in cases(quick=quick) if case.slug == slug)
    trace = case.trace()
    pair, static = best_pair(case, trace, seed)
    ours = simulate_pair(trace, *case.sides(OURS(), OURS(), pair), case.slo, seed=seed)
    return Found(case, pair, static, ours, seed)


INTRODUCTION = f"""\
# Prefill and decode apart

Written by `python benchmarks/prefill_decode.py`. Simulated; no GPU ran for this page. Both roles of a pool, each
decided by the operator's core on its own engines' metrics: the prefill engines' with the client's TTFT less
{HANDOVER:g} s, the decode engines' with the same and its TPOT, each at the square root of the client's attainment: a
request must meet both. Neither knows anything at the start; they find the best static pair, as every policy of these
pages does. An 8B model on one GPU a replica, step times as measured on each GPU, least-loaded routing, cold starts of
80 to 120 s. A request's KV cache moves at 200 Gbit/s after its prefill, and 8 ms on top: longer than Splitwise (ISCA
2024) measured where layers move as they are computed, 5 ms on H100 and 8 ms on A100 whatever the prompt. How far this
model of two fleets is from published measurements: [a record](../records/prefill-decode-published.md).

The best static pair is the smallest in hindsight that holds the SLO.
"""
HEAD = """
| seed | best static pair | attained | ours attained | TTFT met | TPOT met | GPU-hours, prefill + decode | / best pair |
|---|---|---|---|---|---|---|---|"""


def section(seeds: Sequence[Found]) -> Iterator[str]:
    """A case's section of the page, a row for each seed."""
    case = seeds[0].case
    yield f"\n## {case.title}\n"
    yield f"SLO {case.slo.time_to_first_token:g} s, {case.slo.time_per_output_token:g} s, {case.slo.attainment:.0%}."
    yield HEAD
    for one in seeds:
        ours = one.ours
        cells = (
            f"{one.seed}",
            f"{one.pair[0]} + {one.pair[1]}",
            f"{one.static.attained:.2%}",
            f"{ours.attained:.2%}" + "!" * (not one.attains),
            f"{ours.first_tokens:.2%}",
            f"{ours.output_tokens:.2%}",
            f"{ours.prefill.score.gpu_hours:.1f} + {ours.decode.score.gpu_hours:.1f}",
            f"{one.ratio:.2f}",
        )
        yield "| " + " | ".join(cells) + " |"
    ratio, attained = fmean(one.ratio for one in seeds), fmean(one.ours.attained for one in seeds)
    held = attained >= case.slo.attainment and ratio <= GOAL
    verdict = "reached" if held else "**not reached**"
    yield f"\n- In the mean {attained:.2%} attained at {ratio:.2f} of the best pair, goal {GOAL:.2f}: {verdict}."


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="half an hour of each; nothing is written")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="a row of the tables each")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    given = parser.parse_args()
    text = [INTRODUCTION]
    runs = [(case.slug, seed) for case in cases(quick=given.quick) for seed in given.seeds]
    with ProcessPoolExecutor(given.jobs) as crew:
        found = list(crew.map(partial(measure, quick=given.quick), *zip(*runs, strict=True)))
    for at in range(0, len(found), len(given.seeds)):
        text += section(found[at : at + len(given.seeds)])
    print("\n".join(text[1:]))
    if not given.quick:
        PAGE.write_text("\n".join(text) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
