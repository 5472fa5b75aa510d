"""The recordings: `python -m tests.unit.recordings.recorded` plays all stories, tells how many decisions moved, writes them.

With --list it writes nothing. Whether the decisions that moved are any worse is what `make guard` says.
"""

from __future__ import annotations

import gzip
import json
import math
import sys
from collections.abc import Sequence
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


def moved(before: Rows, now: Rows) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each decision that is another one now, as it was and as it is. A row of another moment is a defect."""
    if [_moment(row) for row in before] != [_moment(row) for row in now]:
        raise AssertionError(f"{len(before)} decisions are recorded, and {len(now)} of the same moments were made")
    return [(old, new) for old, new in zip(before, now, strict=True) if not _same(old, new)]


def told(pairs: Sequence[tuple[dict[str, Any], dict[str, Any]]], count: int) -> str:
    """In one line: how many moved, and the one that moved furthest."""
    if not pairs:
        return f"none of {count:,} decisions moved"
    old, new = max(pairs, key=_far)
    words = (f"{row['replicas']} replicas ({row['need'] or 0.0:.3f} needed)" for row in (old, new))
    where = f"{new['story']} at {new['at']:.0f} s"
    return f"{len(pairs):,} of {count:,} decisions moved, the largest from {' to '.join(words)}, {where}"


def _moment(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["story"], row["at"], row["pool"]


def _same(old: dict[str, Any], new: dict[str, Any]) -> bool:
    needs = old["need"], new["need"]
    if None in needs:
        return old == new
    return {**old, "need": 0} == {**new, "need": 0} and math.isclose(*needs, rel_tol=SAME)


def _far(pair: tuple[dict[str, Any], dict[str, Any]]) -> tuple[float, ...]:
    """By replicas, and by need where those are the same."""
    return tuple(abs((pair[0][name] or 0) - (pair[1][name] or 0)) for name in ("replicas", "need"))


def main() -> None:
    """With --list, write nothing."""
    pairs, count = [], 0
    for name, stories in RECORDINGS.items():
        rows = [row for story in stories for row in play(name, story)]
        pairs += moved(read(name), rows)
        count += len(rows)
        if "--list" not in sys.argv:
            write(name, rows)
    sys.stdout.write(f"Recorded decisions: {told(pairs, count)}.\n")


if __name__ == "__main__":
    main()
