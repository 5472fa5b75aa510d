"""What `check`, `record`, `backtest` and `suggest` share: the target, the Prometheus, and the file of a history."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from servingpool.cli.usage import wrong

if TYPE_CHECKING:
    from servingpool.adapters.prometheus import BackendConfig
    from servingpool.backtest.recording import Chunk, Header
    from servingpool.reconcile.config import OperatorConfig

PIECE = 2**20
"""Bytes of a file read at once."""

AUTOSCALERS = {"hpa": "hpa", "horizontalpodautoscaler": "hpa", "scaledobject": "scaledobject", "so": "scaledobject"}
"""Kubectl's names."""


def workload(text: str) -> tuple[str, str]:
    """Kind and name in `KIND/NAME` or `KIND.GROUP/NAME`; the API server knows which kinds there are."""
    kind, _, name = text.partition("/")
    if not kind or not name or "/" in name or kind in AUTOSCALERS:
        wrong(f"Write the target as KIND/NAME, such as deployment/{name or 'llama'}, got '{text}'")
    return kind, name


def target_of(text: str) -> tuple[str, str]:
    """The same, and for an autoscaler `hpa` or `scaledobject` and its name."""
    kind, slash, name = text.partition("/")
    return (AUTOSCALERS[kind], name) if kind in AUTOSCALERS and slash and name else workload(text)


def chosen(config: Path | None, prometheus: str | None, backend: str) -> tuple[OperatorConfig, BackendConfig]:
    """The configuration, and the Prometheus in it that is meant."""
    from servingpool.cli.check import settings

    if config is None and prometheus is None:
        wrong("Give --prometheus URL or --config FILE")
    found = settings(config, prometheus)
    return found, backend_of(found, prometheus, backend)


def backend_of(found: OperatorConfig, prometheus: str | None, backend: str) -> BackendConfig:
    """The one of this name; of a URL there is one alone."""
    one = found.backends[0] if prometheus else next((b for b in found.backends if b.name == backend), None)
    if one is None:
        wrong(f"--backend must be one of {', '.join(each.name for each in found.backends)}, got '{backend}'")
    return one


def read(path: Path) -> tuple[Header, Iterator[Chunk]]:
    """A recording's header, and its chunks as they are read. Raises RecordingError."""
    from servingpool.backtest.recording import Reader, RecordingError, decode, decode_header

    def documents() -> Iterator[object]:
        reader = Reader()
        try:
            with path.open("rb") as file:
                while piece := file.read(PIECE):
                    yield from reader.feed(piece)
        except OSError as error:
            raise RecordingError(f"cannot be read: {error.strerror}") from error

    found = documents()
    first = next(found, None)
    if first is None:
        raise RecordingError("is no recording: it is empty, or cut off at the first line")
    return decode_header(first), map(decode, found)


def resumed(path: Path) -> tuple[Header, float] | None:
    """The header of a recording that was begun, and until when it reaches; what was cut off is removed.

    None where there is no such file. Raises RecordingError.
    """
    from servingpool.backtest.recording import Reader, RecordingError, decode, decode_header

    if not path.is_file() or path.stat().st_size == 0:
        return None
    reader, first, last = Reader(), None, None
    with path.open("r+b") as file:
        while piece := file.read(PIECE):
            for document in reader.feed(piece):
                first, last = (document, None) if first is None else (first, document)
        if first is None:
            raise RecordingError("is no recording: it is cut off at the first line")
        header = decode_header(first)
        end = header.begin if last is None else decode(last).end
        file.truncate(reader.whole)  # only now: a file that is no recording is somebody's
    return header, end
