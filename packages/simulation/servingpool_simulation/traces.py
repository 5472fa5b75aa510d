"""Who asks for what and when: the shipped traces, a user's own, and generated ones."""

from __future__ import annotations

import csv
import gzip
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
"""Columns of a trace file, the names of the Azure traces."""

DAY = 86_400.0


class TraceError(ValueError):
    """A trace file that cannot be used; the message says where and why."""


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Requests in order of arrival."""

    name: str
    arrival: Floats = field(repr=False)
    """Seconds since the trace began, ascending."""
    prompt: Ints = field(repr=False)
    """Tokens in the prompt, 1 or more."""
    output: Ints = field(repr=False)
    """Tokens in the answer, 1 or more."""
    duration: float
    """Seconds; not before the last arrival."""

    def __len__(self) -> int:
        return len(self.arrival)

    def between(self, begin: float, end: float) -> Trace:
        """The part in [begin, end) seconds, moved to begin at 0."""
        first, last = np.searchsorted(self.arrival, (begin, end))
        part = slice(int(first), int(last))
        return Trace(
            name=self.name,
            arrival=self.arrival[part] - begin,
            prompt=self.prompt[part],
            output=self.output[part],
            duration=min(end, self.duration) - begin,
        )

    def then(self, other: Trace) -> Trace:
        """This trace, and `other` right after it."""
        return Trace(
            name=self.name if self.name == other.name else f"{self.name}, then {other.name}",
            arrival=np.concatenate((self.arrival, other.arrival + self.duration)),
            prompt=np.concatenate((self.prompt, other.prompt)),
            output=np.concatenate((self.output, other.output)),
            duration=self.duration + other.duration,
        )


def load_trace(path: Path) -> Trace:
    """A CSV (or .csv.gz) with the columns TIMESTAMP, ContextTokens, GeneratedTokens, as Azure publishes them.

    TIMESTAMP is a date with time or a number of seconds; rows may be in any order. Raises TraceError.
    """
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise TraceError(f"cannot read {path}: {error}") from error
    return _parse(path.name.removesuffix(".gz").removesuffix(".csv"), text)


def _parse(name: str, text: str) -> Trace:
    rows = csv.DictReader(io.StringIO(text))
    missing = [column for column in COLUMNS if column not in (rows.fieldnames or ())]
    if missing:
        raise TraceError(
            f"{name}: the first line must name the columns {', '.join(COLUMNS)}, "
            f"got {', '.join(rows.fieldnames or ('nothing',))}"
        )
    seconds: list[float] = []
    prompt: list[int] = []
    output: list[int] = []
    for row in rows:
        seconds.append(_seconds(row["TIMESTAMP"], name, rows.line_num))
        prompt.append(_tokens(row, "ContextTokens", name, rows.line_num))
        output.append(_tokens(row, "GeneratedTokens", name, rows.line_num))
    if not seconds:
        raise TraceError(f"{name} has no requests; write one line per request below the column names")
    order = np.argsort(seconds, kind="stable")
    arrival = np.array(seconds)[order]
    arrival -= arrival[0]
    return Trace(name, arrival, np.array(prompt)[order], np.array(output)[order], float(arrival[-1]))


def _seconds(value: str | None, name: str, line: int) -> float:
    text = (value or "").strip()
    try:
        seconds = float(text)
    except ValueError:
        seconds = _date(text)
    if not math.isfinite(seconds):
        raise TraceError(
            f"{name}, line {line}: TIMESTAMP is {text!r}; write seconds, or a date such as 2023-11-16 18:15:46.68"
        )
    return seconds


def _date(text: str) -> float:
    """Unix seconds, NaN for what is no date. Azure writes 7 digits of a second, too many for `datetime`."""
    try:
        moment = np.datetime64(text.removesuffix("Z"), "ns")
    except ValueError:
        return math.nan
    return math.nan if np.isnat(moment) else float(moment.astype(np.int64)) / 1e9


def _tokens(row: dict[str, str], column: str, name: str, line: int) -> int:
    text = (row[column] or "").strip()
    if not text.isdecimal() or int(text) < 1:
        raise TraceError(f"{name}, line {line}: {column} is {text!r}; it must be a whole number of tokens, 1 or more")
    return int(text)


def _packaged(file: str) -> str:
    raw = resources.files("servingpool_simulation").joinpath("data", file).read_bytes()
    return (gzip.decompress(raw) if file.endswith(".gz") else raw).decode()


def _table(file: str) -> Floats:
    """A shipped table of numbers; comments and the line with the names are skipped."""
    lines = [line for line in _packaged(file).splitlines() if line and not line.startswith("#")]
    return np.array([[float(cell) for cell in line.split(",")] for line in lines[1:]])


def _azure2023(kind: str) -> Trace:
    table = _table(f"azure2023_{kind}.csv.gz")
    return Trace(
        name=f"Azure 2023 {kind}",
        arrival=table[:, 0],
        prompt=table[:, 1].astype(np.int64),
        output=table[:, 2].astype(np.int64),
        duration=float(table[-1, 0]),
    )


def azure2023_conv() -> Trace:
    """A chat service for an hour: 19,366 requests, 5.5/s, 1155 tokens in and 211 out on average."""
    return _azure2023("conv")


def azure2023_code() -> Trace:
    """A code completion service for an hour: 8,819 requests in bursts, 2048 tokens in and 28 out on average."""
    return _azure2023("code")


def poisson(name: str, rates: Sequence[float], stage: float, *, prompt: int, output: int, seed: int = 0) -> Trace:
    """Poisson arrivals at each of `rates` (requests/s) for `stage` seconds, all of the same lengths."""
    random = np.random.default_rng(seed)
    arrival = _arrivals(random, np.asarray(rates, dtype=np.float64), stage)
    size = len(arrival)
    return Trace(name, arrival, np.full(size, prompt), np.full(size, output), stage * len(rates))


def _arrivals(random: np.random.Generator, rates: Floats, stage: float) -> Floats:
    """Given how many arrive in a stage, Poisson arrivals are spread evenly over it."""
    counts = random.poisson(rates * stage)
    starts = np.repeat(np.arange(len(rates)) * stage, counts)
    return np.sort(starts + random.random(len(starts)) * stage)


LLMD_RAMP_RATES = (2.0, 4.0, 6.0, 8.0, 10.0, 4.0, 1.0)


def llmd_ramp(stage: float = 600.0, seed: int = 0) -> Trace:
    """The steps of llm-d's own slo-aware benchmark: 2-4-6-8-10-4-1 requests/s, 4000 tokens in, 1000 out."""
    return poisson("llm-d ramp", LLMD_RAMP_RATES, stage, prompt=4000, output=1000, seed=seed)


def azure2024_conv_curve(day: int = 0, days: int = 1) -> Floats:
    """[minute, (mean, lowest, highest)]: requests/s that the digitised plot shows around each minute of the days."""
    if not (0 <= day and days >= 1 and day + days <= 7):
        raise ValueError(f"the curve has 7 days; got day {day} and {days} days from it")
    curve = _table("azure2024_conv_rate_digitised.csv")
    minutes = day * DAY + np.arange(int(days * DAY // 60)) * 60.0 + 30.0
    column = np.clip(np.searchsorted(curve[:, 0], minutes), 0, len(curve) - 1)
    return np.asarray(curve[column, 1:4])


def azure2024_conv_reconstructed(day: int = 0, days: int = 1, scale: float = 1.0, seed: int = 0) -> Trace:
    """Days of a week-long chat service, reconstructed from digitised plots: not recorded arrivals.

    Each minute's rate is drawn evenly between the lowest and the highest minute that the plot shows around it,
    arrivals are Poisson at that rate, and lengths are drawn from the two published distributions, independently.
    `day` is 0 to 6; `scale` multiplies the rate (mean 45, peak 80 requests/s).
    """
    random = np.random.default_rng(seed)
    curve = azure2024_conv_curve(day, days)
    rates = random.uniform(curve[:, 1], curve[:, 2]) * scale
    arrival = _arrivals(random, rates, 60.0)
    return Trace(
        name=f"Azure 2024 conv, reconstructed, {days} d",
        arrival=arrival,
        prompt=_lengths(random, "azure2024_conv_input_cdf_digitised.csv", len(arrival)),
        output=_lengths(random, "azure2024_conv_output_cdf_digitised.csv", len(arrival)),
        duration=days * DAY,
    )


def _lengths(random: np.random.Generator, file: str, size: int) -> Ints:
    curve = _table(file)
    drawn = np.interp(random.random(size) * 100.0, curve[:, 0], curve[:, 1])
    return np.maximum(1, np.rint(drawn)).astype(np.int64)
