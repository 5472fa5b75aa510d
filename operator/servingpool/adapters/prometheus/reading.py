"""What is asked of a backend, and what comes back: the pages of all its pods at about one time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from servingpool.decision.observation import ReplicaMetrics, Unknown

PodKey = tuple[str, str]
"""Namespace and pod name."""
PodPages = Mapping[PodKey, Mapping[str, ReplicaMetrics]]
"""Each pod's pages by the model name they carry: one, unless a pod serves several."""

_LABEL_NAME = re.compile("[a-zA-Z_][a-zA-Z0-9_]*")
_NAMED = 3
"""Pods that a sentence names before it counts."""


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What all pools with the same engine and the same `matchLabels` have in common: one request serves them all."""

    engine: str = "vllm"
    ttft_bounds: frozenset[float] = frozenset()
    """Every TTFT bound, in seconds, of these pools' SLOs: the buckets around them are read."""
    tpot_bounds: frozenset[float] = frozenset()
    """Every TPOT bound, in seconds, likewise."""
    match_labels: tuple[tuple[str, str], ...] = ()
    """Label names and exact values that a series must carry, sorted by name."""
    models: frozenset[str] = frozenset()
    """Served models; all where empty."""
    pods: str = ""
    """A regular expression that a pod's whole name matches; anything where empty."""

    def __post_init__(self) -> None:
        for name, _ in self.match_labels:
            if not _LABEL_NAME.fullmatch(name):
                raise ValueError(f"'{name}' is no Prometheus label name: use letters, digits and _, no digit first")


class NotAsked(Unknown):
    """The backend had other queries to answer for as long as it has: the one for this was never sent."""

    __slots__ = ()


class TooLarge(Unknown):
    """The backend answered, with more than is taken."""

    __slots__ = ()


class Absence(StrEnum):
    """Why a pod's page is not among those read. The values serve as reasons of conditions."""

    NOT_SCRAPED = "NotScraped"
    STALE = "StaleMetrics"
    OTHER_MODEL = "ModelNameMismatch"


@dataclass(frozen=True, slots=True)
class Missing:
    """A pod without a usable page."""

    kind: Absence
    reason: str
    """Goes after the pod's name: "was last scraped 93 s ago"."""


@dataclass(frozen=True, slots=True)
class Selection:
    """One pool's part of a reading."""

    pages: tuple[ReplicaMetrics, ...]
    missing: Mapping[str, Missing]
    """By pod name."""

    def explain(self) -> str:
        """One sentence on the missing pods, those that fail alike together; empty where none is missing.

        By name, for what the watch shows first is no news.
        """
        alike: dict[str, list[str]] = {}
        for pod, missing in sorted(self.missing.items(), key=lambda one: one[0]):
            alike.setdefault(missing.reason, []).append(pod)
        return "; ".join(f"{_names(pods)}: {reason}" for reason, pods in alike.items())


@dataclass(frozen=True, slots=True)
class FleetReading:
    """Every fresh page that a backend holds for a request."""

    at: float
    """Unix time of the evaluation by Prometheus's clock, which `scraped_at` is by too."""
    pages: PodPages
    stale: Mapping[PodKey, float]
    """Seconds since the last scrape of pods whose pages were too old to use."""
    partial: Unknown | None = None
    """Set when Prometheus warned that the answer may lack series (Thanos with a store down): a pod that is
    not among `pages` may be scraped all the same."""
    queries: int = 0

    def select(self, namespace: str, pods: Iterable[str], model: str) -> Selection:
        """The pages of these pods for this model, and why the others have none."""
        found, missing = [], {}
        for pod in pods:
            models = self.pages.get((namespace, pod), {})
            page = models.get(model)
            if page is not None:
                found.append(page)
            else:
                missing[pod] = self._why(namespace, pod, model, models)
        return Selection(tuple(found), missing)

    def _why(self, namespace: str, pod: str, model: str, models: Mapping[str, ReplicaMetrics]) -> Missing:
        if models:
            others = ", ".join(f"'{name}'" for name in sorted(models)[:_NAMED])
            return Missing(Absence.OTHER_MODEL, f"scraped, but the page is of model {others}, not '{model}'")
        age = self.stale.get((namespace, pod))
        if age is not None:
            return Missing(Absence.STALE, f"last scraped {age:.0f} s ago")
        if self.partial is not None:
            return Missing(Absence.NOT_SCRAPED, f"no page, and {self.partial.reason}")
        return Missing(Absence.NOT_SCRAPED, "not scraped, or the engine publishes no metrics (--disable-log-stats)")


def _names(pods: list[str]) -> str:
    more = len(pods) - _NAMED
    if more > 0:
        return f"pods {', '.join(pods[:_NAMED])} and {more} more"
    return f"pod{'s' if len(pods) > 1 else ''} {', '.join(pods)}"
