"""Durations as people write them: `2s`, `100ms`, `1m30s`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from servingpool.api.rule import GIVEN, Rule, quoted, rules, told

# Six digits a unit: within MAX_LENGTH no sum can overflow Go's duration, which CEL's duration() parses into.
PATTERN = "^([0-9]{1,6}(ms|s|m|h))+$"
MAX_LENGTH = 16
_NO_DURATION = f"'{GIVEN}' is not a duration: write whole numbers with units, such as 2s, 100ms or 1m30s"

_MILLISECONDS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
_WHOLE = re.compile(PATTERN.removeprefix("^").removesuffix("$"))
_PART = re.compile("([0-9]{1,6})(ms|s|m|h)")


def parse(text: str) -> float:
    """Seconds. ValueError if `text` is not whole numbers with units ms, s, m, h."""
    if len(text) > MAX_LENGTH or not _WHOLE.fullmatch(text):
        raise ValueError(told(_NO_DURATION, text))
    return sum(int(number) * _MILLISECONDS[unit] for number, unit in _PART.findall(text)) / 1_000


def write(seconds: float) -> str:
    """The shortest text that `parse` reads back, to the millisecond: 90 is `1m30s`, 1.5 is `1s500ms`."""
    left = round(seconds * 1_000)
    if left < 0:
        raise ValueError(f"a duration is not negative, got {seconds} s")
    text = ""
    for unit in ("h", "m", "s", "ms"):
        number, left = divmod(left, _MILLISECONDS[unit])
        text += f"{number}{unit}" if number else ""
    return text or "0s"


def brief(seconds: float) -> str:
    """For reading, three digits: `48ms`, `1.32s`, `2m10s`. Not for `parse`."""
    if seconds < 1:
        return f"{seconds * 1_000:.3g}ms" if seconds < 0.9995 else "1s"
    return f"{seconds:.3g}s" if seconds < 59.95 else write(round(seconds))


@dataclass(frozen=True, slots=True)
class DurationBetween:
    """Marks a float of seconds whose manifest form is a duration within `low` and `high`, both included."""

    low: str
    high: str

    @property
    def _unreadable(self) -> str:
        return f"{_NO_DURATION}; allowed: {self.low} to {self.high}"

    @property
    def _out_of_range(self) -> str:
        return f"must be {self.low} to {self.high}, got {GIVEN}"

    def read(self, text: str) -> float:
        """Seconds; ValueError, worded as at admission, if it does not parse or is out of range."""
        try:
            seconds = parse(text)
        except ValueError:
            raise ValueError(told(self._unreadable, text)) from None
        if not parse(self.low) <= seconds <= parse(self.high):
            raise ValueError(told(self._out_of_range, text))
        return seconds

    def __get_pydantic_core_schema__(self, _source: type[Any], _handler: GetCoreSchemaHandler) -> CoreSchema:
        """Text in, seconds in Python, text out."""
        text = core_schema.str_schema(strict=True)
        serialization = core_schema.plain_serializer_function_ser_schema(write, return_schema=text)
        return core_schema.no_info_after_validator_function(self.read, text, serialization=serialization)

    def __get_pydantic_json_schema__(self, _schema: CoreSchema, _handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """A bounded string with two rules: it parses, it is in range."""
        parses = f"self.matches({quoted(PATTERN)})"
        in_range = f"duration(self) >= duration({quoted(self.low)}) && duration(self) <= duration({quoted(self.high)})"
        return {
            "type": "string",
            "maxLength": MAX_LENGTH,
            **rules(
                Rule(parses, self._unreadable, "self"),
                Rule(f"!{parses} || ({in_range})", self._out_of_range, "self"),
            ),
        }
