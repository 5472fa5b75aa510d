"""A recorded history: every scrape of a workload's engines, as columns, in a file that grows by chunks.

Each chunk is a gzip member of its own with one JSON document, so a file that was cut off is continued where it is
whole. No I/O here: bytes in, bytes out.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from servingpool.decision.observation import Histogram, ReplicaMetrics

Floats = NDArray[np.float64]
Points = Iterable[tuple[float, float]]
"""Unix seconds, and a number."""

FORMAT = 1
"""Version of the file's format; rises when a key changes its meaning."""
FIGURES = ("running", "waiting", "generation_tokens", "prompt_tokens", "cached_prompt_tokens", "begun")
HISTOGRAMS = ("time_to_first_token", "inter_token_latency", "time_per_output_token", "queue_time")
MOST_TEXT = 64 * 2**20
"""Bytes of a chunk as text: two hours of a hundred pods are a third of it."""
GZIP = 31
"""zlib's name for a gzip member with the largest window."""


class RecordingError(ValueError):
    """A file that is no recording, or cannot be used; the message says what to do."""


class Header(BaseModel):
    """Workload and settings of a recording."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    format: int = FORMAT
    namespace: str
    target: str
    """The workload's name."""
    sort: tuple[str, str] = ("apps", "Deployment")
    """API group and kind of the workload."""
    engine: str
    model: str
    begin: float
    """Unix time in seconds, as `end`."""
    end: float
    step: float = Field(gt=0)
    """Seconds between two times at which Prometheus was asked for its newest samples."""
    gpus: int = 1
    """Per replica."""
    starts: tuple[float, ...] = ()
    """Seconds from creation to Ready of the pods that stood when it was recorded."""
    bounds: tuple[int, int] | None = None
    """min and max replicas of the autoscaler in force."""
    autoscaler: dict[str, Any] | None = None
    """The autoscaler itself, kind, name and spec, to be replayed."""
    backlog: str | None = None
    """Query for what waits in a broker."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """Cumulative counts of a histogram, a row per scrape."""

    bounds: tuple[float, ...]
    counts: Floats
    """[scrape, bound]"""
    total: Floats
    count: Floats


@dataclass(frozen=True, slots=True)
class Scrapes:
    """The scrapes of one pod in one chunk, oldest first; NaN where a figure was not exposed."""

    pod: str
    at: Floats
    """Unix seconds of each scrape."""
    figures: Mapping[str, Floats]
    histograms: Mapping[str, Buckets]
    ttft_from_admission: bool = False


@dataclass(frozen=True, slots=True)
class Chunk:
    """A stretch of time."""

    begin: float
    end: float
    """Unix seconds; the last time asked for."""
    scrapes: tuple[Scrapes, ...]
    requested: tuple[tuple[float, float], ...] = ()
    """(Unix seconds, spec.replicas) where kube-state-metrics tells."""
    backlog: tuple[tuple[float, float], ...] = ()
    """(Unix seconds, what waits in a broker) where its query has an answer."""

    @classmethod
    def of(
        cls, begin: float, end: float, samples: Iterable[ReplicaMetrics], requested: Points = (), backlog: Points = ()
    ) -> Self:
        """The chunk of samples as read at each step, oldest first; a sample that was read twice counts once."""
        rows: dict[tuple[Any, ...], dict[float, ReplicaMetrics]] = {}
        for sample in samples:
            shape = tuple(_bounds(getattr(sample, name)) for name in HISTOGRAMS)
            rows.setdefault((sample.replica, *shape), {})[sample.scraped_at] = sample
        scrapes = tuple(_columns(list(each.values())) for each in rows.values())
        return cls(begin, end, scrapes, tuple(requested), tuple(backlog))


@dataclass(slots=True)
class Reader:
    """Reads a file's bytes, handed in piece by piece."""

    whole: int = 0
    """Bytes that hold whole chunks: the rest was cut off."""
    _member: Any = field(default_factory=lambda: zlib.decompressobj(GZIP))
    _text: list[bytes] = field(default_factory=list)
    _length: int = 0
    """Bytes in `_text`."""
    _read: int = 0

    def feed(self, data: bytes) -> Iterator[Any]:
        """The documents that end in `data`. Raises RecordingError for data of no recording."""
        while data:
            try:
                self._text.append(self._member.decompress(data, MOST_TEXT + 1 - self._length))
            except zlib.error:
                raise RecordingError("is no recording: it is not a gzip file, or damaged") from None
            self._length += len(self._text[-1])
            if self._length > MOST_TEXT:
                raise RecordingError(f"is no recording: a chunk is larger than {MOST_TEXT // 2**20} MiB")
            rest = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
            self._read += len(data) - len(rest)
            if self._member.eof:
                yield _document(b"".join(self._text))
                self.whole = self._read
                self._member, self._text, self._length = zlib.decompressobj(GZIP), [], 0
            data = rest


def encode_header(header: Header) -> bytes:
    """The file's first member."""
    return _member(header.model_dump_json().encode())


def encode(chunk: Chunk) -> bytes:
    """A further member of the file."""
    return _member(orjson.dumps(chunk, option=orjson.OPT_SERIALIZE_NUMPY))


def decode_header(document: Any) -> Header:
    """Raises RecordingError."""
    try:
        header = Header.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        raise RecordingError(f"is no recording: {'.'.join(map(str, first['loc']))} {first['msg']}") from None
    if header.format != FORMAT:
        raise RecordingError(f"has format {header.format}, this release reads {FORMAT}: record it again")
    return header


def decode(document: Any) -> Chunk:
    """Raises RecordingError."""
    try:
        return Chunk(
            begin=float(document["begin"]),
            end=float(document["end"]),
            requested=_points(document["requested"]),
            backlog=_points(document.get("backlog", ())),
            scrapes=tuple(map(_scrapes, document["scrapes"])),
        )
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise RecordingError(f"is damaged: a chunk cannot be read: {error!r}") from error


def _scrapes(raw: Mapping[str, Any]) -> Scrapes:
    at = _array(raw["at"])
    return Scrapes(
        pod=str(raw["pod"]),
        at=at,
        ttft_from_admission=bool(raw["ttft_from_admission"]),
        figures={name: _array(values) for name, values in raw["figures"].items()},
        histograms={
            name: Buckets(
                bounds=tuple(map(float, one["bounds"])),
                counts=_array(one["counts"]).reshape(len(at), -1),
                total=_array(one["total"]),
                count=_array(one["count"]),
            )
            for name, one in raw["histograms"].items()
        },
    )


def _points(raw: Iterable[Any]) -> tuple[tuple[float, float], ...]:
    return tuple((float(at), float(count)) for at, count in raw)


def _array(values: Sequence[Any]) -> Floats:
    return np.array(values, dtype=np.float64)


def _bounds(histogram: object) -> tuple[float, ...] | None:
    return histogram.bounds if isinstance(histogram, Histogram) else None


def _columns(samples: list[ReplicaMetrics]) -> Scrapes:
    """Columns of a pod, with the same buckets throughout."""
    figures = {}
    for name in FIGURES:
        column = [value if isinstance(value := getattr(one, name), float) else np.nan for one in samples]
        if not np.all(np.isnan(column)):
            figures[name] = np.array(column)
    histograms = {}
    for name in HISTOGRAMS:
        shown = [one for each in samples if isinstance(one := getattr(each, name), Histogram)]
        if len(shown) == len(samples):
            histograms[name] = Buckets(
                bounds=shown[0].bounds,
                counts=np.array([one.counts for one in shown]).reshape(len(samples), -1),
                total=np.array([one.total for one in shown]),
                count=np.array([one.count for one in shown]),
            )
    return Scrapes(
        pod=samples[0].replica,
        at=np.array([one.scraped_at for one in samples]),
        figures=figures,
        histograms=histograms,
        ttft_from_admission=samples[0].ttft_from_admission,
    )


def _member(text: bytes) -> bytes:
    squeeze = zlib.compressobj(6, zlib.DEFLATED, GZIP)
    return squeeze.compress(text + b"\n") + squeeze.flush()


def _document(text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        raise RecordingError("is no recording: a chunk is not JSON") from None


def kept(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Part of an autoscaler that a recording keeps: its kind, its name and its rule."""
    return {"kind": raw["kind"], "metadata": {"name": raw["metadata"]["name"]}, "spec": raw.get("spec", {})}
