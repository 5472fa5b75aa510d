"""Bounds and prices by the clock: `spec.schedules`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from servingpool.api.part import Part
from servingpool.api.rule import DNS_LABEL, Between, Matches, Rule, needs_some, rules

SCHEDULE_NAME = Matches(DNS_LABEL, "a schedule's name, such as business-hours, of lower-case letters, digits and -")
TIME_OF_DAY = Matches("([01][0-9]|2[0-3]):[0-5][0-9]", "a time of day, 00:00 to 23:59")

_ZONE = "an IANA time zone, such as Europe/Berlin or UTC"
_ZONE_NAME = Matches("[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*", _ZONE)
_SOMETHING = Rule(
    "has(self.min) || has(self.max) || has(self.costFactor)",
    "needs min (1 to 10000), max (1 to 10000) or costFactor (0.01 to 100), got none of them",
)


Day = Literal["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
WEEK: tuple[Day, ...] = get_args(Day)
Days = Annotated[tuple[Day, ...], Field(strict=False, min_length=1, max_length=7)]


@dataclass(frozen=True, slots=True)
class TimeZone:
    """Marks a string that names a time zone of the IANA database."""

    def check(self, name: str) -> str:
        """The name; ValueError if the database of this machine, or the package tzdata, has no such zone."""
        try:
            ZoneInfo(_ZONE_NAME.check(name))
        except (ZoneInfoNotFoundError, OSError):
            raise ValueError(f"must be {_ZONE}, got '{name}'") from None
        return name

    def __get_pydantic_core_schema__(self, source: type[Any], handler: GetCoreSchemaHandler) -> CoreSchema:
        """Check after the type."""
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """The string's schema, with two rules: its form, and that the API server knows it."""
        named = _ZONE_NAME.__get_pydantic_json_schema__(schema, handler)
        # An unknown zone is an error of CEL, which tells its name and then `message`. Go knows a zone 'Local'.
        known = "self != 'Local' && timestamp('2026-01-01T00:00:00Z').getHours(self) >= 0"
        named["x-kubernetes-validations"].append({"rule": known, "message": f"must be {_ZONE}"})
        return named


class Schedule(Part):
    """Other bounds, or another price, at certain hours. A window that ends before it starts ends on the next day."""

    name: Annotated[str, Field(max_length=63), SCHEDULE_NAME]
    """Name, which decisions and the status show: lower-case letters, digits and -."""
    time_zone: Annotated[str, Field(max_length=64), TimeZone()]
    """IANA time zone of start and end, such as `Europe/Berlin` or `UTC`. Its daylight saving time is followed."""
    days: Days = WEEK
    """Days on which a window starts: Mon, Tue, Wed, Thu, Fri, Sat, Sun. Default: every day."""
    start: Annotated[str, Field(max_length=5), TIME_OF_DAY] = "00:00"
    """Time of day when the window starts, 00:00 to 23:59."""
    end: Annotated[str, Field(max_length=5), TIME_OF_DAY] = "00:00"
    """Time of day when the window ends, 00:00 to 23:59. If it is not after start, the window ends on the next day."""
    min: Annotated[int, Between(1, 10_000)] | None = None
    """Lowest number of replicas within the window, 1 to 10000, Ready when it begins. Default: the pool's."""
    max: Annotated[int, Between(1, 10_000)] | None = None
    """Highest number of replicas within the window, 1 to 10000. Default: the pool's."""
    cost_factor: Annotated[float, Between(0.01, 100)] | None = None
    """What costPerReplicaHour is multiplied by within the window, 0.01 to 100: 0.5 is half price. Default: 1. Work with
    deadlines (spec.batch) waits for cheaper hours as far as half of max does it there in time."""

    model_config = ConfigDict(json_schema_extra=rules(_SOMETHING))

    _given = needs_some(_SOMETHING.says, "min", "max", "cost_factor")


class Occurrence(NamedTuple):
    """One window of a schedule."""

    begin: float
    """Unix time in seconds."""
    end: float
    schedule: Schedule


def occurrences(schedules: Iterable[Schedule], begin: float, end: float) -> Iterator[Occurrence]:
    """All windows that reach into the time from `begin` to `end`, Unix seconds, schedule by schedule.

    Each edge is the first moment at which clocks in the zone read that time or later: a time that is skipped in spring
    is the moment of the change, and of one that comes twice in autumn the first counts.
    """
    for schedule in schedules:
        zone = ZoneInfo(schedule.time_zone)
        starts, ends = time.fromisoformat(schedule.start), time.fromisoformat(schedule.end)
        over = timedelta(days=ends <= starts)
        day = datetime.fromtimestamp(begin, zone).date() - timedelta(days=1)
        last = datetime.fromtimestamp(end, zone).date()
        while day <= last:
            if WEEK[day.weekday()] in schedule.days:
                window = Occurrence(_moment(day, starts, zone), _moment(day + over, ends, zone), schedule)
                if window.begin < window.end and window.begin <= end and window.end > begin:
                    yield window
            day += timedelta(days=1)


def cost_factor(windows: Iterable[Occurrence]) -> float:
    """Ratio of prices to costPerReplicaHour while these windows are in force: the highest of theirs, else 1."""
    return max((one.schedule.cost_factor for one in windows if one.schedule.cost_factor), default=1.0)


@lru_cache(maxsize=4096)  # each is asked for at every tick of its day
def _moment(day: date, at: time, zone: ZoneInfo) -> float:
    """Unix time in seconds of the first moment at which clocks in the zone read this time or later."""
    wall = datetime.combine(day, at, zone)
    moment = wall.timestamp()
    if datetime.fromtimestamp(moment, zone).replace(tzinfo=None) == wall.replace(tzinfo=None):
        return moment
    # A skipped time: by the offset before the change it is after it, by the one after the change before it.
    before, after = wall.replace(fold=1).timestamp(), moment
    offset = datetime.fromtimestamp(before, zone).utcoffset()
    while after - before > 1.0:
        middle = (before + after) // 2
        if datetime.fromtimestamp(middle, zone).utcoffset() == offset:
            before = middle
        else:
            after = middle
    return after
