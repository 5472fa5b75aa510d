"""Shared by the commands that read engines' series."""

from __future__ import annotations

from dataclasses import dataclass

from servingpool.adapters.prometheus.engines import EngineMetrics
from servingpool.adapters.prometheus.page import Found

ANY_ENGINE = "vllm"
"""Profile used until the engine is known: the answer names the series of every engine."""


@dataclass(frozen=True, slots=True)
class Target:
    """A workload whose engines' series are read, with engine and model."""

    namespace: str
    kind: str
    """Kind as kubectl takes it."""
    name: str
    engine: str | None = None
    """Name of the engine; None: as the pods' series tell."""
    model: str | None = None
    """Name of the model; None: as the pods' series tell."""


def where(found: Found, profile: EngineMetrics) -> str:
    """The series that hold a figure, with their labels; or the series that were looked for."""
    if found.series is not None:
        late = ", counted at finish" if found.series.counted == "atFinish" else ""
        text = f"{found.series.name or found.series.text}{{{', '.join(found.labels)}}}"
        return f"{text}{late}" if found.samples else f"{found.series.text}: no request that counts yet"
    tried = profile.figures.get(found.figure, ())
    if not tried:
        return "the profile names no series for it"
    return "none of " + ", ".join(f"{one.text} ({one.versions})" if one.versions else one.text for one in tried)
