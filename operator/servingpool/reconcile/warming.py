"""Teaches pools what Prometheus remembers of them, before their first decision."""

from __future__ import annotations

import asyncio
import logging
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from servingpool.adapters.prometheus import PodPages, ReadRequest
from servingpool.api.serving_pool import ServingPool
from servingpool.decision.learn import SHAPE_WINDOW, observe
from servingpool.decision.unknown import Unknown
from servingpool.reconcile.observing import apart, core_pool, past, requests_for, share_of
from servingpool.reconcile.reading import Backend, pools_on, share, sound
from servingpool.reconcile.state import PoolState

log = logging.getLogger(__name__)

STEP = 15.0
"""Seconds between two looks at the past, as live. At 60 s a burst of half a minute is blurred into a light load that
misses: simulated, an hour of code traffic taught so cost 28% more GPUs than the best static fleet, taught so 13%."""
ENDS = 15.0
"""Seconds ago: the live look that follows is then one of many, an interval after the last."""
LOOKS_AT_ONCE = 3_000
"""Looks of one pool each that are asked for at once: of 4 pods each, they have 12,000 pages (about 30 MB)."""
LOOKS_A_TICK = 12_000
"""Looks that are learned from in one tick, about 8 s; the pools that are left hold until it is their turn."""

Fresh = tuple[ServingPool, PoolState]


class Warming:
    """Asks the backends about the past."""

    def __init__(self, backends: Mapping[str, Backend], *, history: float) -> None:
        self._backends = backends
        self._whole = history // STEP * STEP

    async def warm(self, fresh: Sequence[Fresh], every: Sequence[ServingPool], now: float) -> None:
        """Teach as many as a tick bears; those with a profile first, for they were in the operator's hands."""
        due = _within(LOOKS_A_TICK, sorted(fresh, key=lambda one: self._reach(one[1], now)), self._looks(now))
        twins: Counter[tuple[Any, ...]] = Counter(map(_past_of, every))
        for name in self._backends:
            for kind, request in requests_for(pools_on([pool for pool, _ in due], name)).items():
                members = [(p, s) for p, s in due if p.spec.metrics.backend == name and share_of(p) == kind]
                while members:
                    chunk = _within(LOOKS_AT_ONCE, members, self._looks(now))
                    members = members[len(chunk) :]
                    # By model too: one namespace may hold all pools, and each chunk would read the past of them all.
                    models = frozenset(pool.spec.model for pool, _ in chunk)
                    if not await self._warm_chunk(name, replace(request, models=models), chunk, twins, now):
                        break  # each further one would take the backend's whole timeout
        for _, state in due:
            state.warm = True

    def _reach(self, state: PoolState, now: float) -> float:
        """Seconds to look back: all of the history, or what a kept profile has not seen and what fills its windows."""
        kept = state.memory.profile.at
        missed = math.ceil((max(0.0, now - kept) + SHAPE_WINDOW) / STEP) * STEP
        return min(self._whole, missed)

    def _looks(self, now: float) -> Callable[[Fresh], float]:
        return lambda one: self._reach(one[1], now) / STEP

    async def _warm_chunk(
        self,
        name: str,
        request: ReadRequest,
        members: Sequence[Fresh],
        twins: Mapping[tuple[Any, ...], int],
        now: float,
    ) -> bool:
        """Whether the backend answered."""
        reach = max(self._reach(state, now) for _, state in members)
        if reach < STEP:
            return True
        asked = self._backends[name].history(
            request,
            start=now - ENDS - reach,
            end=now - ENDS,
            step=STEP,
            namespaces=sorted({pool.metadata.namespace for pool, _ in members}),
        )
        history = await sound(name, asked)
        if isinstance(history, Unknown):
            log.warning("no history for %d pools from backend %s: %s", len(members), name, history.reason)
            return False
        looked_at = apart(history)
        for pool, state in members:
            own = looked_at.get((pool.metadata.namespace, pool.spec.model), ())
            try:
                looks = _teach(pool, state, own, shared=twins[_past_of(pool)] > 1)
            except Exception:
                # A page that breaks us would end every tick for all pools, for it stays in the past for an hour.
                log.exception("the past of a pool could not be learned", extra={"pool": "/".join(pool.key)})
            else:
                log.info("warmed up from %d looks at the past", looks, extra={"pool": "/".join(pool.key)})
            await asyncio.sleep(0)
        return True


def _within(budget: float, fresh: Sequence[Fresh], looks: Callable[[Fresh], float]) -> list[Fresh]:
    """As many as the budget bears, and one at least."""
    spent = list(accumulate(map(looks, fresh)))
    return list(fresh[: max(1, bisect_right(spent, budget))])


def _past_of(pool: ServingPool) -> tuple[Any, ...]:
    """What tells its past from that of others."""
    return (*share(pool), pool.metadata.namespace, pool.spec.model)


def _teach(pool: ServingPool, state: PoolState, history: Sequence[tuple[float, PodPages]], *, shared: bool) -> int:
    """Learn from the past, oldest first; how many looks there were."""
    core, memory, looks = core_pool(pool, in_charge=False), state.memory, 0
    kept = memory.profile
    for at, observation in past(pool, history, shared=shared):
        memory = observe(observation, core, memory, at)
        # What a kept profile has seen already fills the windows, and must not be learned twice.
        if at <= kept.at:
            memory = replace(memory, profile=kept)
        looks += 1
    # Needs of the last minutes are not in the history: nothing is removed before a window has filled anew.
    state.memory = replace(memory, since=None)
    return looks
