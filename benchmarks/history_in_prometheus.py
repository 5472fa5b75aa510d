"""A recorded history in a real Prometheus: written as a PodMonitor's scrapes, read as `servingpool record` reads it.

Prometheus takes the scrapes at their own times through its remote-write receiver. The request is a protobuf of three
small messages in a Snappy block of literals, so it needs neither library.
"""

from __future__ import annotations

import asyncio
import math
import struct
import urllib.request
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from servingpool.adapters.prometheus.backend import PrometheusBackend
from servingpool.adapters.prometheus.backend_config import BackendConfig
from servingpool.adapters.prometheus.engines import profile_of
from servingpool.adapters.prometheus.engines.profile import HISTOGRAMS, EngineMetrics
from servingpool.recording.format import Chunk, Floats, Header, Scrapes
from servingpool.recording.recorder import Pace, record
from servingpool_lab.binaries import ensure_binaries
from servingpool_lab.control_plane import free_ports
from servingpool_lab.processes import SupervisedProcess, http_ready, open_local

STALE = struct.pack("<Q", 0x7FF0000000000002)
"""The NaN that Prometheus appends to each series of a target whose scrape failed, or that is gone."""
PATIENCE = 60.0
"""Seconds for one request."""
LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""That Kubernetes draws the ends of pods' names from."""

Outages = Collection[tuple[float, float]]
"""(begin, end) in Unix seconds, when Prometheus was away: it scrapes nothing and marks nothing as stale."""


def through_prometheus(
    header: Header, chunks: Sequence[Chunk], interval: float, outages: Outages, directory: Path
) -> list[Chunk]:
    """The chunks as recorded from a real Prometheus that holds them. `interval`: seconds between two scrapes."""
    with receiving(directory) as url:
        for body in requests(header, chunks, interval, outages):
            send(url, body)
        return asyncio.run(_read(url, header))


@contextmanager
def receiving(directory: Path, settings: str = "{}") -> Iterator[str]:
    """The URL of a Prometheus that scrapes nothing and is written to. `settings`: its configuration, as YAML."""
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    configuration = directory / "prometheus.yaml"
    configuration.write_text(f"{settings}\n")
    process = SupervisedProcess(
        "prometheus",
        [
            ensure_binaries("prometheus")["prometheus"],
            f"--config.file={configuration}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address={url.removeprefix('http://')}",
            "--web.enable-remote-write-receiver",
        ],
        directory / "prometheus.log",
        ready=http_ready(f"{url}/-/ready"),
    )
    process.start()
    try:
        process.wait_ready()
        yield url
    finally:
        process.stop()


async def _read(url: str, header: Header) -> list[Chunk]:
    async with aclosing(PrometheusBackend(BackendConfig(url=url, timeout="1m"))) as backend:
        return [chunk async for chunk in record(backend, header, header.begin, Pace(pause=0.0))]


def requests(header: Header, chunks: Sequence[Chunk], interval: float, outages: Outages) -> Iterator[bytes]:
    """Remote-write requests, one for each chunk: Prometheus wants each series in order, and no sample an hour late."""
    names = sorted({one.pod for chunk in chunks for one in chunk.scrapes})
    pods = {name: _pod(header.target, index) for index, name in enumerate(names)}
    marks = {name: _stale_at(name, header, chunks, interval, outages) for name in names}
    profile, written = profile_of(header.engine), dict.fromkeys(names, -math.inf)
    for chunk in chunks:
        body = bytearray()
        for name in names:
            # The scrape that was the newest at the chunk's begin may be in the chunk before as well.
            parts = [(one, one.at > written[name]) for one in chunk.scrapes if one.pod == name]
            until = math.inf if chunk is chunks[-1] else chunk.end
            stale = marks[name][(marks[name] > chunk.begin) & (marks[name] <= until)]
            labels = {
                "namespace": header.namespace,
                "pod": pods[name],
                "job": f"{header.namespace}/{header.target}",
                "instance": f"{pods[name]}:8000",
                "engine": "0",
                str(profile.model_label): header.model,
            }
            for key, (at, values) in _merged(parts, profile, labels).items():
                body += field(1, series(dict(key), at, values, stale))
            written[name] = max([written[name], *(float(one.at[-1]) for one, _ in parts)])
        yield bytes(body)


def _pod(target: str, index: int) -> str:
    """As a ReplicaSet names its pods."""
    drawn = "".join(LETTERS[index // len(LETTERS) ** place % len(LETTERS)] for place in reversed(range(5)))
    return f"{target}-6d4cf56db-{drawn}"


def _stale_at(pod: str, header: Header, chunks: Sequence[Chunk], interval: float, outages: Outages) -> Floats:
    """When a pod's next scrape should have been and failed, or found the pod gone."""
    at = np.unique(np.concatenate([one.at for chunk in chunks for one in chunk.scrapes if one.pod == pod]))
    due = at + interval
    missed = np.append(np.diff(at) > 1.5 * interval, due[-1] < header.end)
    for begin, end in outages:
        missed &= (due < begin) | (due >= end)
    found: Floats = due[missed]
    return found


def _merged(
    parts: Iterable[tuple[Scrapes, NDArray[np.bool_]]], profile: EngineMetrics, labels: Mapping[str, str]
) -> dict[tuple[tuple[str, str], ...], tuple[Floats, Floats]]:
    """Times and values of each series of a pod, by its labels; a figure that was not exposed has none."""
    found: dict[tuple[tuple[str, str], ...], tuple[Floats, Floats]] = {}

    def add(own: Mapping[str, str], at: Floats, values: Floats) -> None:
        key = tuple(sorted({**labels, **own}.items()))
        shown = ~np.isnan(values)
        before = found.get(key, (np.empty(0), np.empty(0)))
        found[key] = (np.append(before[0], at[shown]), np.append(before[1], values[shown]))

    names = {figure.field: series[0].name for figure, series in profile.figures.items()}
    for scrapes, new in parts:
        at = scrapes.at[new]
        for field, values in scrapes.figures.items():
            source = {"source": "local_cache_hit"} if field == "cached_prompt_tokens" else {}
            add({"__name__": names[field], **source}, at, values[new])
        for figure in HISTOGRAMS:
            shown = scrapes.histograms.get(figure.field)
            if shown is None:
                continue
            name = names[figure.field]
            for place, bound in enumerate(shown.bounds):
                add({"__name__": f"{name}_bucket", "le": str(float(bound))}, at, shown.counts[new, place])
            add({"__name__": f"{name}_bucket", "le": "+Inf"}, at, shown.count[new])
            add({"__name__": f"{name}_sum"}, at, shown.total[new])
            add({"__name__": f"{name}_count"}, at, shown.count[new])
    return found


def series(labels: Mapping[str, str], at: Floats, values: Floats, stale: Floats) -> bytes:
    """A series of a remote-write request: its samples, and when it is marked as stale, in Unix seconds."""
    samples = [(when, struct.pack("<d", value)) for when, value in zip(at.tolist(), values.tolist(), strict=True)]
    samples += [(when, STALE) for when in stale.tolist()]
    body = bytearray()
    for name, value in sorted(labels.items()):
        body += field(1, field(1, name.encode()) + field(2, value.encode()))
    for when, packed in sorted(samples):
        body += field(2, b"\x09" + packed + b"\x10" + _varint(round(1000 * when)))
    return bytes(body)


def field(number: int, content: bytes) -> bytes:
    """A protobuf field of bytes."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def _snappy(content: bytes) -> bytes:
    """A block of literals."""
    block, most = bytearray(_varint(len(content))), 2**16
    for start in range(0, len(content), most):
        piece = content[start : start + most]
        block += bytes([61 << 2]) + struct.pack("<H", len(piece) - 1) + piece
    return bytes(block)


def send(url: str, body: bytes) -> None:
    """Write series to the Prometheus at a URL."""
    headers = {
        "Content-Type": "application/x-protobuf",
        "Content-Encoding": "snappy",
        "X-Prometheus-Remote-Write-Version": "0.1.0",
    }
    request = urllib.request.Request(f"{url}/api/v1/write", _snappy(body), headers)
    with open_local(request, PATIENCE) as answer:
        answer.read()
