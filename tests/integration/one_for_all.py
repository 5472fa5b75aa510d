"""What the processes of a test run share: the first one that wants it starts it, the last one that leaves stops it."""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TextIO

Found = Mapping[str, str]


@contextmanager
def shared(directory: Path, start: Callable[[ExitStack], Found]) -> Iterator[Found]:
    """What `start` returned, in whichever process it was called.

    Whoever has started it waits at the end for the others. A lock ends with its process, however that ends.
    """
    directory.mkdir(exist_ok=True)
    found = directory / "found.json"
    with (directory / "owner").open("w") as owner, (directory / "users").open("w") as users, ExitStack() as stack:
        with _in_turn(directory):
            if owns := _locked(owner):
                found.write_text(json.dumps(dict(start(stack))))
            fcntl.flock(users, fcntl.LOCK_SH)
        yield json.loads(found.read_text())
        fcntl.flock(users, fcntl.LOCK_UN)
        while owns:
            with _in_turn(directory):  # one that comes now waits, and then starts its own
                if _locked(users):
                    stack.close()
                    fcntl.flock(owner, fcntl.LOCK_UN)
                    return
            time.sleep(0.5)


@contextmanager
def _in_turn(directory: Path) -> Iterator[None]:
    with (directory / "turn").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield


def _locked(file: TextIO) -> bool:
    """Whether nobody else has it locked; it is then locked here."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
