"""Whether requests cost more right after each change of replicas, because the router forgets where prefixes are cached.

A router that picks a session's replica by the number of replicas sends nearly all sessions elsewhere whenever that
number changes. Work per request then rises at once, which looks like demand; the change is undone, and it rises again.
A change is compared with the two minutes before it, and one change proves nothing: traffic that grows is followed by
more replicas, and a new replica's cache is empty under any routing. So the rise must follow changes in both directions,
exceed what a router with consistent hashing would lose, and be unusual while replicas do not change.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from servingpool.decision.engine import StepTime
from servingpool.decision.observation import Observation
from servingpool.decision.observe.samples import CACHED, PROMPTS, Sample
from servingpool.decision.observe.window import AT, COVERED, SPAN, Demand, SampleWindow, Slice
from servingpool.decision.params import DAY

BEFORE, AFTER = 120.0, 90.0
"""Seconds before and after a change that are compared. Sessions of the plant come back after 73 s on average."""
QUIET = 150.0
"""Seconds without a change, after which the next change is compared: caches were filled again, at least in part."""
LEAST = math.log(1.3)
"""Logarithm of the least rise of work per request that counts."""
UNKNOWN_HITS = 9.0
"""Prompt tokens from the cache over computed ones, assumed where the engine does not tell."""
CHANGES_KEPT = 3
"""Changes that are kept of each direction, and how many of both after which work must have risen."""
LEAST_REQUESTS, COMPARED = 30.0, 0.8
"""Requests on each side of a change, and share of the side that must have been observed."""
USUAL, FORGET = 0.05, 0.98
"""Share of comparisons without a change in which work may rise; and weight of the past after a comparison."""


class Change(NamedTuple):
    """A change of replicas that is being compared. Changes soon after it are part of it."""

    at: float
    """Unix time in seconds of the last observation before the change."""
    before: int
    """Ready replicas before the change."""
    least: int
    most: int
    """Ready replicas since then, the replicas before the change included."""


@dataclass(frozen=True, slots=True)
class LostCaches:
    """Rises of work per request after the last changes of the number of Ready replicas."""

    after_more: tuple[float, ...] = ()
    """Logarithm of how much work per request rose after each of the last increases; 0 where it did not."""
    after_fewer: tuple[float, ...] = ()
    """Logarithm of how much work per request rose after each of the last decreases; 0 where it did not."""
    compared: float = 0.0
    """Comparisons of minutes without a change, fading."""
    rose: float = 0.0
    """Comparisons without a change in which work per request rose, fading."""
    ready: int | None = None
    """Ready replicas at the last observation; None before the first, and after a hole."""
    at: float = 0.0
    """Unix time in seconds of the last observation."""
    changed_at: float = 0.0
    """Unix time in seconds of the last change, or since when nothing else is known."""
    compared_at: float = 0.0
    """Unix time in seconds up to which minutes without a change were compared."""
    change: Change | None = None

    @property
    def rise(self) -> float | None:
        """Share by which work per request rises after a change; None where no rise is proven."""
        if not (any(self.after_more) and any(self.after_fewer)):
            return None
        found = (*self.after_more, *self.after_fewer)
        rises = [one for one in found if one > 0.0]
        if len(rises) < max(CHANGES_KEPT, len(found) - 1) or self.rose > USUAL * self.compared:
            return None
        if self.at - self.changed_at > DAY:
            return None
        return math.expm1(math.fsum(rises) / len(rises))

    def update(
        self,
        observation: Observation,
        now: float,
        window: SampleWindow,
        samples: Mapping[str, Sample],
        step: StepTime,
        demand: Demand,
    ) -> LostCaches:
        """Add an observation. During a rollout caches are lost whatever the router does."""
        ready = len(observation.ready)
        known = replace(self, ready=ready, at=now)
        if observation.rollout or self.ready is None or not 0.0 < now - self.at <= BEFORE:
            return replace(known, changed_at=now, compared_at=now, change=None)
        if ready != self.ready:
            change = self.change
            if change is None and self.at - self.changed_at >= QUIET:
                change = Change(self.at, self.ready, self.ready, self.ready)
            if change is not None:
                change = change._replace(least=min(change.least, ready), most=max(change.most, ready))
            known = replace(known, changed_at=now, change=change)
        change, begin = known.change, max(known.changed_at + QUIET, known.compared_at)
        if now < (begin + BEFORE + AFTER if change is None else change.at + AFTER):
            return known
        measure = _Measure(window, samples, step, demand)
        if change is not None:
            return known.judged(change, measure, now)
        rise = measure.rise(now - AFTER, now, 0.0)
        if rise is None:
            return replace(known, compared_at=now - BEFORE)
        compared, rose = FORGET * self.compared + 1.0, FORGET * self.rose + (rise > 0.0)
        return replace(known, compared=compared, rose=rose, compared_at=now - BEFORE)

    def judged(self, change: Change, measure: _Measure, now: float) -> LostCaches:
        """The evidence with this change added, if both sides of it can be compared."""
        known, ready = replace(self, change=None, compared_at=now), self.ready
        rise = measure.rise(change.at, now, (change.most - change.least) / change.most)
        if ready is None or rise is None or ready == change.before:
            return known
        if ready > change.before:
            return replace(known, after_more=(*self.after_more, rise)[-CHANGES_KEPT:])
        return replace(known, after_fewer=(*self.after_fewer, rise)[-CHANGES_KEPT:])


@dataclass(frozen=True, slots=True)
class _Measure:
    """How much more a request costs after some moment than before it."""

    window: SampleWindow
    samples: Mapping[str, Sample]
    step: StepTime
    demand: Demand

    def rise(self, at: float, now: float, replaced: float) -> float | None:
        """Logarithm of the rise of work per request after `at`, in Unix seconds; None where the rise is not known.

        0 where the rise is noise, or no more than consistent hashing costs. `replaced`: share of the replicas that came
        or went; that share of the prefixes loses its cache under any routing.
        """
        times = self.window.rows[:, AT]
        before = Slice(self.window.rows[(times > at - BEFORE + 1e-6) & (times <= at + 1e-6)])
        after = Slice(self.window.rows[(times > at + 1e-6) & (times <= now + 1e-6)])
        if not (_seen(before, BEFORE) and _seen(after, now - at)):
            return None
        computed = before.computed_prompts / before.first_tokens.total
        prompt, uncached = after.computed_prompts / after.first_tokens.total, (1.0 + UNKNOWN_HITS) * computed
        if any(not math.isnan(one.figures[CACHED]) for one in self.samples.values()):
            # Longer prompts are none of the cache's doing: as many tokens as before, with the hits of after.
            uncached = before.total(PROMPTS) / before.first_tokens.total
            prompt = uncached * after.computed_prompts / max(after.total(PROMPTS), 1.0)
        was, costs, most = (self.step.work(each, self.demand.steps) for each in (computed, prompt, uncached))
        if was <= 0.0 or costs <= 0.0:
            return None
        rise = math.log(costs / was)
        return rise if rise >= LEAST + math.log1p(replaced * max(0.0, most / was - 1.0)) else 0.0


def _seen(side: Slice, seconds: float) -> bool:
    """Whether a side of a comparison is known well enough."""
    seen = float(side.rows[side.rows[:, COVERED] > 0.0, SPAN].sum())
    return side.first_tokens.total >= LEAST_REQUESTS and seen >= COMPARED * seconds
