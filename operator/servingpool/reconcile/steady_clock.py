"""The loop's clock: the system's time, which does not go back when somebody sets it back."""

from __future__ import annotations

from collections.abc import Callable

BORNE = 3600.0
"""Seconds after which a system clock that was set back is followed: it was wrong before, and schedules need it."""


class SteadyClock:
    """Unix time in seconds, that passes as the monotonic clock does and follows the system's clock forward.

    If that is set back, everything that is told by differences of it would be wrong: how long pods are Ready, how long
    ago an order was sent. So time passes on as before, for `BORNE` seconds at most.
    """

    def __init__(self, system: Callable[[], float], monotonic: Callable[[], float]) -> None:
        """`system`: Unix time in seconds, which may be set; `monotonic`: seconds from any beginning."""
        self._system, self._monotonic = system, monotonic
        self._ahead = system() - monotonic()
        """Of Unix time over the monotonic clock."""
        self._behind_since: float | None = None
        """Since when the system's clock is behind, by the monotonic one."""

    def __call__(self) -> float:
        """Now."""
        monotonic = self._monotonic()
        ahead = self._system() - monotonic
        if ahead >= self._ahead:
            self._ahead, self._behind_since = ahead, None
        elif self._behind_since is None:
            self._behind_since = monotonic
        elif monotonic - self._behind_since >= BORNE:
            self._ahead, self._behind_since = ahead, None  # the core empties its windows, and removes nothing meanwhile
        return monotonic + self._ahead
