"""Limits on what Prometheus answers: rows that cannot be read are left out and counted, and each size has a bound.

A reading is of all tenants' pools together, and any page that is scraped can hold series that nobody can read. One of
them must not cost the others their samples. A row
over a bound is left out; an answer over a bound makes its own query Unknown, and no other.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")

LARGEST_REPLY = 64 * 2**20
"""Bytes of a reply, unpacked: three times those of a slice of a full fleet."""
REPLIES_AT_ONCE = 192 * 2**20
"""Bytes of all replies that are held at once in this process."""
MOST_ROWS = 300_000
"""Rows of a reply: three times those of a slice of a full fleet."""
MOST_VALUES = 1_000_000
"""Commas in a text that is parsed at once; a full slice in one piece has 700,000. 8 MiB of `[],` become 230 MiB of
objects."""
MOST_SAMPLES = 50_000
"""Pods and models that one reply has samples of."""
MOST_TEXT = 1_000
"""Characters of a namespace's, pod's or model's name."""
MOST_BUCKETS = 200
"""Upper bounds of a histogram in a namespace: those of most pods are kept. vLLM has 22."""
NAMES_OF_NAMESPACES = 400
"""Characters of namespaces' names that one query picks its series by, in the mean: each of its selectors has them, and
VictoriaMetrics takes 16 KiB."""


class Room:
    """Bytes that several threads share."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._lock = threading.Lock()

    def take(self, size: int) -> bool:
        """Whether there is room for so many more; then they are taken."""
        with self._lock:
            fits = size <= self._left
            self._left -= size if fits else 0
        return fits

    def give(self, size: int) -> None:
        """Give the taken bytes back."""
        with self._lock:
            self._left += size


REPLIES = Room(REPLIES_AT_ONCE)
"""Bytes of replies that all backends share."""

ROW_ERRORS = (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError)
"""Errors that reading a row of another shape raises."""
NUMBER = "[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?|[+-]?[Ii]nf"
"""How the upper bound of a bucket may be written, as a regular expression of both Python and Prometheus."""
MOST_NAMED = 1_000
"""Pods with unreadable series that are named; further ones are counted."""
MOST_NAMED_OF_ONE = 10
"""Pods of one namespace that are named: a namespace with many must not leave those of others unnamed."""
_NUMBER = re.compile(NUMBER, re.ASCII)
_LONGEST_NUMBER = 64


def bound_of(text: object) -> float:
    """The upper bound of a bucket, in the histogram's unit. ValueError where it is no number."""
    if not isinstance(text, str) or len(text) > _LONGEST_NUMBER or _NUMBER.fullmatch(text) is None:
        raise ValueError("no number")
    return float(text)


@dataclass(slots=True)
class Unread:
    """Rows of an answer that were left out."""

    labels: tuple[tuple[str, str], ...] = (("namespace", ""), ("pod", ""))
    """Names of the labels with namespace and pod; to each the one that wins over it, or nothing."""
    count: int = 0
    pods: dict[tuple[str, str], str] = field(default_factory=dict)
    """Faults of the first rows, by namespace and pod."""
    _named: Counter[str] = field(default_factory=Counter, repr=False, compare=False)
    """How many of each namespace."""

    def add(self, row: object) -> None:
        """Leave a row out."""
        self.count += 1
        key = self._pod(row)
        if self._room(key):
            self.pods[key] = self._why(row)

    def include(self, other: Unread) -> None:
        """Add the rows that were left out of another answer."""
        self.count += other.count
        for key, why in other.pods.items():
            if self._room(key):
                self.pods[key] = why

    def _room(self, key: tuple[str, str]) -> bool:
        """Whether this pod is to be named too; then it counts for its namespace."""
        named = self._named[key[0]]
        if key in self.pods or len(self.pods) >= MOST_NAMED or named >= MOST_NAMED_OF_ONE:
            return False
        self._named[key[0]] = named + 1
        return True

    def readable(self, rows: Iterable[Mapping[str, Any]], parse: Callable[[Mapping[str, Any]], T]) -> Iterator[T]:
        """Result of `parse` on each row, without rows at which it raises one of `ROW_ERRORS`."""
        for row in rows:
            try:
                found = parse(row)
            except ROW_ERRORS:
                self.add(row)
                continue
            yield found

    def _pod(self, row: object) -> tuple[str, str]:
        """Pod of the row, as far as it tells."""
        labels = row.get("metric") if isinstance(row, dict) else None
        found = labels if isinstance(labels, dict) else {}
        (namespace, own_namespace), (pod, own_pod) = self.labels
        values = found.get(own_namespace) or found.get(namespace), found.get(own_pod) or found.get(pod)
        told = [value if isinstance(value, str) else "" for value in values]
        return told[0], told[1]

    def _why(self, row: object) -> str:
        labels = row.get("metric") if isinstance(row, dict) else None
        if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
            return "Prometheus answered with a row that is no series"
        name = shown(labels.get("__name__", "a series"))
        for (label, own), value in zip(self.labels, self._pod(row), strict=True):
            if not value:
                return f"{name} has no label {own or label}"
        if "le" in labels or name.endswith("_bucket"):
            text = labels.get("le")
            return f"{name} has no label le" if text is None else f"{name} has a bucket le={shown(text)!r}"
        return f"{name} has a value that is no number"


def shown(text: str, longest: int = 40) -> str:
    """A text from outside in a sentence: short, on one line, without controls."""
    plain = "".join(letter if letter.isprintable() else "?" for letter in text[: longest + 1])
    return plain if len(plain) <= longest else f"{plain[:longest]}..."
