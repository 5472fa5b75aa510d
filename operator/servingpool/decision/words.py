"""Times, replicas and names as sentences have them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def span(seconds: float) -> str:
    """Seconds as a short text."""
    if seconds < 120.0:
        return f"{seconds:.0f} s"
    return f"{seconds / 60.0:.0f} min" if seconds < 7200.0 else f"{seconds / 3600.0:.1f} h"


def clock(at: float) -> str:
    """A Unix time as a person reads it, in UTC."""
    return f"{np.datetime64(int(at // 60), 'm')}".replace("T", " ") + " UTC"


def shown(replicas: float) -> str:
    """Replicas as text, with a fraction where the pool has several targets."""
    return f"{replicas:.3g}" if replicas % 1.0 else f"{replicas:.0f}"


MOST_NAMED = 4
"""Names in a sentence, of pools or replicas."""


def listed(pools: Sequence[str]) -> str:
    """The first names, as a sentence has them, and the number of the others."""
    rest = len(pools) - MOST_NAMED
    return ", ".join(pools[:MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")
