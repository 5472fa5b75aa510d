"""Why a history is too little for a verdict, and when to ask again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from servingpool.api.duration import brief

LEAST = 7200.0
"""Seconds of history from which on figures are a verdict."""
MOST_GAPS = 0.1
"""Share of a history without data, at most."""
MOST_LEARNING = 0.1
"""Share of a history in which the operator was still calibrating, at most."""
MOST_OVERLOADED = 0.1
"""Share of a history in which requests queued at a fleet that was too small, at most."""
MOST_APART = 0.03
"""Share of requests by which a model's attainment may differ from the observed one."""


@dataclass(frozen=True, slots=True)
class History:
    """What counts of a history; None where it does not apply."""

    seconds: float
    missing: float
    """Seconds of it without data."""
    learning: float = 0.0
    """Seconds of it in which the operator was still calibrating."""
    modelled: float | None = None
    """Attainment of the fleet that stood, by the model."""
    observed: float | None = None
    """And as it was observed."""

    @property
    def apart(self) -> float | None:
        """Share of requests by which the model's attainment is off the observed one; None where either is unknown."""
        return None if self.modelled is None or self.observed is None else abs(self.modelled - self.observed)

    def doubts(self) -> Iterator[str]:
        """Why there is no verdict, each a sentence that says when to ask again; none where there is one."""
        if self.seconds < LEAST:
            left = brief(LEAST - self.seconds)
            yield f"The history is {brief(self.seconds)} long, and a verdict needs {brief(LEAST)}: ask again in {left}."
        if self.missing > MOST_GAPS * self.seconds:
            yield (
                f"Data are missing for {brief(self.missing)} of {brief(self.seconds)}, more than {MOST_GAPS:.0%}: "
                "mend the scraping, and ask again with a history from after the gap on."
            )
        if self.learning > MOST_LEARNING * self.seconds:
            left = brief(max(0.0, self.learning / MOST_LEARNING - self.seconds))
            yield (
                f"The operator was calibrating for {brief(self.learning)} of {brief(self.seconds)}: "
                f"ask again in {left} or from after it on."
            )
        if self.apart is not None and self.apart > MOST_APART:
            yield (
                f"The model has {self.modelled:.1%} of requests within the SLO, and {self.observed:.1%} were "
                f"observed of the same fleet: {100 * self.apart:.1f} points apart, over {100 * MOST_APART:.0f}. "
                "Ask again with a history in which hardly a request queued."
            )


def band(share: float, apart: float | None) -> str:
    """A share of requests as the band in which it may lie. `apart`: as `History.apart`."""
    within = max(MOST_APART, apart or 0.0)
    return f"{max(0.0, share - within):.0%} to {min(1.0, share + within):.0%}"
