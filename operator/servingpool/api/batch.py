"""Work with deadlines: `spec.batch`, the objective of a pool that has no SLO."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from servingpool.api.duration import DurationBetween
from servingpool.api.part import Part
from servingpool.api.rule import Rule, rules
from servingpool.api.schedule import TIME_OF_DAY, WEEK, Days, Schedule, TimeZone, occurrences

AHEAD = 8 * 86_400.0
"""Seconds for which deadlines are resolved: a weekday comes again within it."""
NO_DEADLINE = "needs finishWithin (5m to 168h), finishBy (a time of day) or both, got neither"
ONE_OBJECTIVE = Rule(
    "has(self.slo) != has(self.batch)",
    "needs one of slo (bounds on latency) and batch (deadlines), got {}",
    "has(self.slo) ? 'both' : 'neither'",
)


class BacklogUnit(StrEnum):
    """What the backlog is counted in."""

    REQUESTS = "requests"
    TOKENS = "tokens"


class Backlog(Part):
    """Work that waits in a broker, outside of engines and gateway, whose own queues count by themselves."""

    query: Annotated[str, Field(min_length=1, max_length=2048)]
    """PromQL on the pool's backend that returns one number: `sum(redis_list_length{key="nightly"})`. Without an answer,
    with several series, NaN or less than 0 the backlog is unknown, and nothing is scaled down."""
    unit: Annotated[BacklogUnit, Field(strict=False)] = BacklogUnit.REQUESTS
    """Unit of the number: requests, or tokens (of prompts and answers together)."""


class FinishBy(Part):
    """A deadline by the clock. What comes after it is due by the next one."""

    time: Annotated[str, Field(max_length=5), TIME_OF_DAY]
    """Time of day by which all work is done, 00:00 to 23:59."""
    time_zone: Annotated[str, Field(max_length=64), TimeZone()]
    """IANA time zone of the time, such as `Europe/Berlin` or `UTC`. Its daylight saving time is followed."""
    days: Days = WEEK
    """Days with a deadline: Mon, Tue, Wed, Thu, Fri, Sat, Sun. Default: every day."""

    def deadlines(self, now: float) -> tuple[float, ...]:
        """Deadlines of some days before and after `now`, in Unix seconds."""
        own = Schedule(name="deadline", time_zone=self.time_zone, days=self.days, start=self.time, min=1)
        return tuple(one.begin for one in occurrences([own], now - AHEAD, now + AHEAD))


class Batch(Part):
    """Work with deadlines: all of it is done in time, by the fewest GPU-hours."""

    finish_within: Annotated[float, DurationBetween("5m", "168h")] | None = None
    """Time from when a request came to its deadline: `4h`. 5m to 168h (a week)."""
    finish_by: FinishBy | None = None
    """Time of day by which all work is done. Of two deadlines the earlier one counts."""
    backlog: Backlog
    """Work that waits in a broker."""

    model_config = ConfigDict(
        json_schema_extra=rules(Rule("has(self.finishWithin) || has(self.finishBy)", NO_DEADLINE))
    )

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if self.finish_within is None and self.finish_by is None:
            raise ValueError(NO_DEADLINE)
        return self
