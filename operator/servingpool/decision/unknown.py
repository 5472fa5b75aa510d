"""What we do not know, as a type of its own: a missing metric is never zero."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unknown:
    """A figure that could not be read.

    `reason` says why in words a person can act on, for example "no sample since 14:03".
    It has no truth value: `if figure:` raises, so that it cannot be mistaken for zero.
    """

    reason: str

    def __bool__(self) -> bool:
        raise TypeError(f"an unknown figure has no truth value ({self.reason}); use isinstance")


Reading = float | Unknown
"""A figure, or the reason why there is none."""
