"""From cumulative samples to the increases since the last observation.

Counters restart with the engine, replicas come and go, scrapes are lost or repeated. Only here is that turned into sums
over replicas for one interval, with the replica-seconds that they cover, so that everything after it divides one by the
other and stays unbiased when half the scrapes are lost.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from operator import add
from types import MappingProxyType
from typing import NamedTuple

from servingpool.decision.engine import (
    ANOTHER_BATCH,
    FASTEST_STEP,
    LONGEST_PROMPT,
    MOST_BATCH,
    SHORT_ANSWER,
    STILL_SHORT,
    Full,
    Steps,
    Wait,
)
from servingpool.decision.increase import Change, Counts, follow, rises
from servingpool.decision.observation import (
    NOT_EXPOSED,
    GatewayMetrics,
    Histogram,
    Observation,
    Reading,
    Replica,
    ReplicaMetrics,
    Unknown,
)
from servingpool.decision.observe.plausible import NOTHING_USUAL, Usual, compared_with, doubt_of, with_believed_gauges
from servingpool.decision.observe.queueing import Queue, queue
from servingpool.decision.observe.samples import (
    BEGUN,
    CACHED,
    FIGURES,
    GENERATED,
    ITL_COUNT,
    ITL_SUM,
    NO_BUCKETS,
    PROMPTS,
    TTFT_COUNT,
    TTFT_SUM,
    Buckets,
    Sample,
    Standing,
    bucket_changed,
    change_between,
    lost,
    missing_series,
    sample,
    standing_still,
    with_empty_series,
)
from servingpool.decision.pool import Pool, Slo

RATE_SCRAPES = 2.0
"""Scrape intervals of a rate window at least: a rate over one pair of scrapes swings with their phase."""
LEAST_TOKENS = 50.0
"""Decoded in an interval, below which their mean ITL is noise."""


class EngineDelta(NamedTuple):
    """The work of one target's engines in one interval: engines of different targets have different speeds."""

    steps: tuple[Steps, ...] = ()
    """Mean step of each replica that decoded enough; of all replicas as one where none decoded enough alone."""
    prefills: tuple[Steps, ...] = ()
    """Cost of a request on each replica that decoded hardly anything, where there are no steps. In a pool that
    prefills, these come first, and then there are no steps."""
    full: tuple[Full, ...] = ()
    """Work of each replica for which requests had waited too long at both ends of the interval."""
    most_running: float = 0.0
    """Requests in the largest running batch; 0 where none is known."""

    @property
    def busiest(self) -> float:
        """Requests that decoded in the fullest replica."""
        return max((one.decoding for one in self.steps), default=0.0)


class CounterDelta(NamedTuple):
    """Increases of one interval, over the replicas that could be read twice."""

    sums: tuple[float, ...]
    """Increase of each figure over the replicas, by the places of `samples`."""
    covered: float
    """Replica-seconds that `sums` cover, in replicas of the reference target."""
    engines: Mapping[str, EngineDelta]
    """Work of the engines, by target."""
    waits: tuple[Wait, ...]
    """Waits at each replica that began to serve requests, shows its queue, and counts TTFT at the first token."""
    queue_excluded: bool
    """Whether the TTFT histogram of some replica is known not to show the queue."""
    standing: tuple[Standing, ...]
    """Ready replicas that hang."""
    running: Reading
    """Requests in running batches, scaled to all ready replicas."""
    waiting: Reading
    """Requests queued in engines and at the gateway."""
    queues: tuple[float, ...]
    """Requests in each ready replica's queue; empty where they are not known."""
    gateway: Reading
    """Requests queued at the gateway."""
    gateway_queue: Queue | None
    """The gateway's queue; None where there is no gateway."""
    client: Counts | None
    """The client's TTFT as the gateway counted it; None where the SLO is not judged there or nothing was told yet."""
    client_unknown: str | None
    """Why the client's TTFT is not known, where the SLO is judged by it."""
    coverage: float
    """Share of the ready replicas whose sample was whole and was not left out, 0 to 1; 0 where none is ready."""
    samples: Mapping[str, Sample]
    """Samples by replica, to compare the next samples with."""
    buckets: Buckets
    interval: float | None
    """Seconds between two scrapes of a replica; None where no replica was scraped again."""
    missing: str | None
    """Name of a series that a sample lacks; None where no series is missing."""
    damaged: Mapping[str, str] = MappingProxyType({})
    """Why a sample, or a gauge of it, is left out, by replica."""


@dataclass(frozen=True, slots=True)
class _Served:
    """The interval of one replica."""

    target: str
    before: Queue | None
    now: Queue | None
    seconds: float
    increase: Sequence[float]
    """Increase of each figure."""
    step: Steps | None
    """Mean step; None where too little was decoded, or the engine restarted."""
    restarted: bool
    tells: bool
    """Whether the TTFT histogram may tell of the wait: counted at the first token, by the same engine."""
    grew: bool
    """Whether the batch is larger than at the scrape before, so that it had room."""

    @property
    def room(self) -> bool:
        """Whether the batch may have had room in the interval."""
        if self.grew or self.now is None or self.before is None:
            return True
        # The next request has waited since before the interval began, so there was no room for it all the time.
        stood = self.now.wait >= self.seconds and self.increase[ITL_SUM] > 0.0
        return not stood and (self.before.room or self.now.room)

    def waits(self, gateway: tuple[Queue | None, Queue | None]) -> tuple[float, float]:
        """Seconds that the next request had waited at both ends, at the gateway too."""
        return _wait(self.before, gateway[0]), _wait(self.now, gateway[1])


class _Read(NamedTuple):
    """Metrics of the replicas of one observation, as far as they are believed."""

    samples: dict[str, Sample]
    """Samples by replica, to compare the next samples with."""
    serving: list[ReplicaMetrics]
    """Metrics of the ready replicas, with Unknown in place of gauges that are not believed."""
    pairs: list[tuple[ReplicaMetrics, Sample, Sample | None, bool]]
    """Metrics that count, each with its sample, the sample before, and whether the engine restarted in between."""
    damaged: dict[str, str]
    """Why a sample, or a gauge of it, is left out, by replica."""
    left_out: list[str]
    """Replicas whose samples are left out."""


def diff_counters(
    observation: Observation,
    pool: Pool,
    previous: Mapping[str, Sample],
    gateway: Queue | None = None,
    full_from: Mapping[str, float] = MappingProxyType({}),
    client: Counts | None = None,
    *,
    short: bool = False,
    known: Usual = NOTHING_USUAL,
) -> CounterDelta:
    """Compare the samples with the `previous` samples, and the gateway with its queue and TTFT at that time.

    A replica's first sample is where its counting begins. `full_from`: by target, the running requests from which on a
    replica may be full. `short`: see `ShortAnswers`. `known`: usual figures, by which a damaged figure is recognised.
    """
    params, ttft_bound = pool.params, pool.slo.time_to_first_token
    ready = {replica.name: replica for replica in observation.ready}
    serving, missing = _whole(observation, pool.slo, ready, previous)
    sums, grown, covered, intervals = [0.0] * FIGURES, 0.0, 0.0, []
    served: list[_Served] = []
    samples, serving, read, damaged, left_out = _read(serving, previous, ready, pool, full_from, known)
    for metrics, now, before, restarted in read:
        replica = ready[metrics.replica]
        if before is None or not 0.0 < now.at - before.at <= params.longest_gap or bucket_changed(before, now):
            continue
        increase = rises(repeat(0.0) if restarted else before.figures, now.figures)
        grown += _growth(now, before, restarted=restarted, longest_gap=params.longest_gap)
        sums = [*map(add, sums, increase)]
        seconds = now.at - before.at
        # What came before a restart is lost, its seconds are not.
        step = None if restarted else mean_step(increase, seconds)
        covered += replica.weight * seconds
        intervals.append(seconds)
        shown_anew = now.queue is not before.queue
        queues_shown = (before.queue, now.queue) if shown_anew else (None, None)
        # At both scrapes: in a full batch one begins for each that ends, so the increases are equal anyway.
        at_once = before.begins_at_first_token and now.begins_at_first_token
        tells = at_once and not restarted and (shown_anew or now.queue is None)
        tells = tells and not _shows_no_wait(metrics, ttft_bound)
        # Requests wait beside a batch with room while a long prompt is computed; the batch grows when that is done.
        grew = now.running > (1.0 + ANOTHER_BATCH) * before.running + 1.0
        served.append(_Served(replica.target, *queues_shown, seconds, increase, step, restarted, tells, grew))
    # A replica whose scrape was lost, or that is not Ready for a moment, is compared with its last sample.
    alive = ready.keys() | {replica.name for replica in observation.starting}
    samples = {name: one for name, one in previous.items() if name in alive} | samples
    read_of_all = len(serving) / len(ready) if ready else 0.0
    standing = standing_still(samples, observation.ready, pool)
    still = {one.replica for one in standing}
    # What a gauge shows that nothing moves is held by no engine that works, and is no demand.
    believed = [_without_gauges(one) if one.replica in still else one for one in serving] if still else serving
    queues = _queues(believed, observation.ready, previous, params.longest_gap)
    waiting = queues if isinstance(queues, Unknown) else math.fsum(queues)
    passed = sums[BEGUN] + grown
    scraped_at = max((one.scraped_at for one in serving), default=None)
    gateway_now = _gateway_after(observation.gateway.queue, gateway, passed, scraped_at)
    # A queue that was not shown anew says nothing about this interval.
    gateways = (gateway, gateway_now) if gateway_now is not gateway else (None, None)
    waits = [(one, *one.waits(gateways)) for one in served]
    judged = [_late_by_queue(*each, ttft_bound, params.prefill_beside_queue) for each in waits]
    client, first_tokens = _client_ttft(client, observation.gateway, pool.slo, params.longest_gap)
    return CounterDelta(
        sums=(*sums, grown, *(math.fsum(column) for column in zip((0.0, 0.0), *judged, strict=True)), *first_tokens),
        covered=covered,
        engines={
            target: _engine(target, waits, believed, ready, observation, pool, short=short)
            for target in {replica.target: None for replica in observation.ready}
        },
        waits=tuple(
            Wait(begun, begin, end, one.increase[TTFT_SUM] / begun)
            for one, begin, end in waits
            if one.tells and (begun := one.increase[BEGUN]) > 0.0 and (one.now is not None or gateways[1] is not None)
        ),
        queue_excluded=any(_shows_no_wait(one, ttft_bound) for one in serving),
        standing=standing,
        running=_gauge([one.running for one in believed], read_of_all),
        waiting=_with_gateway(waiting, observation.gateway.queue),
        queues=() if isinstance(queues, Unknown) else queues,
        gateway=observation.gateway.queue,
        gateway_queue=gateway_now,
        client=client,
        client_unknown=_client_unknown(observation.gateway, pool.slo),
        coverage=(len(serving) - len(left_out)) / len(ready) if ready else 0.0,
        samples=samples,
        # Of the replica that has served most: one without a request shows no bucket.
        buckets=max(samples.values(), key=lambda one: one.figures[TTFT_COUNT]).buckets if samples else NO_BUCKETS,
        interval=min(intervals) if intervals else None,
        missing=missing,
        damaged=damaged,
    )


def _read(
    shown: Sequence[ReplicaMetrics],
    previous: Mapping[str, Sample],
    ready: Mapping[str, Replica],
    pool: Pool,
    full_from: Mapping[str, float],
    known: Usual,
) -> _Read:
    """The replicas' metrics, as far as they are believed."""
    longest, found = pool.params.longest_gap, _Read({}, [], [], {}, [])
    for one in shown:
        before, metrics, restarted = previous.get(one.replica), one, False
        recent = before is not None and one.scraped_at - before.at <= longest
        if before is not None and recent:
            metrics = with_believed_gauges(one, before, shown, known)
        now = sample(metrics, pool.slo, before, full_from.get(ready[one.replica].target, 0.0))
        found.serving.append(metrics)
        if metrics is not one:
            now = replace(now, jumped=(one.running, one.waiting))
            found.damaged[one.replica] = doubt_of(one, metrics)
        if before is not None and recent:
            between = change_between(before, now)
            if between is Change.DAMAGED:
                found.left_out.append(one.replica)
                missing = lost(before, now)
                found.damaged[one.replica] = "a counter fell" if missing is None else f"no {missing} any more"
                continue  # the next sample is compared with the one before
            restarted = between is Change.RESTARTED
            if restarted and isinstance(metrics.waiting, Unknown):
                now = replace(now, queue=None)  # that one went with the engine
            doubt = None
            if not restarted:
                before, doubt = compared_with(now, before, known)
            if doubt is not None:
                found.left_out.append(one.replica)
                found.samples[one.replica], found.damaged[one.replica] = replace(before, doubted=now), doubt
                continue
        found.samples[one.replica] = now
        found.pairs.append((metrics, now, before, restarted))
    return found


def _engine(
    target: str,
    waits: Sequence[tuple[_Served, float, float]],
    serving: Sequence[ReplicaMetrics],
    ready: Mapping[str, Replica],
    observation: Observation,
    pool: Pool,
    *,
    short: bool,
) -> EngineDelta:
    """The work of one target's engines, from the waits of all replicas at both ends."""
    waits = [each for each in waits if each[0].target == target]
    served = [one for one, _, _ in waits]
    steps = [one.step for one in served if one.step is not None]
    if not steps and not any(one.restarted for one in served):
        # Many replicas with little to do are alike.
        sums = [0.0] * FIGURES
        for one in served:
            sums = [*map(add, sums, one.increase)]
        together = mean_step(sums, sum(one.seconds for one in served))
        steps = [] if together is None else [together]
    asked = served if pool.prefills or not steps else []
    costs = [mean_prefill(one.increase, one.seconds, short=short) for one in asked if not one.restarted]
    prefills = tuple(one for one in costs if one is not None)
    running = (one.running for one in serving if ready[one.replica].target == target)
    return EngineDelta(
        steps=() if pool.prefills and prefills else tuple(steps),
        prefills=prefills,
        full=tuple(
            # Of metered engines only requests beyond the room of all replicas wait, so that none of them has any.
            _full(one, room=one.room and not observation.metered)
            for one, begin, end in waits
            # An engine that hangs serves nothing, whatever its batch: and is not full.
            if min(begin, end) >= pool.slo.queue_bound and one.increase[BEGUN] + one.increase[GENERATED] > 0.0
        ),
        most_running=max((one for one in running if not isinstance(one, Unknown)), default=0.0),
    )


def _whole(
    observation: Observation, slo: Slo, ready: Container[str], previous: Mapping[str, Sample]
) -> tuple[list[ReplicaMetrics], str | None]:
    """Whole samples of ready replicas, and the name of a series that another sample lacks."""
    found = () if isinstance(observation.metrics, Unknown) else observation.metrics
    serving, missing = [], None
    for metrics in found:
        if metrics.replica in ready:
            before = previous.get(metrics.replica)
            filled = with_empty_series(metrics, used=before is not None and before.figures[TTFT_COUNT] > 0.0)
            lacks = missing_series(filled, slo)
            missing = missing or lacks
            if lacks is None:
                serving.append(filled)
    return serving, missing


def _without_gauges(metrics: ReplicaMetrics) -> ReplicaMetrics:
    """The sample with nothing in the engine, as far as it exposes gauges."""
    running, waiting = (one if isinstance(one, Unknown) else 0.0 for one in (metrics.running, metrics.waiting))
    return replace(metrics, running=running, waiting=waiting)


def _shows_no_wait(metrics: ReplicaMetrics, bound: float | None) -> bool:
    """Whether the TTFT histogram is known not to show who waited: it begins at admission, or has no bucket to ask."""
    ttft = metrics.time_to_first_token
    bare = isinstance(ttft, Histogram) and ttft.count > 0.0 and not ttft.bounds
    return metrics.ttft_from_admission or (bound is not None and bare)


def mean_step(increase: Sequence[float], seconds: float) -> Steps | None:
    """The mean step of an interval; None where too little was decoded, or a damaged sample says what no engine does."""
    count, spent = increase[ITL_COUNT], increase[ITL_SUM]
    if count < LEAST_TOKENS or not count * FASTEST_STEP <= spent <= seconds * MOST_BATCH:
        return None
    # Each decoding request spends all its time between tokens, so the sum of ITLs over the time is the mean
    # number decoding in it, where the gauge is one instant in fifteen seconds.
    itl = spent / count
    prefill = max(0.0, increase[PROMPTS] - increase[CACHED]) / seconds * itl
    return Steps(itl, spent / seconds, prefill) if prefill <= LONGEST_PROMPT else None


def mean_prefill(increase: Sequence[float], seconds: float, *, short: bool = False) -> Steps | None:
    """Cost of a request where hardly any token is decoded; None where it is not known.

    None is by embeddings or a prefill engine, a few are by `short` answers, see `ShortAnswers`. An engine that serves
    one after the other, or all a bit at a time, makes a request that takes W take T = W / (1 - load) on the way from
    arrival to its last token, and the load is W times the arrivals. So W is T over one and what is in the engine on
    average, which by Little's law is T times the arrivals. Where a queue only grows that is the time between two that
    leave.
    """
    requests, prompts, first = increase[BEGUN], increase[PROMPTS] - increase[CACHED], increase[TTFT_COUNT]
    decoded = increase[ITL_COUNT] > 0.0
    if not first > 0.0 or not prompts > 0.0 or (not decoded and increase[GENERATED] != first):
        return None
    if decoded and not (short and increase[GENERATED] <= STILL_SHORT * SHORT_ANSWER * first):
        return None  # tokens of requests that began before say nothing of those that began now
    each = (increase[TTFT_SUM] + increase[ITL_SUM]) / first
    cost = each / (1.0 + each * requests / seconds)
    return Steps(cost, 0.0, prompts / requests, base=0.0) if cost > FASTEST_STEP else None


def _growth(now: Sample, before: Sample, *, restarted: bool, longest_gap: float) -> float:
    """Requests by which a queue has grown from one sample to the next.

    Where it was not shown for a while, only as much as a rate is taken over: the growth of three minutes, taken for
    that of half of one, is a surge of three times what arrives.
    """
    if now.queue is None:
        return 0.0
    if restarted:
        return now.queue.requests
    if before.queue is None or not 0.0 < (gap := now.queue.at - before.queue.at) <= longest_gap:
        return 0.0
    grown = now.queue.requests - before.queue.requests
    return grown * min(1.0, RATE_SCRAPES * (now.at - before.at) / gap)


def _gauge(readings: list[Reading], share: float) -> Reading:
    """Sum of a gauge, scaled up for the replicas that could not be read."""
    figures = [reading for reading in readings if not isinstance(reading, Unknown)]
    if not figures:
        return readings[0] if readings and isinstance(readings[0], Unknown) else Unknown("no replica was read")
    return sum(figures) * len(readings) / len(figures) / share


def _queues(
    serving: Sequence[ReplicaMetrics], ready: Sequence[Replica], previous: Mapping[str, Sample], longest_gap: float
) -> tuple[float, ...] | Unknown:
    """Requests in each engine's queue; Unknown where an engine lacks the gauge that others expose.

    Of a replica without a sample now the last one counts, and one that has turned Ready since has had no time to queue:
    with each taken for the mean of the others, 8,279 requests on three replicas became 16,618 as soon as seven more
    were Ready.
    """
    shown = {one.replica: one.waiting for one in serving}
    figures = [reading for reading in shown.values() if not isinstance(reading, Unknown)]
    unread = [reading for reading in shown.values() if isinstance(reading, Unknown)]
    if not figures:
        return unread[0] if unread else Unknown("no replica was read")
    if unread:
        return Unknown(f"{len(unread)} of {len(shown)} replicas expose no queue: {unread[0].reason}")
    now, mean = max(one.scraped_at for one in serving), sum(figures) / len(figures)

    def unseen(replica: Replica) -> float:
        last = previous.get(replica.name)
        began = -math.inf if replica.ready_for is None else now - replica.ready_for
        if now - began <= longest_gap and (last is None or began > last.at):
            return 0.0
        known = None if last is None else last.queue
        return known.requests if known is not None and now - known.at <= longest_gap else mean

    return (*figures, *(unseen(one) for one in ready if one.name not in shown))


def _with_gateway(waiting: Reading, gateway: Reading) -> Reading:
    """The sum, of what there is: NOT_EXPOSED is no gateway, or engines that have no queue of their own."""
    if gateway is NOT_EXPOSED:
        return waiting
    if isinstance(gateway, Unknown):
        return gateway
    if waiting is NOT_EXPOSED:
        return gateway
    return waiting if isinstance(waiting, Unknown) else waiting + gateway


def _gateway_after(requests: Reading, before: Queue | None, passed: float, at: float | None) -> Queue | None:
    """The gateway's queue, of which `passed` more have reached an engine; as it was where it is not known."""
    if isinstance(requests, Unknown) or at is None:
        return None if requests is NOT_EXPOSED else before
    if before is not None and at <= before.at:
        return before
    left = 0.0 if before is None else before.joined[-1][1] - before.requests
    return queue(before, at=at, requests=requests, left=left + max(0.0, passed))


def _client_ttft(
    before: Counts | None, gateway: GatewayMetrics, slo: Slo, longest_gap: float
) -> tuple[Counts | None, Sequence[float]]:
    """The client's TTFT as counted so far; what came since, in all and up to both ends of the bucket with the bound."""
    ttft, at, nothing = gateway.time_to_first_token, gateway.scraped_at, (0.0, 0.0, 0.0)
    if not slo.at_gateway:
        return None, nothing
    if not isinstance(ttft, Histogram) or at is None:
        return before, nothing
    counts, bucket = ttft.around(slo.time_to_first_token)
    latest, rise = follow(before, Counts(at, counts, bucket))
    return latest, nothing if rise is None or rise.seconds > longest_gap else rise.figures


def _client_unknown(gateway: GatewayMetrics, slo: Slo) -> str | None:
    """Why the client's TTFT is not known, where the SLO is judged by it."""
    ttft = gateway.time_to_first_token
    if not slo.at_gateway or not isinstance(ttft, Unknown):
        return None
    return "the gateway does not tell it" if ttft is NOT_EXPOSED else ttft.reason


def _wait(engine: Queue | None, gateway: Queue | None) -> float:
    """Seconds that the request at the head of a replica's queue has waited, at the gateway too."""
    return (0.0 if engine is None else engine.wait) + (0.0 if gateway is None else gateway.wait)


def _late_by_queue(
    one: _Served, begin: float, end: float, bound: float | None, prefill_beside_queue: float
) -> tuple[float, float]:
    """WAITED and LATE_BY_QUEUE of the requests that one replica began to serve.

    Half of them waited as long as the next one had at the `begin`, half as at the `end`: where a queue comes and goes
    between two observations, that is right on average, and a line between the two would count each peak twice.
    """
    requests = one.increase[BEGUN]
    if requests <= 0.0:
        return 0.0, 0.0
    ttft = prefill_beside_queue * one.increase[TTFT_SUM] / max(one.increase[TTFT_COUNT], 1.0)
    late = 0.0
    if bound is not None and begin + end > 0.0:
        late = requests * 0.5 * ((begin + ttft > bound) + (end + ttft > bound))
    return requests * 0.5 * (begin + end), late


def _full(one: _Served, *, room: bool) -> Full:
    """The work of a full replica."""
    return Full(room, one.seconds, one.increase[BEGUN], one.increase[GENERATED], one.increase[ITL_SUM])
