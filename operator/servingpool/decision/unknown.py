"""What we do not know, as a type of its own: a missing metric is never zero."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unknown:
    """A figure that could not be read.

    `reason` says why in words a person can act on, for example "no sample since 14:03".
    It is falsy on purpose in no way at all: `if figure:` must not confuse it with zero,
    so truth-testing raises.
    """

    reason: str

    def __bool__(self) -> bool:
        raise TypeError(f"an unknown figure has no truth value ({self.reason}); use isinstance")


Reading = float | Unknown
"""A figure, or the reason why there is none."""
