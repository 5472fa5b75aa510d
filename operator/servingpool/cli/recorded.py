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

KINDS = {
    "deployment": "deployment",
    "deploy": "deployment",
    "hpa": "hpa",
    "horizontalpodautoscaler": "hpa",
    "scaledobject": "scaledobject",
    "so": "scaledobject",
}
"""Kubectl's names."""


def target_of(text: str, kinds: tuple[str, ...]) -> tuple[str, str]:
    """Kind and name in `deployment/NAME`."""
    kind, slash, name = text.partition("/")
    if KINDS.get(kind) not in kinds or not slash or not name or "/" in name:
        wrong(f"Write the target as {' or '.join(f'{one}/NAME' for one in kinds)}, got '{text}'")
    return KINDS[kind], name


def deployment(target: str) -> str:
    """The name in `deployment/NAME`."""
    return target_of(target, ("deployment",))[1]


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
