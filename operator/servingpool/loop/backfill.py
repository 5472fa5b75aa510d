"""Learns the history of each pool of one target from Prometheus, before its first decision.

The pools of a backend wait for it, so it is limited: samples per query, seconds per tick, and failures after which
pools start without history. The backend's deadline limits each query.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from servingpool.adapters.cluster.names import pods_of, pods_of_any
from servingpool.adapters.cluster.objects import Key
from servingpool.adapters.prometheus.diagnosis import PodKey
from servingpool.adapters.prometheus.samples import ANY_MODEL, PodSamples, TooLarge, sample_of
from servingpool.api.serving_pool import ServingPool
from servingpool.decision.decide import learn
from servingpool.decision.observation import Observation, Ordered, Replica, ReplicaMetrics, Unknown
from servingpool.decision.pool import Pool, Target
from servingpool.reconcile.collect.collected import own_samples
from servingpool.reconcile.collect.readings import Backend, requests_for, share_of, sound
from servingpool.reconcile.collect.targets import target_of
from servingpool.reconcile.keep.state import PoolState
from servingpool.reconcile.plan.pool_plan import core_pool

log = logging.getLogger(__name__)

STEP = 15.0
"""Seconds between two observations of history, as live. Longer steps blur bursts: docs/records/experiments.md."""
ENDS = 15.0
"""Seconds, at least, from history's last observation to the first live one: one step."""
SAMPLES_AT_ONCE = 24_000
"""An observation of a pod is a sample: about 1.5 KB, so 36 MB. A pool of 4 pods has 1,920 in two hours, one of 64 looks
back 94 minutes. Pods are counted now; where the past had many more, an answer of twice as many samples is refused."""
NAMES_AT_ONCE = 200
"""Characters of names that a query picks its series by, in each of its 21 selectors or fewer: 7.5 KB beside 8.5."""
OBSERVATIONS_AT_ONCE = 5_000
"""Observations of pools that are learned at once. Each takes 0.6 ms: 3 s of learning."""
BACKLOG = 64_000
"""Observations that the pools waiting share: a thousand new ones look back a quarter of an hour to two hours and have
all decided within 6 minutes."""
BACKENDS_AT_ONCE = 4
"""Backends whose history is read at once: each may hold `SAMPLES_AT_ONCE`, and all share one processor."""
LONGEST_TICK = 5.0
"""Seconds per tick after which no more pools of a backend are taught."""
PATIENCE = 3
"""Failures in a row of a backend, or of a pool, after which it starts without history."""
LONG_READY = 1e6
"""Seconds. History shows when a sample was there, not when its pod was made: far enough back that no cold start
and no fresh engine is read into it."""
YIELD_EVERY = 20
"""Observations between two turns of the event loop: the lease must be renewed beside a fleet of 1,000 (23 ms each)."""


class PendingPool(NamedTuple):
    """A pool whose history is to be learned."""

    pool: ServingPool
    state: PoolState
    pods: int


class Backfill:
    """Reads history from the backends."""

    def __init__(self, backends: Mapping[str, Backend], *, history: float) -> None:
        self._backends = backends
        self._most = history // STEP
        self._failed: Counter[str] = Counter()
        """Failures in a row, by backend."""
        self._gate = asyncio.Semaphore(BACKENDS_AT_ONCE)

    async def run(self, backend: str, fresh: Sequence[PendingPool], now: float) -> None:
        """Teach as many of a backend's pools as a tick bears; those with a profile first: the operator managed them."""
        if self._most < 1:
            for one in fresh:
                one.state.backfill_ended()
            return
        observations = {one.pool.key: self._observations(one, len(fresh), now) for one in fresh}
        fresh = _in_turn(sorted(fresh, key=lambda one: (one.state.failed_backfills, observations[one.pool.key])))
        async with self._gate:
            until = asyncio.get_running_loop().time() + LONGEST_TICK
            for chunk in _chunks(fresh, observations):
                heard = await self._run_chunk(backend, chunk, observations, now)
                if self._failed[backend] >= PATIENCE:
                    self._give_up(backend, fresh)
                # After a failure, each further chunk would wait as long.
                if not heard or asyncio.get_running_loop().time() > until:
                    return

    def _observations(self, one: PendingPool, waiting: int, now: float) -> int:
        """How many, back from now: all of the history, or what a kept profile has not seen and what fills its windows.

        Less of it where many wait, for a large fleet, and after a failure.
        """
        fills = core_pool(one.pool, in_charge=False).params.mean_window / STEP
        unseen = math.ceil(max(0.0, now - one.state.memory.profile.at) / STEP) + fills
        most = min(self._most, unseen, max(fills, BACKLOG / waiting), SAMPLES_AT_ONCE / max(1, one.pods))
        return max(1, int(most / 2**one.state.failed_backfills))

    async def _run_chunk(
        self, name: str, chunk: Sequence[PendingPool], observations: Mapping[Key, int], now: float
    ) -> bool:
        """Whether the backend answered."""
        (request,) = requests_for([one.pool for one in chunk]).values()
        # By model and name too: one namespace may hold all pools, and each chunk would read the past of them all.
        request = replace(
            request,
            models=frozenset(one.pool.spec.model for one in chunk),
            pods=pods_of_any((target.name, target.sort) for target in (target_of(one.pool) for one in chunk)),
        )
        # On the steps' own grid: VictoriaMetrics and Thanos move other times onto it.
        end = (now - ENDS) // STEP * STEP
        begin = {key: end - count * STEP for key, count in observations.items()}
        asked = self._backends[name].history(
            request,
            start=min(begin[one.pool.key] for one in chunk),
            end=end,
            step=STEP,
            most_samples=2 * SAMPLES_AT_ONCE,
            namespaces=sorted({one.pool.metadata.namespace for one in chunk}),
        )
        history = await sound(name, asked)
        if isinstance(history, Unknown):
            log.warning("No history for %d pools from backend %s: %s", len(chunk), name, history.reason)
            for one in chunk:
                one.state.history_failed()
                if one.state.failed_backfills >= PATIENCE:
                    one.state.backfill_ended()
            # Too much history is an answer, and does not concern other pools.
            answered = isinstance(history, TooLarge)
            self._failed[name] += not answered
            return answered
        self._failed[name] = 0
        looked_at = apart(history)
        for one in chunk:
            namespace, model = one.pool.metadata.namespace, one.pool.spec.model
            own = looked_at.get((namespace, model), looked_at.get((namespace, ANY_MODEL), ()))
            extra = {"pool": "/".join(one.pool.key)}
            try:
                taught = await _teach(one, [each for each in own if each[0] >= begin[one.pool.key]])
            except Exception:
                # A sample that raises stays in history for hours: unhandled, it would end every tick for all pools.
                log.exception("Learning from this pool's history failed; it starts without history.", extra=extra)
            else:
                log.info("Learned from %d samples of history.", taught, extra=extra)
            one.state.backfill_ended()
        return True

    def _give_up(self, name: str, fresh: Sequence[PendingPool]) -> None:
        left = [one.state for one in fresh if not one.state.backfilled]
        log.warning("Backend %s failed %d times; %d pools start without history.", name, self._failed[name], len(left))
        for state in left:
            state.backfill_ended()
        self._failed[name] = 0


def _in_turn(fresh: Sequence[PendingPool]) -> list[PendingPool]:
    """The pools, a pool of each namespace in turn, in the order given: a namespace of thousands delays itself."""
    turns: Counter[str] = Counter()
    ranked = []
    for one in fresh:
        namespace = one.pool.metadata.namespace
        ranked.append((turns[namespace], one))
        turns[namespace] += 1
    return [one for _, one in sorted(ranked, key=lambda each: (each[1].state.failed_backfills > 0, each[0]))]


def _chunks(fresh: Sequence[PendingPool], observations: Mapping[Key, int]) -> Iterator[list[PendingPool]]:
    """Groups of pools that are read at once, in order: read alike, and no more samples than fit, or one pool."""
    kinds: dict[object, list[PendingPool]] = {}
    for one in fresh:
        kinds.setdefault(share_of(one.pool), []).append(one)
    for alike in kinds.values():
        chunk: list[PendingPool] = []
        for one in alike:
            if chunk and not _fits([*chunk, one], observations):
                yield chunk
                chunk = []
            chunk.append(one)
        yield chunk


def _fits(chunk: Sequence[PendingPool], observations: Mapping[Key, int]) -> bool:
    """Whether these may be asked for at once. Who was asked for in vain is asked alone: the fault may be its own."""
    longest = max(observations[one.pool.key] for one in chunk)
    samples = longest * sum(max(1, one.pods) for one in chunk)
    learned = sum(observations[one.pool.key] for one in chunk)
    names = {name for one in chunk for name in (*target_of(one.pool)[:2], one.pool.spec.model)}
    fits = samples <= SAMPLES_AT_ONCE and learned <= OBSERVATIONS_AT_ONCE and sum(map(len, names)) <= NAMES_AT_ONCE
    return fits and not any(one.state.failed_backfills for one in chunk)


async def _teach(one: PendingPool, history: Sequence[tuple[float, PodSamples]]) -> int:
    """Learn from the past, oldest first; how many observations there were."""
    core, memory, observations = core_of(one.pool), one.state.memory, 0
    kept = memory.profile
    for at, observation in past(one.pool, history):
        memory = learn(observation, core, memory, at)
        # What a kept profile has seen already fills the windows, and must not be learned twice.
        if at <= kept.at:
            memory = replace(memory, profile=kept)
        observations += 1
        if observations % YIELD_EVERY == 0:
            await asyncio.sleep(0)
    # Needs of the last minutes are not in the history: nothing is removed before a window has filled anew.
    one.state.taught(replace(memory, since=None))
    return observations


def apart(history: Sequence[tuple[float, PodSamples]]) -> dict[tuple[str, str], list[tuple[float, PodSamples]]]:
    """The history of each namespace and model by itself: else every pool reads through the samples of all."""
    found: defaultdict[tuple[str, str], list[tuple[float, PodSamples]]] = defaultdict(list)
    for at, samples in history:
        owners: defaultdict[tuple[str, str], dict[PodKey, Mapping[str, ReplicaMetrics]]] = defaultdict(dict)
        for pod, models in samples.items():
            for model in models:
                owners[pod[0], model][pod] = models
        for owner, own in owners.items():
            found[owner].append((at, own))
    return found


def core_of(pool: ServingPool) -> Pool:
    """The spec in the core's own units, nothing being known of its targets but their names."""
    return core_pool(pool, tuple(map(Target, pool.spec.target_names)), in_charge=False)


def past(pool: ServingPool, history: Sequence[tuple[float, PodSamples]]) -> Iterator[tuple[float, Observation]]:
    """The pool as Prometheus remembers it, oldest first.

    Pods of the past are no longer in the cluster, so they are told by namespace, model and name.
    """
    target, model, (name,) = target_of(pool), pool.spec.model, pool.spec.target_names
    own = re.compile(pods_of(target.name, target.sort)).fullmatch
    for at, samples in history:
        found = tuple(
            sample
            for (where, pod), models in samples.items()
            if where == target.namespace and (sample := sample_of(models, model)) is not None and own(pod)
        )
        if found:
            ready = tuple(Replica(sample.replica, LONG_READY, LONG_READY, target=name) for sample in found)
            targets, metrics = (Ordered(name, len(ready)),), own_samples(pool, found)
            yield at, Observation(len(ready), ready, metrics=metrics, targets=targets)
