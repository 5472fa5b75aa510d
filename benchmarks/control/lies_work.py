"""The worlds, the lies and the cells of the matrix of lies.

Every figure that a decision reads x every lie x who tells it x how long. The figures are the fields of the
observation's own types, so a new figure is in the matrix by itself; a field whose type has no row in LIES_OF ends the
program. The lie stands between the plant, the step-level simulation, and the core: what is read is true for 20 minutes,
then wrong, then true for an hour.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import store
from cases import H100_70B, Case, Kind
from work import Report, Work

from servingpool.decision.observation import (
    Absent,
    GatewayMetrics,
    Histogram,
    Observation,
    Ordered,
    Replica,
    ReplicaMetrics,
    TimeLeft,
    Unknown,
)
from servingpool.decision.pool import Pool, Slo
from servingpool_simulation.policies import TICK, Answer, Ours, Wrapped
from servingpool_simulation.run import Result, SimulationOptions, simulate
from servingpool_simulation.scrape import EPOCH, ScrapeOptions
from servingpool_simulation.traces import Trace, poisson

WARM, BEHIND = 1_200.0, 3_600.0
"""Seconds of truth before the lie, and after it."""
SPANS = {"a scrape": TICK, "five minutes": 300.0, "an hour": 3_600.0, "for ever": math.inf}
TARGETS = 8
"""Targets of a pod, where one of them lies and the pod's sum is wrong."""
JUMP = 1e6


@dataclass(frozen=True, slots=True)
class Look:
    """One number at this tick, and what it was."""

    now: float
    start: float
    """When the lie began."""
    late: float
    """Five minutes ago."""
    minute: float
    """At the beginning of this minute of the lie."""
    tick: int
    """Ticks since the lie began."""


LIES: dict[str, Callable[[Look], float]] = {
    "stuck": lambda one: one.start,
    "zero": lambda _: 0.0,
    "negative": lambda one: -one.now - 3.0,
    "+3": lambda one: one.now + 3.0,
    "+30": lambda one: one.now + 30.0,
    "x10": lambda one: 10.0 * one.now,
    "half": lambda one: one.now / 2.0,
    "an eighth once": lambda one: one.now if one.tick else one.now / 8.0,
    "an eighth": lambda one: one.now / 8.0,
    "a jump once": lambda one: one.now if one.tick else one.now + JUMP,
    "a jump kept": lambda one: one.now + JUMP,
    "flapping": lambda one: one.now if one.tick % 2 else 0.0,
    "late": lambda one: one.late,
    "missing": lambda _: 0.0,
    "NaN": lambda _: math.nan,
    "reset": lambda one: one.now - one.minute,
    "twice": lambda one: 2.0 * one.now,
}
"""Each lie as a function of a number. A histogram's numbers are changed one by one; a missing target counts as 0."""
SLICE = ("stuck", "zero", "+30", "x10", "half", "missing", "a jump kept")
NUMBERS, TIME = tuple(LIES), tuple(name for name in LIES if name != "missing")
LISTED = ("stuck", "missing", "flapping", "late", "twice")
LIES_OF: dict[Any, Sequence[str]] = {
    float | Unknown: NUMBERS,
    Histogram | Unknown: NUMBERS,
    float | None: NUMBERS,
    float: TIME,
    bool: ("negative", "flapping"),
    int: ("stuck", "zero", "+3", "late"),
    tuple[ReplicaMetrics, ...] | Unknown: NUMBERS,
    GatewayMetrics: NUMBERS,
    tuple[Replica, ...]: LISTED,
    **dict.fromkeys((str, int | None, tuple[Ordered, ...], TimeLeft), ()),
}
"""By the type of a field. Names and what the spec says are no figures; nor is when a broker's requests are due."""
OWNERS = {"engine": ReplicaMetrics, "gateway": GatewayMetrics, "replica": Replica, "cluster": Observation}
NOT_READ = {"replica.weight", "cluster.capacity", "cluster.backlog", "engine.kv_cache_usage", "engine.queue_time"}
"""Set by the core, or not asked for by the operator of a pool without deadlines."""
FIGURES: dict[str, Sequence[str]] = {
    f"{owner}.{one.name}": LIES_OF[get_type_hints(kind)[one.name]]
    for owner, kind in OWNERS.items()
    for one in fields(kind)
    if f"{owner}.{one.name}" not in NOT_READ
}
"""The lies of each figure that is read; `cluster.metrics` and `cluster.gateway` are all figures of them at once."""
SAMPLES = "sample|scrape|metric|Prometheus"
WORDS = {
    "waiting": "waiting|queue",
    "time_to_first_token": "first.token|TTFT",
    "inter_token_latency": "inter.token|token latency|ITL",
    "time_per_output_token": "output.token|TPOT",
    "metrics": SAMPLES,
    "scraped_at": "scrape|sample|old|late|clock",
}
"""What names a figure, where its own words do not."""


SLO = Slo(2.0, 0.1)


@dataclass(frozen=True, slots=True)
class World:
    """Traffic, and the fleet that holds it."""

    traffic: Callable[[float], Trace]
    """By its duration in seconds."""
    replicas: int = 1
    most: int = 24


def steady(rate: float, prompt: int = 1_500, output: int = 250) -> Callable[[float], Trace]:
    """So many requests/s at all times."""
    return lambda seconds: poisson("steady", [rate], seconds, prompt=prompt, output=output)


def _ramp(seconds: float) -> Trace:
    stages = poisson("ramp", [4, 8, 12, 16, 20, 24, 28], 1_200.0, prompt=1_000, output=250)
    return stages.between(0.0, seconds)


WORLDS = {"half": World(steady(0.5)), "ten": World(steady(10.0), 3), "ramp": World(_ramp)}
MATRIX = tuple(WORLDS)
Lied = Callable[["Liar", Observation], Observation]
"""The observation as it is told during the lie."""
NO_SERIES = Absent("Prometheus has no such series")


@dataclass(frozen=True, slots=True)
class Lie:
    """One figure told wrong."""

    figure: str
    how: str
    who: str = "all"
    """`one`: of one replica; `target`: of one of TARGETS targets of its pod, or of the gateway's pods."""

    def __call__(self, liar: Liar, seen: Observation) -> Observation:
        """The observation with the lie in it."""
        owner, _, name = self.figure.partition(".")
        path = [*PLACES.get(owner, ()), name]
        assert liar.start is not None
        told = self._within((seen, liar.start, liar.past[0], liar.minute), path, liar)
        assert isinstance(told, Observation)
        return told

    def _within(self, at: Sequence[Any], path: Sequence[str], liar: Liar) -> Any:
        """The part as the lie tells it. `at`: now, at the lie's start, five minutes ago, at the minute's begin."""
        now = at[0]
        if isinstance(now, tuple):
            return self._listed(at, path, liar)
        if not path:
            return self._whole(at, liar)
        name, *rest = path
        told = self._within([getattr(one, name) for one in at], rest, liar)
        if told is None and get_type_hints(type(now))[name] != float | None:
            told = NO_SERIES
        return replace(now, **{name: told})

    def _listed(self, at: Sequence[Any], path: Sequence[str], liar: Liar) -> Any:
        """A list of replicas or samples, in which the lie changes the chosen ones."""
        chosen = {_name(one) for one in at[0] if self.who == "all" or _name(one) == liar.victim}
        gone = self.how == "missing" or (self.how == "flapping" and liar.tick % 2 == 0)
        samples = any(isinstance(one, ReplicaMetrics) for one in at[0])
        if not path and self.who == "all" and self.how in WHOLE:
            return at[WHOLE[self.how]]
        if not path and gone and not (samples and self.how == "flapping"):
            left = tuple(one for one in at[0] if _name(one) not in chosen)
            return left if left or not samples else NO_SERIES
        if not path and not samples and self.how == "twice":
            return tuple(one for each in at[0] for one in (each,) * (1 + (_name(each) in chosen)))
        looks = [{} if isinstance(look, Unknown) else {_name(one): one for one in look} for look in at]
        return tuple(
            self._within([look.get(name, one) for look in looks], path, liar) if (name := _name(one)) in chosen else one
            for one in at[0]
        )

    def _whole(self, at: Sequence[Any], liar: Liar) -> Any:
        """A figure, or all figures of a sample; None where nothing is told."""
        now = at[0]
        at = [one if type(one) is type(now) else now for one in at]
        told: Any = now
        if isinstance(now, bool):
            told = now != (self.how == "negative" or liar.tick % 2 == 0)
        elif isinstance(now, ReplicaMetrics | GatewayMetrics):
            told = at[WHOLE[self.how]] if self.how in WHOLE else now
            for one in fields(now) if self.how not in WHOLE else ():
                if one.name not in APART and isinstance(getattr(now, one.name), float | Histogram):
                    lied = self._whole([getattr(each, one.name) for each in at], liar)
                    told = replace(told, **{one.name: NO_SERIES if lied is None else lied})
        elif isinstance(now, float | int | Histogram) and self.how == "missing" and self.who != "target":
            told = None
        elif isinstance(now, Histogram):
            numbers = zip(*((*one.counts, one.total, one.count) for one in at), strict=True)
            *counts, total, count = (self._number(each, liar) for each in numbers)
            told = replace(now, counts=tuple(counts), total=total, count=count)
        elif isinstance(now, float | int):
            told = self._number(at, liar)
            told = told if isinstance(now, float) else max(0, round(told))
        return told

    def _number(self, at: Sequence[float], liar: Liar) -> float:
        share = 1.0 / TARGETS if self.who == "target" else 1.0
        now, start, late, minute = (share * one for one in at)
        return at[0] * (1.0 - share) + LIES[self.how](Look(now, start, late, minute, liar.tick))


TRUTH = Lie("engine.waiting", "twice", "nobody")
PLACES = {"engine": ("metrics",), "gateway": ("gateway",), "replica": ("ready",)}
WHOLE = {"stuck": 1, "late": 2}
"""Lies that are of all that one answer says, its time included; and the place of what is told."""
APART = {"scraped_at"}


def _name(one: Replica | ReplicaMetrics) -> str:
    return one.name if isinstance(one, Replica) else one.replica


DOUBTS = re.compile(
    r"unknown|believ|doubt|left out|no progress|partial|stale|stand|does not move|d(o|oes|id) not help|trial"
    r"|no (number|replica)|engines (have|are)|parked|not counted|no work|can have come|ing cannot be|no sample newer"
)
"""Finds a clause of a reason that calls a figure wrong, missing or old."""


@dataclass(slots=True)
class Liar(Wrapped):
    """Our core, which reads the lie; keeps what the core said."""

    policy: Ours
    lie: Lied
    span: float
    """Seconds of the lie."""
    warm: float = WARM
    past: deque[Observation] = field(default_factory=lambda: deque(maxlen=1 + int(300 / TICK)))
    start: Observation | None = None
    minute: Observation | None = None
    tick: int = -1
    """Ticks since the lie began."""
    victim: str = ""
    """Name of the one replica that is lied about."""
    said: list[tuple[float, str]] = field(default_factory=list)
    """(seconds, what it said of its metrics)."""

    def decide(self, observation: Observation, pool: Pool, now: float) -> Answer:
        """On the observation as it is told."""
        gateway = observation.gateway
        if gateway.scraped_at is not None and gateway.scraped_at < EPOCH:
            observation = replace(observation, gateway=replace(gateway, scraped_at=EPOCH + gateway.scraped_at))
        self.past.append(observation)
        told = observation
        if 0.0 <= now - EPOCH - self.warm < self.span:
            self.tick += 1
            self.start = self.start or observation
            self.victim = self.victim or next((one.name for one in observation.ready), "")
            self.minute = observation if self.tick * TICK % 60.0 == 0.0 else self.minute
            told = self.lie(self, observation)
        answer = self.policy.decide(told, pool, now)
        self.said += [(now - EPOCH, one) for one in self._doubts(told, answer)]
        return answer

    def _doubts(self, told: Observation, answer: Answer) -> Iterator[str]:
        """What the pool says of its metrics: in its conditions and in the reason of its decision."""
        memory, decision = self.policy.memory, answer.decision
        assert decision is not None
        shown = set() if isinstance(told.metrics, Unknown) else {one.replica for one in told.metrics}
        lacking = [one.name for one in told.ready if one.name not in shown and (one.ready_for or 0.0) > 60.0]
        said = (memory.damaged, memory.last.missing, memory.queue_unknown, memory.last.client_unknown)
        yield from filter(None, said)
        yield from (f"no sample of {name}" for name in lacking)
        yield from (f"no progress at {one.replica}" for one in decision.standing)
        clauses = decision.reason.partition(": ")[2].split("; ")
        yield from filter(DOUBTS.search, (*clauses, decision.warning or ""))


@dataclass(frozen=True, slots=True)
class Play:
    """A world with a lie in it."""

    world: World
    lie: Lied = TRUTH
    span: float = 0.0
    warm: float = WARM
    title: str = ""
    names: str = ""
    """What a sentence has to name; VICTIM is the one replica."""
    behind: float = BEHIND
    right: int = 0
    """Replicas that the work needs, where the truth takes the fleet too."""

    def run(self) -> tuple[Result, Liar]:
        """What became of it, and what was said; of a lie for ever two hours."""
        end = self.warm + min(self.span, 3_600.0) + self.behind
        world, liar = self.world, Liar(Ours(), self.lie, self.span, self.warm)
        options = SimulationOptions(initial_replicas=world.replicas, scrape=ScrapeOptions(gateway=True))
        return simulate(world.traffic(end), H100_70B, Pool(SLO, 1, world.most), liar, options), liar


@lru_cache(maxsize=8)
def _truth(play: Play) -> tuple[Result, Liar]:
    return play.run()


def measured(play: Play) -> Report:
    """The play beside the same without the lie."""
    (result, liar), (true, honest) = play.run(), _truth(replace(play, lie=TRUTH, names="", title=""))
    usual = {_plain(one) for _, one in honest.said} if play.span else set()
    said = [(at, one) for at, one in liar.said if at >= play.warm and _plain(one) not in usual]
    names = play.names.replace("VICTIM", re.escape(liar.victim))
    series = result.series
    places = [place for place, at in enumerate(series.time) if at >= play.warm]
    highest = max(places, key=lambda place: series.requested[place])
    return {
        "hours": _hours(result, play.warm),
        "hours_true": play.right * (min(play.span, 3_600.0) + play.behind) / 3_600.0 or _hours(true, play.warm),
        "attained": _attained(result, play.warm),
        "attained_true": _attained(true, play.warm),
        "most": series.requested[highest],
        "most_true": max(true.series.requested),
        "at_max": sum(one >= play.world.most for one in series.requested) * TICK / 60.0,
        "told": (said[0][0] - play.warm) / 60.0 if said else None,
        "names": any(re.search(names, one) for _, one in said),
        "said": said[0][1] if said else "",
        "fleet": series.requested[:: int(600 / TICK)],
        "reason": series.reason[highest],
    }


def _plain(said: str) -> str:
    return re.sub(r"[\d.]+", "N", said)


def _hours(result: Result, since: float) -> float:
    """GPU-hours in replicas, of replicas that load or drain too."""
    series = result.series
    paid = zip(series.time, series.ready, series.loading, series.draining, strict=True)
    return sum(sum(each) for at, *each in paid if at >= since) * TICK / 3_600.0


def _attained(result: Result, since: float) -> float:
    """By the clients who came then."""
    met = result.outcomes.met[result.outcomes.arrival >= since]
    return float(met.mean()) if len(met) else 1.0


@dataclass(frozen=True, slots=True)
class Cell(Work):
    """One cell of the matrix; `slug` names its world."""

    figure: str
    how: str
    who: str
    span: str
    runs = 1.0

    @property
    def name(self) -> str:
        return re.sub(r"\W+", "-", f"{self.figure} {self.how} {self.who} {self.span}")

    @property
    def play(self) -> Play:
        """The world, the lie and its length."""
        if not self.figure:
            return REPORTS[self.slug]
        name = self.figure.partition(".")[2]
        words = WORDS.get(name, name.replace("_", "."))
        told = Lie(self.figure, self.how, self.who)
        names = words if self.who == "all" else f"{words}|VICTIM"
        return Play(WORLDS[self.slug], told, SPANS[self.span], names=names)

    @property
    def case(self) -> Case:
        world = self.play.world
        return Case(self.slug, "", Kind.FAMILY, lambda _: world.traffic(WARM), H100_70B, SLO, world.most, None)

    def kept(self) -> Path:
        return store.place(f"lie-{self.slug}-{self.name}", (self,), (*store.WORLD, *store.SCENES, *self.sources()))

    def sources(self) -> tuple[str, ...]:
        return (*store.CORE, "benchmarks/control/lies_work.py")

    def do(self) -> Report:
        return measured(self.play)


WHO = {"engine": ("one", "target", "all"), "gateway": ("target", "all")}
WHO |= dict.fromkeys(("replica", "cluster.metrics", "cluster.ready"), ("one", "all"))


def cells(*, full: bool) -> list[Cell]:
    """The whole matrix, or its thin slice. A lie of one tick is told for a scrape alone."""
    found = []
    for figure, lies in FIGURES.items():
        if not shown(figure):
            continue
        whos = WHO.get(figure) or WHO.get(figure.partition(".")[0], ("all",))
        for how in lies:
            spans = ("a scrape",) if how.endswith("once") else tuple(SPANS)
            found += [
                Cell(world, figure, how, who, span)
                for world in MATRIX
                for who in whos
                for span in spans
                if full or (how in SLICE and who != "target" and span == "an hour" and world != "ramp")
            ]
    return found


def shown(figure: str) -> bool:
    """Whether the worlds of the matrix have it: what an engine does not tell, nobody can tell wrong."""
    owner, _, name = figure.partition(".")
    at: Any = _glimpse()
    for place in PLACES.get(owner, ()):
        at = getattr(at, place)
    return not isinstance(getattr(at[0] if isinstance(at, tuple) else at, name), Unknown | None)


@lru_cache(maxsize=1)
def _glimpse() -> Observation:
    """An observation of the first world after five minutes."""
    return Play(WORLDS["half"], warm=300.0, behind=TICK).run()[1].past[-1]


def _held(seconds: float) -> Trace:
    """6 requests/s come to the engines, and none after 20 minutes."""
    return replace(poisson("held", [6.0], WARM, prompt=1_500, output=450), duration=seconds)


def _holds(liar: Liar, seen: Observation) -> Observation:
    """The gateway keeps all that comes: its queue and its arrivals grow by 6 requests/s."""
    assert liar.start is not None
    came = float(liar.start.gateway.arrivals) + 6.0 * TICK * (liar.tick + 1)
    held = 6.0 * TICK * (liar.tick + 1)
    return replace(seen, gateway=replace(seen.gateway, queue=held, arrivals=came, at_zero=came))


def _long(seconds: float) -> Trace:
    """A request/s, half of them with prompts that take longer than the bound on an idle replica."""
    trace = poisson("long", [1.0], seconds, prompt=TOO_LONG, output=100)
    return replace(trace, prompt=np.where(np.arange(len(trace)) % 2, trace.prompt, 4_500))


def _rises(seconds: float) -> Trace:
    rising = poisson("rises", [2.5, 10.0, 10.0], 3_600.0, prompt=1_500, output=250)
    return rising.between(3_600.0 - WARM, 3_600.0 - WARM + seconds)


TAKES, ALONE = r"2\.\d+ s", "each prompt alone takes 2.15 s"
WORLDS |= {"two": World(steady(6.0), 2, 100), "four": World(steady(14.0), 4), "five": World(steady(17.0), 5)}
WORLDS |= {"rises": World(_rises)}
TOO_LONG = 25_300
"""Tokens of a prompt that takes 2.15 s in an idle engine."""
LATE: dict[str, Any] = {"warm": 300.0, "behind": 4 * BEHIND}
REPORTS = {
    "R1": Play(World(_held, 3), _holds, math.inf, title="the gateway holds everything", names="gateway", right=3),
    **{
        f"R2a-{rate}": Play(World(steady(rate, TOO_LONG, 100), least), right=least, names=TAKES, title=ALONE, **LATE)
        for rate, least in ((0.1, 1), (0.3, 1), (1.0, 4))
    },
    "R2b": Play(World(_long, 2), right=2, names="late|miss", title="half of the requests late by nature", **LATE),
    **{
        name: Play(WORLDS[world], Lie(*lie), span, names=names, title=title)
        for name, world, lie, span, names, title in (
            ("R3", "ten", ("engine.waiting", "negative"), math.inf, "queue|waiting", "a queue below zero"),
            ("R5", "half", ("engine.waiting", "+3", "one"), math.inf, "VICTIM", "three requests parked"),
            (
                "R6",
                "four",
                ("cluster.metrics", "an eighth once", "one"),
                TICK,
                "VICTIM",
                "one scrape of 1 of 8 targets",
            ),
            ("R7-one", "two", ("engine.waiting", "a jump kept", "one"), 2 * TICK, "VICTIM", "a million waits in a pod"),
            ("R7-all", "two", ("engine.waiting", "a jump kept"), TICK, "queue|waiting", "a million waits in each pod"),
            (
                "R8-frozen",
                "rises",
                ("cluster.metrics", "stuck"),
                600.0,
                SAMPLES,
                "an old answer for ten minutes, 4x load",
            ),
            ("R8-late", "five", ("cluster.metrics", "late"), math.inf, SAMPLES, "Prometheus five minutes late"),
            ("R9", "ten", ("engine.prompt_tokens", "half", "one"), math.inf, "VICTIM", "a counter falls by half"),
        )
    },
}
"""The public reports that fit."""
