"""The pool's spec in the core's own units: the SLO, the targets, and the bounds in force."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from servingpool.decision.params import DEFAULT, Params


@dataclass(frozen=True, slots=True)
class Slo:
    """The latency objective. At least one bound is set."""

    time_to_first_token: float | None = None
    """Seconds; None where it does not matter."""
    time_per_output_token: float | None = None
    """Seconds; None where it does not matter."""
    attainment: float = 0.95
    """Share of requests, 0.5 to 0.999, that must meet every bound that is set."""
    at_gateway: bool = False
    """TTFT is the client's, as the gateway measures it, and not the engines'."""

    def __post_init__(self) -> None:
        if self.time_to_first_token is None and self.time_per_output_token is None:
            raise ValueError("an SLO needs a bound on time to first token, on time per output token, or on both")
        if not 0.5 <= self.attainment <= 0.999:
            raise ValueError(f"attainment must be 0.5 to 0.999, got {self.attainment}")

    @property
    def allowed(self) -> float:
        """Share of requests that may miss."""
        return 1.0 - self.attainment

    @property
    def queue_bound(self) -> float:
        """Seconds that a request may wait before its queue counts as standing; 10 where no TTFT is asked for."""
        return 10.0 if self.time_to_first_token is None else self.time_to_first_token


ONLY = "only"
"""The target of a pool, a replica or an observation that names none."""


@dataclass(frozen=True, slots=True)
class Target:
    """A target of a pool: a kind of GPU, spot or on demand, a size of tensor parallelism."""

    name: str = ONLY
    """Unique in the pool."""
    price: float = 1.0
    """Price of a replica for an hour, above 0: dollars where they are known of every target, else GPUs."""
    base: int = 0
    """Replicas that always stay, whatever the other targets cost; none stays while the pool is at 0."""
    most: int = 2**31 - 1
    """Most replicas that the target may have."""
    batch_limit: float = math.inf
    """Requests, at least 1, that a replica runs at a time at most; infinite where its arguments do not tell."""

    def __post_init__(self) -> None:
        if not self.batch_limit >= 1.0:
            raise ValueError(f"need a batch limit of at least 1, got {self.batch_limit} for {self.name}")


class Beside(NamedTuple):
    """Replicas of the other role, which a bound follows from."""

    replicas: int
    role: str
    """The other role: prefill or decode."""
    ratio: bool
    """The pool's ratio asks for the bound; otherwise it is 1, because neither role is at 0 replicas alone."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A number of replicas, and where it comes from. `str` tells both."""

    replicas: int
    schedule: str | None = None
    """Name of the schedule that sets the bound; None where it is the pool's own."""
    begins_in: float = 0.0
    """Seconds until the schedule's window begins; 0 within it."""
    beside: Beside | None = None
    """The replicas of the other role that the bound follows from; None where it follows from none."""

    def __str__(self) -> str:
        if self.schedule is None:
            return f"{self.replicas}"
        if self.begins_in > 0.0:
            return f"{self.replicas} by schedule {self.schedule}, which begins in {self.begins_in:.0f} s"
        return f"{self.replicas} by schedule {self.schedule}"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The fewest and the most replicas that a decision may answer."""

    least: Bound
    most: Bound
    """Only the max of a schedule lowers it below the targets' sum. Other limits, as a GPUBudget, lower the answer."""

    @property
    def schedules(self) -> tuple[str, ...]:
        """Names of the schedules that set min or max."""
        return tuple(dict.fromkeys(one.schedule for one in (self.least, self.most) if one.schedule is not None))


@dataclass(frozen=True, slots=True)
class Window:
    """The time in which a schedule's bounds count."""

    schedule: str
    """Name of the schedule."""
    begin: float
    """Unix time in seconds."""
    end: float
    min_replicas: int | None
    """Min within the window; None where the pool's own counts."""
    max_replicas: int | None
    """Max within the window; None where the pool's own counts."""
    ahead: float = 1.0
    """Ratio, at least 1, to a cold start, of the time before the window at which its min is requested."""

    def bounds(self, own: Bounds, now: float) -> Bounds:
        """Bounds within the window, `own` being the pool's."""
        begins_in = max(0.0, self.begin - now)
        least, most = (
            other if replicas is None else Bound(replicas, self.schedule, begins_in)
            for replicas, other in ((self.min_replicas, own.least), (self.max_replicas, own.most))
        )
        return Bounds(least, most)


def in_force(own: Bounds, windows: Iterable[Window], now: float, ahead: float) -> Bounds:
    """The bounds at `now`, Unix time in seconds; the order of the windows does not matter.

    Windows in force replace the pool's own bounds. Of several the highest min and the highest max count, so that min is
    never above max. A window that begins within `ahead` seconds may raise the bounds already, and never lowers them: a
    replica that is ordered now is Ready when the window begins.
    """
    windows = [one for one in windows if one.begin <= now + ahead * one.ahead and now < one.end]
    found = [one.bounds(own, now) for one in windows]
    if all(one.begin > now for one in windows):
        found.append(own)
    return Bounds(min((one.least for one in found), key=_order), min((one.most for one in found), key=_order))


def _order(bound: Bound) -> tuple[int, float, str]:
    return -bound.replicas, bound.begins_in, bound.schedule or ""


class Rate(NamedTuple):
    """The most that is served where work has no deadline, while there is work."""

    output: float = math.inf
    """Output tokens per second."""
    price: float = math.inf
    """Price per hour, in the unit of the targets' prices."""


class Tariff(NamedTuple):
    """Price of a replica from one time to the next tariff's."""

    begin: float
    """Unix time in seconds."""
    price: float
    """Ratio to the price at other times, above 0."""
    most: float = math.inf
    """Max in force then, in replicas."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The objective of work without a bound on latency: all of it done by its deadline, or at a rate."""

    within: float = math.inf
    """Seconds from when a request came to its deadline; infinite where `ends` has the deadlines."""
    ends: tuple[float, ...] = ()
    """Deadlines around now in Unix time, ascending: what comes before one is due by it."""
    unit: str = "requests"
    """What work is counted in: requests, tokens of prompts and answers, or output tokens where it has a rate."""
    rate: Rate | None = None
    """In place of deadlines; None where there are some."""
    tariffs: tuple[Tariff, ...] = ()
    """Prices from now to the last deadline, ascending; none where a replica always costs the same."""

    def due(self, came: float) -> float:
        """Deadline in Unix time of a request that came then."""
        return min((came + self.within, *(end for end in self.ends if end > came)))


@dataclass(frozen=True, slots=True)
class Pool:
    """The part of a ServingPool's spec that a decision depends on."""

    slo: Slo
    min_replicas: int
    """Fewest replicas of all targets together; `max_replicas` likewise."""
    max_replicas: int
    in_charge: bool = True
    """False in Recommend and Paused: its decisions are not carried out, so nothing may wind up."""
    params: Params = DEFAULT
    windows: tuple[Window, ...] = ()
    """Windows of the pool's schedules, around the time that is decided on."""
    max_change: float = math.inf
    """Replicas, at least 1, that a decision may add or remove at most."""
    idle_after: float | None = None
    """Seconds without a request after which a fleet with min 0 goes to 0; None where it never does."""
    gateway: str = ""
    """Name of the gateway that tells of demand at 0 replicas."""
    targets: tuple[Target, ...] = (Target(),)
    """Targets in the order of the spec, at least one."""
    prefills: bool = False
    """Whether the engines prefill for decode engines, or answers are short: output tokens tell little of the work."""
    paired: bool = False
    """Whether the other stage is sized by this stage's replicas, so that replicas that never come do not count."""
    starts: int = 1
    """Cold starts, one after another, until all requested replicas serve; 1 where replicas start together."""
    beside: Bound | None = None
    """The min, where it follows from replicas of the other role; None elsewhere."""
    batch: Batch | None = None
    """Deadlines or rate of its work, by which it is sized in place of the SLO; None where it has neither."""

    def __post_init__(self) -> None:
        if not 0 <= self.min_replicas <= self.max_replicas:
            raise ValueError(f"need 0 <= min <= max replicas, got min {self.min_replicas}, max {self.max_replicas}")
        for window in self.windows:
            bounds = window.bounds(self._own, window.begin)
            if not 0 <= bounds.least.replicas <= bounds.most.replicas:
                raise ValueError(f"need 0 <= min <= max replicas, got min {bounds.least}, max {bounds.most}")

    @property
    def batch_limit(self) -> float:
        """Requests that a replica of any target runs at a time at most; infinite where no target's arguments tell."""
        return min(target.batch_limit for target in self.targets)

    @property
    def _own(self) -> Bounds:
        return Bounds(self.beside or Bound(self.min_replicas), Bound(self.max_replicas))

    def bounds(self, now: float, ahead: float) -> Bounds:
        """The bounds in force at `now`, Unix time in seconds; windows that begin within `ahead` seconds raise them."""
        return in_force(self._own, self.windows, now, ahead) if self.windows else self._own

    def within(self, bounds: Bounds) -> Self:
        """The pool with these bounds as its own."""
        if not self.windows:
            return self
        least, most = bounds.least.replicas, bounds.most.replicas
        return replace(self, min_replicas=least, max_replicas=most, windows=())

    def whole(self, replicas: float) -> float:
        """`replicas`, rounded up where the pool has one target: of several, parts of a reference replica count."""
        return math.ceil(replicas) if len(self.targets) == 1 else replicas
