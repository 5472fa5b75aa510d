"""Answers of each Prometheus on its pools.

Prometheus is read once per backend and kind of pool, however many pools there are. Each backend is read by itself,
within its own deadline: one that is slow delays its own pools only.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import defaultdict
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Protocol, TypeVar

from servingpool.adapters.gateways.own_gateway import OwnGateway, gateway_of
from servingpool.adapters.gateways.totals import GatewayReader
from servingpool.adapters.prometheus.asked import Asked, Share
from servingpool.adapters.prometheus.backend_config import BackendConfig
from servingpool.adapters.prometheus.diagnosis import Cause, PodKey
from servingpool.adapters.prometheus.engines import EngineMetrics, shipped, usable
from servingpool.adapters.prometheus.gateways import GatewayProfile, shipped_gateways
from servingpool.adapters.prometheus.samples import FleetReading, NotAsked, PodSamples, ReadRequest, Selection
from servingpool.api.batch import Batch
from servingpool.api.conditions import Reason
from servingpool.api.serving_pool import ServingPool
from servingpool.decision.observation import NOT_EXPOSED, GatewayMetrics, Observation, Reading, TimeLeft, Unknown
from servingpool.reconcile.collect.targets import stages_of
from servingpool.reconcile.collect.turns import Part, Turns

log = logging.getLogger(__name__)

EXPLAINED_OF_A_POOL = 5
"""Pods that Prometheus is asked about when they have no sample: most pods of a pool fail alike."""

T = TypeVar("T")
Answer = FleetReading | Unknown
NOT_READ = Unknown("Prometheus was not asked for its pods yet")


class Backend(Protocol):
    """Part of a Prometheus client that the loop needs."""

    config: BackendConfig

    async def read(self, request: ReadRequest, now: float) -> FleetReading | Unknown:
        """Every pod's sample as last scraped; NotAsked where it had no time for this request."""

    async def number(self, query: str) -> Reading:
        """The number that a query returns; Unknown where it returns none."""

    async def time_left(self, query: str, scale: float) -> TimeLeft:
        """When requests are due, by a query for buckets, so many of whose unit are in a second; Unknown without any."""

    async def history(
        self,
        request: ReadRequest,
        *,
        start: float,
        end: float,
        step: float,
        most_samples: int,
        namespaces: Sequence[str],
    ) -> Sequence[tuple[float, PodSamples]] | Unknown:
        """The samples of these namespaces as they were; Unknown where there are more than so many."""


class Readings:
    """Backends by name, with their last answers."""

    def __init__(
        self,
        backends: Mapping[str, Backend],
        engines: Mapping[str, EngineMetrics] | None = None,
        gateways: Mapping[str, GatewayProfile] | None = None,
    ) -> None:
        """Readings with the profiles of `engines` and `gateways` by name; those of this release by default."""
        self._engines = shipped() if engines is None else engines
        self._gateways = shipped_gateways() if gateways is None else gateways
        self._metered = frozenset(name for name, profile in self._engines.items() if profile.metered)
        self._readers = {
            name: _Reader(name, backend, GatewayReader(backend.config, self._gateways, self._metered))
            for name, backend in backends.items()
        }

    @property
    def backends(self) -> Collection[str]:
        """Names of the backends."""
        return self._readers.keys()

    def problem(self, pool: ServingPool) -> tuple[Reason, str] | None:
        """Why this pool cannot be read at all; None where it can."""
        name, namespace = pool.spec.metrics.backend, pool.metadata.namespace
        reader = self._readers.get(name)
        if reader is None:
            known = f"known backends are {', '.join(sorted(self._readers))}"
            return Reason.UNKNOWN_BACKEND.said(backend=name, detail=known)
        if not reader.backend.config.serves(namespace):
            return Reason.UNKNOWN_BACKEND.said(backend=name, detail=f"it does not allow namespace {namespace}")
        own, gateway = pool.spec.metrics.gateway, gateway_of(pool, reader.backend.config)
        if own is not None and own.name not in self._gateways:
            return Reason.UNKNOWN_GATEWAY.said(gateway=own.name, known=", ".join(self._gateways))
        return self._unknown_engine(pool, None if gateway is None else gateway.name)

    def _unknown_engine(self, pool: ServingPool, gateway: str | None) -> tuple[Reason, str] | None:
        engine = pool.spec.engine
        profile, known = self._engines.get(engine), ", ".join(usable(self._engines))
        if profile is None:
            detail = f"known engines are {known}"
        elif profile.lacks:
            detail = (
                f"it exports no {', '.join(profile.lacks)}, which decisions need; engines that can be used are {known}"
            )
        elif profile.metered and (gateway is None or not self._gateways[gateway].meters):
            meters = ", ".join(name for name, one in self._gateways.items() if one.meters)
            detail = f"it exports no metrics; set spec.metrics.gateway to a gateway that meters its requests ({meters})"
        elif profile.metered and pool.spec.several:
            detail = "it exports no metrics, so the targets cannot be told apart; use a pool for each target"
        elif profile.needs_gateway and gateway is None:
            detail = "it exports no count of requests; set spec.metrics.gateway to the gateway that counts them"
        else:
            return None
        return Reason.UNKNOWN_ENGINE.said(engine=engine, detail=detail)

    def of(self, pool: ServingPool) -> FleetReading | Unknown:
        """The last reading of this pool."""
        return self._reader(pool).of(pool)

    def ask_why(self, pool: ServingPool, selection: Selection) -> None:
        """Have the next reading tell why pods have no sample, where this reading does not tell for sure."""
        clear = {Cause.STALE, Cause.OTHER_MODEL, Cause.AMBIGUOUS}
        pods = sorted(pod for pod, missing in selection.missing.items() if missing.cause not in clear)
        keys = {(pool.metadata.namespace, pod) for pod in pods[:EXPLAINED_OF_A_POOL]}
        self._reader(pool).unexplained[share_of(pool)] |= keys

    def gateway(self, pool: ServingPool, replicas: Collection[PodKey] = ()) -> GatewayMetrics:
        """The last reading of the gateway in front of this pool."""
        return self._reader(pool).gateways.of(pool, replicas)

    def backlog(self, pool: ServingPool) -> tuple[Reading, TimeLeft]:
        """The work that waits for this pool in a broker, NOT_EXPOSED without one, and when it is due."""
        return self._reader(pool).backlogs.get(pool.key, (NOT_EXPOSED if pool.spec.batch is None else NOT_READ, ()))

    def completed(self, pool: ServingPool, observation: Observation, limit: float, now: float) -> Observation:
        """The observation of a pool, or of a stage, with its gateway's figures in place of its engines'.

        `limit`: requests that a replica runs at a time.
        """
        return self._reader(pool).gateways.completed(pool, observation, limit, now)

    def gateway_profile(self, pool: ServingPool) -> tuple[OwnGateway, GatewayProfile] | None:
        """The gateway in front of a pool, with its profile; None where there is none."""
        return self._reader(pool).gateways.profile(pool)

    def metered(self, pool: ServingPool) -> bool:
        """Whether its engines export nothing, so that its gateway's figures stand for theirs."""
        return pool.spec.engine in self._metered

    def rests(self, pool: ServingPool) -> bool:
        """Whether it was not read, and its last samples are still fresh.

        Nothing is decided then, as if its backend were read less often. A decision on the last samples could scale
        down on old metrics.
        """
        return self._reader(pool).rests(pool)

    def answered(self, pool: ServingPool) -> bool:
        """Whether its backend answered last time. Otherwise its history is read later."""
        return isinstance(self.of(pool), FleetReading)

    async def read(self, backend: str, pools: Sequence[ServingPool], now: float) -> tuple[int, int]:
        """Ask a backend for all its pools. Returns the number of queries, and of rows that were left out."""
        return await self._readers[backend].read(pools, now)

    def _reader(self, pool: ServingPool) -> _Reader:
        return self._readers[pool.spec.metrics.backend]


class _Reader:
    """A backend, with its last answers."""

    def __init__(self, name: str, backend: Backend, gateways: GatewayReader) -> None:
        self.backend = backend
        self.gateways = gateways
        self.backlogs: dict[tuple[str, str], tuple[Reading, TimeLeft]] = {}
        """Work that waits in brokers, and when it is due, by pool."""
        self.unexplained: defaultdict[Share, set[PodKey]] = defaultdict(set)
        """Pods without a sample, since the last reading."""
        self._name = name
        self._turns = Turns()
        self._latest: dict[Part, FleetReading | Unknown] = {}
        self._resting: set[Part] = set()
        self._answered: dict[Part, float] = {}
        """Unix time in seconds of each part's last answer."""

    async def read(self, pools: Sequence[ServingPool], now: float) -> tuple[int, int]:
        """Read all pools; pools that have waited longest come first.

        All queries share one deadline. Otherwise a backend that is too slow for all label sets of its pools would
        answer the same few for ever.
        """
        wanted = {
            share: replace(request, explain=frozenset(self.unexplained[share]))
            for share, request in requests_for(pools).items()
        }
        self.unexplained.clear()
        self._turns.begin(wanted, self.gateways.requests(pools), now)
        asked = self._turns.asked
        works = {pool.key: pool.spec.batch for pool in pools if pool.spec.batch is not None}
        backlogs = asyncio.gather(*map(self._backlog, works.values()))
        heard = await asyncio.gather(*(sound(self._name, self.backend.read(one, now)) for one in asked.values()))
        self.backlogs = dict(zip(works, await backlogs, strict=True))
        answers = dict(zip(asked, heard, strict=True))
        self._turns.end(answers, now)
        self.gateways.hear(pools, lambda share, namespace: self._heard(answers, share, namespace))
        self._latest = {part: answer for part, answer in answers.items() if not part.gateway}
        answered = {part: now for part, answer in self._latest.items() if isinstance(answer, FleetReading)}
        self._answered = {part: at for part, at in self._answered.items() if part in self._latest} | answered
        unasked = (part for part, answer in self._latest.items() if isinstance(answer, NotAsked))
        ages = {part: now - self._answered.get(part, -math.inf) for part in unasked}
        self._resting = {part for part, age in ages.items() if 0.0 <= age < self.backend.config.staleness}
        read = [answer for answer in heard if isinstance(answer, FleetReading)]
        asked_of_brokers = len(works) + sum(left != () for _, left in self.backlogs.values())
        return asked_of_brokers + sum(answer.queries for answer in read), sum(answer.unread.count for answer in read)

    async def _backlog(self, batch: Batch) -> tuple[Reading, TimeLeft]:
        """What waits in a broker, and when it is due: asked while something waits."""
        waiting, asked = await sound(self._name, self.backend.number(batch.backlog.query)), batch.remaining_time
        if asked is None or isinstance(waiting, Unknown) or not waiting:
            return waiting, ()
        scale = 1000.0 if asked.unit == "milliseconds" else 1.0
        return waiting, await sound(self._name, self.backend.time_left(asked.query, scale))

    def of(self, pool: ServingPool) -> FleetReading | Unknown:
        """The last reading of this pool."""
        part = self._turns.part(share_of(pool), pool.metadata.namespace)
        return NOT_READ if part is None else self._latest.get(part, NOT_READ)

    def rests(self, pool: ServingPool) -> bool:
        """See `Readings.rests`."""
        return self._turns.part(share_of(pool), pool.metadata.namespace) in self._resting

    def _heard(self, answers: Mapping[Part, Answer], share: Share, namespace: str) -> Answer:
        part = self._turns.part(share, namespace, gateway=True)
        return NOT_READ if part is None else answers[part]


async def sound(backend: str, answer: Coroutine[Any, Any, T]) -> T | Unknown:
    """The answer. A defect in reading a backend makes its pools unknown, and does not affect others."""
    try:
        return await answer
    except Exception as defect:
        log.exception("Reading backend %s failed.", backend)
        return Unknown(f"Prometheus backend '{backend}' could not be read: internal error {type(defect).__name__}")


def requests_for(pools: Iterable[ServingPool]) -> dict[Share, ReadRequest]:
    """Requests by engine and labels, a request for all pools of a backend that share both."""
    merged: defaultdict[Share, Asked] = defaultdict(Asked)
    for pool in chain.from_iterable(map(stages_of, pools)):
        slo = pool.spec.slo
        merged[share_of(pool)].add(pool.metadata.namespace, slo.time_to_first_token, slo.time_per_output_token)
    return {share: asked.request(share) for share, asked in merged.items()}


def share_of(pool: ServingPool) -> Share:
    """Key of pools that are read together: engine and extra labels."""
    return pool.spec.engine, tuple(sorted(pool.spec.metrics.match_labels.items()))
