"""A backtest from a recording: what was, what would have been, and how far it can be believed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from servingpool.api.duration import brief, write
from servingpool.decision.pool import Pool
from servingpool.recording.format import Floats, Header
from servingpool.recording.verdict import History
from servingpool_backtest.arrivals import Arrivals
from servingpool_backtest.autoscaler_rule import Rule
from servingpool_backtest.engine_fit import USUAL_BATCH, EngineFit
from servingpool_backtest.observed import Observed
from servingpool_backtest.replay import Bins, Replayed

FORMAT = 1
"""Of the JSON; rises when a key changes its meaning."""
COLD_START = 120.0
"""Seconds where no start was recorded: the default of spec.behavior.coldStart."""
WORST_HOURS = 0.31
"""Share by which GPU-hours were off at worst on histories with gaps (docs/explanation/evidence.md)."""
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
    rule: Rule | None = None
    """An autoscaler whose rule is replayed too."""
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
    rule: Replayed | None
    """The autoscaler's rule in charge; None without one that can be replayed."""
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
    def hours(self) -> tuple[float, float]:
        """GPU-hours of the history's fleet and of Auto's: loading and draining count where they are known."""
        was, auto = self.observed.replica_hours(self.scored_from), self.auto.replica_seconds / 3600.0
        return was * self.header.gpus, auto * self.header.gpus

    @property
    def rule_hours(self) -> float | None:
        """GPU-hours of the autoscaler's rule, replayed; None without one."""
        return None if self.rule is None else self.rule.replica_seconds / 3600.0 * self.header.gpus

    @property
    def dollars(self) -> tuple[float, float] | None:
        """What they cost; None without a price."""
        price, gpus = self.question.price, self.header.gpus
        return None if price is None else (self.hours[0] / gpus * price, self.hours[1] / gpus * price)

    @property
    def held(self) -> bool:
        """Auto would have kept the SLO."""
        attained = self.auto.attainment
        return attained is None or attained >= self.question.pool.slo.attainment

    @property
    def history(self) -> History:
        """What the history is worth."""
        return History(
            seconds=self.scored_until - self.header.begin,
            missing=sum(end - begin for begin, end in self.arrivals.holes),
            modelled=self.was.attainment,
            observed=self.observed.attainment(self.scored_from),
        )

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why this is no verdict; empty where it is one."""
        return tuple(self.history.doubts())

    @property
    def hours_band(self) -> tuple[float, float]:
        """GPU-hours of Auto, least and most, where there is no verdict."""
        return self.auto_hours[0] * (1.0 - WORST_HOURS), self.auto_hours[-1] * (1.0 + WORST_HOURS)

    @property
    def bins(self) -> Bins:
        """Auto's, at the same times as the observed ones."""
        return self.auto.by_bin(self.observed.at, self.observed.width)

    def unknowns(self) -> Iterator[str]:
        """What the history does not tell, each a sentence."""
        lost = sum(end - begin for begin, end in self.arrivals.holes)
        if lost:
            yield f"No pod was scraped for {brief(lost)} in {len(self.arrivals.holes)} gaps, taken as what came before."
        if self.arrivals.uncertain > RARE:
            yield f"{self.arrivals.uncertain:.1%} of requests came between rare scrapes: bursts among them are lost."
        late = self.observed.late[self.observed.at >= self.scored_from].sum()
        if late < RARE * max(1.0, float(self.observed.requests.sum())):
            yield "Hardly a request was late: what the engine does at its limit follows from its step times alone."
        if not self.engine.batch_known:
            yield f"No replica was seen full. A full batch is taken to hold {USUAL_BATCH} requests."
        if self.ttft_from_admission:
            yield "This engine's TTFT leaves out its queue. Observed attainment is too high where requests queued."
        if self.question.cold_start is None and not self.header.starts:
            yield f"No start of a pod was recorded: a cold start is taken as {write(COLD_START)}; set --cold-start."
        if self.observed.requested is None:
            yield "Prometheus has no spec.replicas: the history's GPU-hours leave out pods while they loaded."
        if self.question.rule is not None:
            yield from self.question.rule.lost()
        yield "Not recorded: answers' spread (taken as 0.8 of the mean), KV cache (enough), routing (least-loaded)."

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
            "verdict": None if self.doubts else "held" if self.held else "missed",
            "doubts": list(self.doubts),
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
            "rule": None
            if self.rule is None or self.question.rule is None
            else {
                "name": self.question.rule.name,
                "described": self.question.rule.described(),
                "gpu_hours": self.rule_hours,
                "attainment": self.rule.attainment,
                "latency": self.rule.quantiles(),
                "decisions": {"time": self.rule.at, "ordered": self.rule.requested, "ready": self.rule.ready},
            },
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


def _shown(requests: Floats, late: Floats, ttft: Floats, tpot: Floats) -> dict[str, list[float | None]]:
    attained = np.where(requests > 0, 1.0 - late / np.maximum(requests, 1.0), np.nan)
    columns = {"attainment": attained, "ttft": ttft, "tpot": tpot}
    return {name: [None if np.isnan(one) else float(one) for one in column] for name, column in columns.items()}
