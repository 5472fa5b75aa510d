"""Limits on the size of replies from Prometheus. Anybody's page may be scraped, so each size has a bound.

What is over one is left out, or makes that one query Unknown; it costs no other.
"""

from __future__ import annotations

import threading

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
