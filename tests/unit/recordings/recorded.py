"""The recordings: `python -m tests.unit.recordings.recorded` plays all stories, tells which decisions moved, writes them.

A change that is to move no decision leaves the files as they are: `test_recordings`.
"""

from __future__ import annotations

import gzip
import json
import math
import sys
from pathlib import Path
from typing import Any

from .stories import RECORDINGS, decisions

HERE = Path(__file__).parent
SAME = 1e-9
"""Relative difference of two needs that are the same: processors add up sums in different orders."""

Rows = list[dict[str, Any]]


def path(name: str) -> Path:
    return HERE / f"{name}.jsonl.gz"


def play(name: str, story: str) -> Rows:
    """The rows of a story that is played now, as `read` would return them."""
    rows = [{"story": story, **row} for row in decisions(RECORDINGS[name][story])]
    return [json.loads(json.dumps(row)) for row in rows]


def read(name: str) -> Rows:
    """The rows of a file."""
    return [json.loads(line) for line in gzip.decompress(path(name).read_bytes()).splitlines()]


def write(name: str, rows: Rows) -> None:
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    path(name).write_bytes(gzip.compress(lines.encode(), mtime=0))


def moved(before: Rows, now: Rows) -> str:
    """Which decisions moved and how far; empty where none did."""
    pairs = [each for each in zip(before, now, strict=False) if not _same(*each)]
    if not pairs and len(before) == len(now):
        return ""
    far = [
        abs(new["replicas"] - old["replicas"]) for old, new in pairs if None not in (old["replicas"], new["replicas"])
    ]
    told = f"{len(pairs)} of {len(before)} decisions moved, {sum(map(bool, far))} of them by replicas, at most "
    told += f"{max(far, default=0)}; {len(now)} were made."
    return "\n".join([told, *map(json.dumps, pairs[0])]) if pairs else told


def _same(old: dict[str, Any], new: dict[str, Any]) -> bool:
    needs = old["need"], new["need"]
    if None in needs:
        return old == new
    return {**old, "need": 0} == {**new, "need": 0} and math.isclose(*needs, rel_tol=SAME)


def main() -> None:
    for name, stories in RECORDINGS.items():
        rows = [row for story in stories for row in play(name, story)]
        told = moved(read(name), rows) if path(name).exists() else "It is new."
        write(name, rows)
        sys.stdout.write(f"{name}: {len(rows)} decisions. {told or 'None moved.'}\n")


if __name__ == "__main__":
    main()
