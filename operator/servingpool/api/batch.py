"""Work without a bound on latency: `spec.batch` with deadlines, or `spec.throughput` at a rate."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from servingpool.api.duration import DurationBetween
from servingpool.api.part import Part
from servingpool.api.rule import Between, Rule, needs_some, rules
from servingpool.api.schedule import TIME_OF_DAY, WEEK, Days, Schedule, TimeZone, occurrences

AHEAD = 8 * 86_400.0
"""Seconds for which deadlines are resolved: a weekday comes again within it."""
Query = Annotated[str, Field(min_length=1, max_length=2048)]
NO_DEADLINE = "needs finishWithin (5m to 168h), finishBy (a time of day) or both, got neither"
NO_REQUESTS = "remainingTime counts requests, so backlog.unit must be requests, got tokens"
NO_RATE = "needs outputTokensPerSecond (1 to 1e+09), spendAtMost (dollars) or both, got neither"
ONE_OBJECTIVE = Rule(
    "(has(self.slo) ? 1 : 0) + (has(self.batch) ? 1 : 0) + (has(self.throughput) ? 1 : 0) == 1",
    "needs one of slo (bounds on latency), batch (deadlines) and throughput (a rate), got {}",
    "has(self.slo) || has(self.batch) || has(self.throughput) ? 'several' : 'none'",
)
PRICED = Rule(
    "!has(self.throughput) || !has(self.throughput.spendAtMost)"
    " || self.targets.all(t, has(t.costPerReplicaHour))"
    " && self.targets.exists(t, t.costPerReplicaHour <= self.throughput.spendAtMost.dollarsPerHour)",
    "throughput.spendAtMost needs costPerReplicaHour of each target, and must pay for one replica; got {} dollars/h",
    "string(self.throughput.spendAtMost.dollarsPerHour)",
)


class Backlog(Part):
    """Work that waits in a broker, outside of engines and gateway, whose own queues count by themselves."""

    query: Query
    """PromQL on the pool's backend that returns one number: `sum(redis_key_size{key="nightly"})`. Without an answer,
    with several series, NaN or less than 0 the backlog is unknown, and nothing is scaled down."""
    unit: Literal["requests", "tokens"] = "requests"
    """Unit of the number: requests, or tokens (of prompts and answers together)."""


class RemainingTime(Part):
    """Time that is left for what waits in the broker, where the broker tells it."""

    query: Query
    """PromQL on the pool's backend that returns a histogram of the requests that wait, by the time that each has left:
    `sum by (le) (llm_d_async_async_deadline_proximity_millis_bucket{queue_name="nightly"})`. A request counts as due at
    the lower bound of its bucket. If it cannot be used, or is empty while work waits, nothing is scaled down."""
    unit: Literal["seconds", "milliseconds"]
    """Unit of the histogram's bounds: seconds or milliseconds."""


class FinishBy(Part):
    """A deadline by the clock. What comes after it is due by the next one."""

    time: Annotated[str, Field(max_length=5), TIME_OF_DAY]
    """Time of day by which all work is done, 00:00 to 23:59."""
    time_zone: Annotated[str, Field(max_length=64), TimeZone()]
    """IANA time zone of the time, such as `Europe/Berlin` or `UTC`. Its daylight saving time is followed."""
    days: Days = WEEK
    """Days with a deadline: Mon, Tue, Wed, Thu, Fri, Sat, Sun. Default: every day."""

    def deadlines(self, begin: float, end: float) -> tuple[float, ...]:
        """Deadlines from some days before `begin` to as long after `end`, in Unix seconds."""
        own = Schedule(name="deadline", time_zone=self.time_zone, days=self.days, start=self.time, min=1)
        return tuple(one.begin for one in occurrences([own], begin - AHEAD, end + AHEAD))


class Batch(Part):
    """Work with deadlines: all of it is done in time, by the fewest GPU-hours, in cheaper hours where it can wait."""

    finish_within: Annotated[float, DurationBetween("5m", "168h")] | None = None
    """Time from when a request came to its deadline: `4h`. 5m to 168h (a week)."""
    finish_by: FinishBy | None = None
    """Time of day by which all work is done. Of two deadlines the earlier one counts."""
    backlog: Backlog
    """Work that waits in a broker."""
    remaining_time: RemainingTime | None = None
    """Deadlines of the requests themselves, where the broker tells them. Of several deadlines the earliest counts: with
    finishWithin 168h the broker's alone. What it does not tell is due by finishWithin and finishBy."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule("has(self.finishWithin) || has(self.finishBy)", NO_DEADLINE),
            Rule("!has(self.remainingTime) || self.backlog.unit == 'requests'", NO_REQUESTS),
        )
    )

    _given = needs_some(NO_DEADLINE, "finish_within", "finish_by")

    @model_validator(mode="after")
    def _counted(self) -> Self:
        if self.remaining_time is not None and self.backlog.unit != "requests":
            raise ValueError(NO_REQUESTS)
        return self


class SpendAtMost(Part):
    """What may be spent."""

    dollars_per_hour: Annotated[float, Between(0.01, 100_000)]
    """Most dollars per hour of all replicas, 0.01 to 100000, by costPerReplicaHour. min is kept whatever it costs."""


class Throughput(Part):
    """Tokens at a rate, where no request is urgent: so many full replicas while there is work, fewer for less work."""

    output_tokens_per_second: Annotated[float, Between(1, 1_000_000_000)] | None = None
    """Output tokens per second of all replicas together, 1 to 1000000000."""
    spend_at_most: SpendAtMost | None = None
    """As many tokens as this pays for; with outputTokensPerSecond no more than that. Needs costPerReplicaHour."""

    model_config = ConfigDict(
        json_schema_extra=rules(Rule("has(self.outputTokensPerSecond) || has(self.spendAtMost)", NO_RATE))
    )

    _given = needs_some(NO_RATE, "output_tokens_per_second", "spend_at_most")
