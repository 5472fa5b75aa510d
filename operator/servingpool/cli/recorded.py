"""What `check`, `record`, `backtest` and `suggest` share: the target, and the file of a history."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from servingpool.cli.usage import wrong

if TYPE_CHECKING:
    from servingpool.backtest.recording import Chunk, Header

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
