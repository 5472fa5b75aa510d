"""Sequences of observations, however odd, and lives of a fleet: what must hold for any of them is checked elsewhere."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from hypothesis import strategies as st

from servingpool.decision.observation import Histogram, Observation, Replica, ReplicaMetrics, Unknown
from servingpool.decision.params import Params
from servingpool.decision.pool import Pool, Slo, Window

from ..fuzzing import EXAMPLES  # noqa: TID252, tests are no package of an installed name
from .world import Engine

Life = tuple[Pool, list["Spell"]]
Sequence = tuple[Pool, list[tuple[float, Observation]]]

PROGRESS = 500
"""Sequences between two lines of progress, in a soak."""

LAYOUTS = ((0.05, 1.0, 2.5), (0.1, 2.0, 5.0))
"""Buckets of an engine and of its next version: a bound may be exact in one and inside a bucket of the other."""

figures = st.floats(min_value=0.0, max_value=1e9, allow_nan=False)
readings = st.one_of(figures, st.just(Unknown("absent")))


@st.composite
def histograms(draw) -> Histogram | Unknown:
    if draw(st.booleans()):
        return Unknown("absent")
    steps = draw(st.lists(st.floats(0, 1e6), min_size=4, max_size=4))
    counts = [sum(steps[: i + 1]) for i in range(4)]
    return Histogram(draw(st.sampled_from(LAYOUTS)), tuple(counts[:3]), draw(st.floats(0, 1e7)), counts[3])


@st.composite
def observations(draw, now: float) -> Observation:
    names = [f"pod-{i}" for i in range(draw(st.integers(0, 5)))]
    ready = tuple(Replica(name, age=draw(st.floats(1, 1e5)), ready_for=draw(st.floats(0, 1e5))) for name in names)
    starting = tuple(
        Replica(f"new-{i}", age=draw(st.floats(0, 1e4)), unschedulable=draw(st.booleans()))
        for i in range(draw(st.integers(0, 3)))
    )
    metrics = tuple(
        ReplicaMetrics(
            replica=name,
            scraped_at=now - draw(st.floats(0, 40)),
            running=draw(readings),
            waiting=draw(readings),
            kv_cache_usage=draw(st.floats(0, 1)),
            generation_tokens=draw(readings),
            prompt_tokens=draw(readings),
            cached_prompt_tokens=draw(readings),
            admission_rejections=draw(readings),
            time_to_first_token=draw(histograms()),
            inter_token_latency=draw(histograms()),
            time_per_output_token=draw(histograms()),
        )
        for name in names
        if draw(st.integers(0, 4)) > 0
    )
    blind = draw(st.integers(0, 5)) == 0
    return Observation(
        requested=draw(st.integers(0, 12)),
        ready=ready,
        starting=starting,
        metrics=Unknown("no answer") if blind else metrics,
        rollout=draw(st.booleans()),
    )


@st.composite
def windows(draw, low: int, high: int) -> Window:
    begin = 1.7e9 + draw(st.integers(-1000, 3000))
    least = draw(st.one_of(st.none(), st.integers(0, high)))
    most = draw(st.one_of(st.none(), st.integers(low if least is None else least, high + 10)))
    name = draw(st.sampled_from(["day", "night"]))
    return Window(name, begin, begin + draw(st.integers(1, 3000)), least, most)


@st.composite
def pools(draw) -> Pool:
    low = draw(st.integers(0, 4))
    high = low + draw(st.integers(0, 20))
    ttft = draw(st.one_of(st.none(), st.floats(0.01, 60)))
    tpot = draw(st.floats(0.001, 1)) if ttft is None else draw(st.one_of(st.none(), st.floats(0.001, 1)))
    return Pool(
        slo=Slo(ttft, tpot, draw(st.floats(0.5, 0.999))),
        min_replicas=low,
        max_replicas=high,
        in_charge=draw(st.booleans()),
        params=Params(calibration=draw(st.sampled_from([0.0, 300.0]))),
        windows=tuple(draw(st.lists(windows(low, high), max_size=3))),
        max_change=draw(st.sampled_from([math.inf, math.inf, 1, 3])),
    )


@st.composite
def sequences(draw) -> Sequence:
    now, observed = 1.7e9, []
    for _ in range(draw(st.integers(1, 10))):
        now += draw(st.sampled_from([0.0, 5.0, 15.0, 15.0, 60.0, 5000.0]))
        observed.append((now, draw(observations(now))))
    return draw(pools()), observed


@dataclass(frozen=True)
class Spell:
    """A while in the life of a fleet: its traffic, and what goes wrong at its start or throughout."""

    rate: float
    """Requests/s."""
    ticks: int
    seconds: float
    trouble: str


TROUBLES = ("none", "none", "none", "lost scrape", "blind", "reset", "one more", "one less", "rollout", "clock back")


@st.composite
def lives(draw) -> tuple[Pool, list[Spell]]:
    spells = st.builds(
        Spell,
        rate=st.sampled_from([0.0, 1e-3, 0.5, 8.0, 30.0, 400.0, 1e6]),
        ticks=st.integers(1, 6),
        seconds=st.sampled_from([5.0, 15.0, 15.0, 60.0, 900.0]),
        trouble=st.sampled_from(TROUBLES),
    )
    return draw(pools()), draw(st.lists(spells, min_size=1, max_size=5))


def live(pool: Pool, spells: list[Spell]) -> Iterator[tuple[float, Observation]]:
    """Engines that behave, in a fleet that does not."""
    now, serial, engines = 1.7e9, 3, [Engine(f"vllm-{number}", 1.69e9) for number in range(3)]
    for spell in spells:
        if spell.trouble == "reset" and engines:
            engines[0] = Engine(engines[0].name, now)
        elif spell.trouble == "one more" and len(engines) < 8:
            serial += 1
            engines.append(Engine(f"vllm-{serial}", now))
        elif spell.trouble == "one less" and engines:
            engines.pop(0)
        elif spell.trouble == "clock back":
            now -= 1800.0
        for _ in range(spell.ticks):
            now += spell.seconds
            for engine in engines:
                engine.serve(spell.rate / len(engines), spell.seconds, 1000.0, 200.0)
            read = engines[1:] if spell.trouble == "lost scrape" else engines
            metrics = tuple(engine.page(now) for engine in read)
            yield (
                now,
                Observation(
                    requested=len(engines),
                    ready=tuple(
                        Replica(e.name, age=now - e.ready_at + 100.0, ready_for=now - e.ready_at) for e in engines
                    ),
                    metrics=Unknown("no answer") if spell.trouble == "blind" else metrics,
                    rollout=spell.trouble == "rollout",
                ),
            )


HUGE_DEMAND = (
    Pool(slo=Slo(None, 1.0, 0.5), min_replicas=0, max_replicas=0, in_charge=False),
    [Spell(1e6, 3, 900.0, "none"), Spell(0.0, 1, 5.0, "reset"), Spell(0.0, 2, 15.0, "lost scrape")],
)
"""A soak's 22,000th: more demand was learned than a profile may hold, so what was written could not be read."""

checked = itertools.count(1)


def tell_progress() -> None:
    number = next(checked)
    if number % PROGRESS == 0:
        sys.stderr.write(f"{number} of {EXAMPLES} sequences\n")
