"""A backtest from a recording: what was, what would have been, and how far it can be believed."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from servingpool.api.duration import brief, write
from servingpool.backtest.arrivals import Arrivals, reconstruct
from servingpool.backtest.bursts import burstiness
from servingpool.backtest.engine_fit import USUAL_BATCH, EngineFit, fit
from servingpool.backtest.intervals import gather
from servingpool.backtest.observed import Observed, observe, serving
from servingpool.backtest.recording import Chunk, Floats, Header, RecordingError
from servingpool.backtest.replay import AsItWas, Bins, Replayed, World, replay, replay_as_it_was
from servingpool.decision.pool import Pool
from servingpool_simulation.fleet import ColdStart
from servingpool_simulation.policies import TICK

FORMAT = 1
"""Of the JSON; rises when a key changes its meaning."""
WIDTH = 300.0
"""Seconds of a bin."""
WARM_UP = 7200.0
"""Seconds that the core learns from before it is in charge, as the operator reads them from Prometheus."""
LONGEST_WARM_UP = 0.25
"""Of the history."""
COLD_START = 120.0
"""Seconds where no start was recorded: the default of spec.behavior.coldStart."""
SHORT = 1.5 * 86_400.0
"""Seconds of history up to which Auto is replayed several times. A longer one has enough bursts for chance to even out."""
TIMES = 3
"""How often, with other draws of arrivals, lengths, start-up times and scrape phases; the middle one is shown."""
RARE = 0.001
"""Share of late requests below which the history never touched the engine's limit."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a history."""

    pool: Pool
    cold_start: float | None = None
    """Seconds; as recorded where None."""
    price: float | None = None
    """Dollars of a replica's hour."""
    seed: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Backtest:
    """The answer."""

    header: Header
    question: Question
    engine: EngineFit
    cold_start: float
    """Seconds."""
    clump: float
    """Requests that come together, as fitted."""
    observed: Observed
    was: Replayed
    """The history's own fleet in the simulator: what the model makes of what is known."""
    auto: Replayed
    auto_hours: tuple[float, ...]
    """GPU-hours of each time that Auto was replayed, ascending; `auto` is the middle one."""
    arrivals: Arrivals
    scored_from: float
    """Unix seconds."""
    scored_until: float
    auto_initial: int
    """Replicas that Auto began with."""
    ttft_from_admission: bool
    scrape_interval: float
    """Seconds, as is usual in the history."""

    @property
    def scored_seconds(self) -> float:
        """How long it was in charge."""
        return self.scored_until - self.scored_from

    @property
    def hours(self) -> tuple[float, float]:
        """GPU-hours of the history's fleet and of Auto's: loading and draining count where they are known."""
        was, auto = self.observed.replica_hours(self.scored_from), self.auto.replica_seconds / 3600.0
        return was * self.header.gpus, auto * self.header.gpus

    @property
    def dollars(self) -> tuple[float, float] | None:
        """What they cost; None without a price."""
        price = self.question.price
        return (
            None
            if price is None
            else (self.hours[0] / self.header.gpus * price, self.hours[1] / self.header.gpus * price)
        )

    @property
    def held(self) -> bool:
        """Auto would have kept the SLO."""
        attained = self.auto.attainment
        return attained is None or attained >= self.question.pool.slo.attainment

    @property
    def bins(self) -> Bins:
        """Auto's, at the same times as the observed ones."""
        return self.auto.by_bin(self.observed.at, self.observed.width)

    def unknowns(self) -> Iterator[str]:
        """What the history does not tell, each a sentence."""
        lost = sum(end - begin for begin, end in self.arrivals.holes)
        if lost:
            yield (
                f"No pod was scraped for {brief(lost)} in {len(self.arrivals.holes)} gaps. "
                "They are filled with the traffic that came before each."
            )
        if self.arrivals.uncertain > RARE:
            yield (
                f"{self.arrivals.uncertain:.1%} of the requests came between scrapes more than 3 minutes apart. "
                "They are spread evenly, so bursts among them are lost."
            )
        late = self.observed.late[self.observed.at >= self.scored_from].sum()
        if late < RARE * max(1.0, float(self.observed.requests.sum())):
            yield (
                "Hardly a request was late, so the history never touched the engine's limit. "
                "Its behaviour there follows from the step times alone."
            )
        if not self.engine.batch_known:
            yield f"No replica was seen full. A full batch is taken to hold {USUAL_BATCH} requests."
        if self.ttft_from_admission:
            yield "This engine's TTFT leaves out its queue. Observed attainment is too high where requests queued."
        if self.question.cold_start is None and not self.header.starts:
            assumed = write(COLD_START)
            yield f"No start of a pod was recorded. A cold start is taken to last {assumed}; set --cold-start."
        if self.observed.requested is None:
            yield (
                "Prometheus has no spec.replicas. The history's GPU-hours count pods while they were scraped, "
                "not while they loaded."
            )
        yield (
            "Not recorded: the spread of answers' lengths (taken as 0.8 of their mean), the KV cache's size (taken as "
            "enough), routing (taken as least-loaded), bursts within a scrape interval (fitted to the mean TTFT)."
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON. Times are Unix seconds, latencies seconds, attainment a share; null where not known."""
        bins, was = self.bins, self.was.by_bin(self.observed.at, self.observed.width)
        hours, slo = self.hours, self.question.pool.slo
        return {
            "format": FORMAT,
            "target": f"{self.header.namespace}/{self.header.target}",
            "begin": self.scored_from,
            "end": self.scored_until,
            "slo": asdict(slo),
            "held": self.held,
            "gpu_hours": {
                "observed": hours[0],
                "auto": hours[1],
                "saved": hours[0] - hours[1],
                "each_replay": self.auto_hours,
            },
            "dollars": None
            if self.dollars is None
            else {"observed": self.dollars[0], "auto": self.dollars[1], "saved": self.dollars[0] - self.dollars[1]},
            "attainment": {
                "observed": self.observed.attainment(self.scored_from),
                "model_of_observed": self.was.attainment,
                "auto": self.auto.attainment,
            },
            "latency": {"auto": self.auto.quantiles(), "model_of_observed": self.was.quantiles()},
            "engine": asdict(self.engine),
            "cold_start": self.cold_start,
            "clump": self.clump,
            "unknowns": list(self.unknowns()),
            "series": {
                "time": self.observed.at.tolist(),
                "requests": self.observed.requests.tolist(),
                "serving": self.observed.serving.tolist(),
                "requested": None if self.observed.requested is None else self.observed.requested.tolist(),
                "observed": _shown(self.observed.requests, self.observed.late, self.observed.ttft, self.observed.tpot),
                "model_of_observed": _shown(was.requests, was.late, was.ttft, was.tpot),
                "auto": _shown(bins.requests, bins.late, bins.ttft, bins.tpot),
            },
            "decisions": {"time": self.auto.at, "ordered": self.auto.requested, "ready": self.auto.ready},
            "changes": [{**change.to_dict(), "at": at} for at, change in self.auto.changes],
        }


def backtest(
    header: Header,
    chunks: Iterable[Chunk],
    question: Question,
    progress: Callable[[str], None] = lambda _: None,
    *,
    processes: int = 2,
) -> Backtest:
    """Raises RecordingError where the history is too short or shows nothing to learn from."""
    progress("reading")
    intervals = gather(chunks, question.pool.slo, header.begin)
    if not len(intervals.end):
        raise RecordingError("holds no two scrapes of a pod")
    end = min(header.end, float(intervals.end[-1]))
    engine = fit(intervals)
    observed = observe(intervals, question.pool.slo, header.begin, end, WIDTH)
    warm_up = min(WARM_UP, LONGEST_WARM_UP * (end - header.begin)) // WIDTH * WIDTH
    cold_start = question.cold_start
    if cold_start is None:
        cold_start = statistics.median(header.starts) if header.starts else COLD_START
    world = World(
        arrivals=reconstruct(intervals, header.begin, end, question.seed),
        profile=engine.profile(header.engine, header.gpus),
        pool=question.pool,
        cold_start=ColdStart(cold_start),
        scrape_interval=intervals.scrape_interval,
        begin=header.begin,
        end=end,
        warm_up=warm_up,
        initial=_initial(observed, warm_up),
        seed=question.seed,
    )
    ticks = int((end - header.begin) // TICK) + 1
    at = header.begin + TICK * np.arange(ticks, dtype=np.float64)
    fleet = AsItWas(at, serving(intervals, header.begin, ticks, TICK))
    progress("fitting the bursts")
    clump = 1.0 if intervals.ttft_from_admission else burstiness(world, fleet, intervals)
    arrivals = reconstruct(intervals, header.begin, end, question.seed, clump)
    world = replace(world, arrivals=arrivals)
    progress("replaying")
    worlds = [world]
    for seed in range(question.seed + 1, question.seed + (TIMES if end - header.begin <= SHORT else 1)):
        worlds.append(replace(world, arrivals=reconstruct(intervals, header.begin, end, seed, clump), seed=seed))
    if processes > 1:
        with ProcessPoolExecutor(processes - 1) as pool:
            others = [pool.submit(replay, one) for one in worlds[1:]]
            other = pool.submit(replay_as_it_was, world, fleet)
            first = replay(world)
            was, autos = other.result(), [first, *(each.result() for each in others)]
    else:
        was, autos = replay_as_it_was(world, fleet), [replay(one) for one in worlds]
    autos.sort(key=lambda one: one.replica_seconds)
    auto = autos[len(autos) // 2]
    return Backtest(
        header=header,
        question=question,
        engine=engine,
        cold_start=cold_start,
        clump=clump,
        observed=observed,
        was=was,
        auto=auto,
        auto_hours=tuple(one.replica_seconds / 3600.0 * header.gpus for one in autos),
        arrivals=arrivals,
        scored_from=header.begin + warm_up,
        scored_until=end,
        auto_initial=world.initial,
        ttft_from_admission=intervals.ttft_from_admission,
        scrape_interval=intervals.scrape_interval,
    )


def _initial(observed: Observed, warm_up: float) -> int:
    """Replicas of the warm-up."""
    part = observed.at <= observed.at[0] + max(warm_up, observed.width)
    return max(1, round(float(np.median(observed.serving[part]))))


def _shown(requests: Floats, late: Floats, ttft: Floats, tpot: Floats) -> dict[str, list[float | None]]:
    attained = np.where(requests > 0, 1.0 - late / np.maximum(requests, 1.0), np.nan)
    columns = {"attainment": attained, "ttft": ttft, "tpot": tpot}
    return {name: [None if np.isnan(one) else float(one) for one in column] for name, column in columns.items()}
