"""From cumulative samples to the increases since the last observation.

Counters restart with the engine, replicas come and go, scrapes are lost or repeated. Only here is that turned into sums
over replicas for one interval, with the replica-seconds that they cover, so that everything after it divides one by the
other and stays unbiased when half the scrapes are lost.

An observation is a table with a row for each replica and a column for each figure. A replica is looked at alone where
it is odd: new, late, after a counter reset, or an outlier.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np

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
from servingpool.decision.increase import Counts, Flags, Floats, follow, increases, resets
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
from servingpool.decision.observe.columns import FIGURES, Column
from servingpool.decision.observe.confirm import SLACK
from servingpool.decision.observe.plausible import (
    NOTHING_USUAL,
    OFTEN,
    Usual,
    compared_with,
    doubt_of,
    outliers,
    shows_waits,
    with_believed_gauges,
)
from servingpool.decision.observe.queueing import Queue, queue
from servingpool.decision.observe.samples import (
    COUNTERS,
    NEEDED,
    NO_BUCKETS,
    NO_SAMPLE,
    OPTIONAL,
    PROGRESS,
    Buckets,
    Sample,
    Standing,
    bucket_changed,
    missing_series,
    standing_still,
    table_of,
    with_empty_series,
)
from servingpool.decision.params import LONGEST_GAP
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


class CounterDelta(NamedTuple):
    """Increases of one interval, over the replicas that could be read twice."""

    sums: tuple[float, ...] = ()
    """Increase of each figure over the replicas, by `Column`."""
    covered: float = 0.0
    """Replica-seconds that `sums` cover, in replicas of the reference target."""
    engines: Mapping[str, EngineDelta] = {}
    """Work of the engines, by target."""
    waits: tuple[Wait, ...] = ()
    """Waits at each replica that began to serve requests, shows its queue, and counts TTFT at the first token."""
    queue_excluded: bool = False
    """Whether the TTFT histogram of some replica is known not to show the queue."""
    standing: tuple[Standing, ...] = ()
    """Ready replicas that hang."""
    running: Reading = 0.0
    """Requests in running batches, scaled to all ready replicas."""
    waiting: Reading = 0.0
    """Requests queued in engines and at the gateway."""
    queues: tuple[float, ...] = ()
    """Requests in each ready replica's queue; empty where they are not known."""
    gateway: Reading = NOT_EXPOSED
    """Requests queued at the gateway."""
    gateway_queue: Queue | None = None
    """The gateway's queue; None where there is no gateway."""
    client: Counts | None = None
    """The client's TTFT as the gateway counted it; None where the SLO is not judged there or nothing was told yet."""
    client_unknown: str | None = None
    """Why the client's TTFT is not known, where the SLO is judged by it."""
    coverage: float = 0.0
    """Share of the ready replicas whose sample was whole and was not left out, 0 to 1; 0 where none is ready."""
    samples: Mapping[str, Sample] = {}
    """Samples by replica, to compare the next samples with."""
    buckets: Buckets = NO_BUCKETS
    interval: float | None = None
    """Seconds between two scrapes of a replica; None where no replica was scraped again."""
    missing: str | None = None
    """Name of a series that a sample lacks; None where no series is missing."""
    damaged: Mapping[str, str] = {}
    """Why a sample is left out, or a gauge of it, by replica."""


NOTHING_COUNTED = CounterDelta()


class _Table(NamedTuple):
    """Whole samples of ready replicas, a row each, beside the samples before."""

    metrics: list[ReplicaMetrics]
    """With Unknown in place of gauges that are not believed."""
    gauges: Floats
    """[replica, running and waiting requests]; NaN where not known."""
    figures: Floats
    """[replica, column]."""
    now: list[Sample]
    before: list[Sample]
    was: Floats
    """Figures before."""
    seconds: Floats
    """Between the two; infinite where the replica was not read before."""
    restarted: Flags
    fell: Flags
    """Whether a counter fell, and the engine did not restart."""
    damaged: dict[str, str]
    """Why a gauge is not believed, by replica."""
    missing: str | None
    """A series that another sample lacks."""


class _Intervals(NamedTuple):
    """Intervals between two scrapes, a row for each replica that was read twice."""

    metrics: list[ReplicaMetrics]
    replicas: list[Replica]
    before: list[Sample]
    now: list[Sample]
    seconds: Floats
    increase: Floats
    """[replica, column]."""
    restarted: Flags
    at_once: Flags
    """Whether as many requests have left the queue as have their first token, at both scrapes: in a full batch one
    begins for each that ends, so the increases are equal anyway."""


def diff_counters(
    observation: Observation, pool: Pool, last: CounterDelta = NOTHING_COUNTED, known: Usual = NOTHING_USUAL
) -> CounterDelta:
    """The increases since the `last` observation. `known`: usual figures, by which an outlier is recognised."""
    slo = pool.slo
    ready = {replica.name: replica for replica in observation.ready}
    table = _table(observation, pool, ready, last.samples, known)
    found, samples, damaged, left_out = _compared(table, ready, known)
    sums, grown = np.add.reduce(found.increase), _growth(found)
    # A replica whose scrape was lost, or that is not Ready for a moment, is compared with its last sample.
    alive = ready.keys() | {replica.name for replica in observation.starting}
    samples = {name: one for name, one in last.samples.items() if name in alive} | samples
    standing = standing_still(samples, observation.ready, pool)
    # What a gauge shows that nothing moves is held by no engine that works, and is no demand.
    hung = {one.replica for one in standing}
    moving = np.array([one.replica not in hung for one in table.metrics], bool)
    running, waiting = (table.gauges * moving[:, None]).T
    targets = np.array([ready[one.replica].target for one in table.metrics], object)
    queues = _queues(table.metrics, waiting, observation.ready, last.samples)
    scraped_at = max([one.scraped_at for one in table.metrics], default=None)
    passed = float(sums[Column.BEGUN]) + grown
    gateway = _gateway_after(observation.gateway.queue, last.gateway_queue, passed, scraped_at)
    waits = _waits(found, (last.gateway_queue, gateway), slo.time_to_first_token)
    client, first_tokens = _client_ttft(last.client, observation.gateway, slo)
    late = _late_by_queue(found.increase, waits, slo.time_to_first_token)
    return CounterDelta(
        sums=(*sums.tolist(), grown, *late, *first_tokens),
        covered=float(found.seconds @ np.array([one.weight for one in found.replicas])),
        engines={
            target: _engine(target, found, waits, running[targets == target], observation, pool, short=known.short)
            for target in {replica.target: None for replica in observation.ready}
        },
        waits=waits.told,
        queue_excluded=not all(shows_waits(table.metrics, slo.time_to_first_token)),
        standing=standing,
        running=_gauge([one.running for one in table.metrics], running, len(ready)),
        waiting=added(queues if isinstance(queues, Unknown) else math.fsum(queues), observation.gateway.queue),
        queues=() if isinstance(queues, Unknown) else queues,
        gateway=observation.gateway.queue,
        gateway_queue=gateway,
        client=client,
        client_unknown=_client_unknown(observation.gateway, slo),
        coverage=(len(table.metrics) - left_out) / len(ready) if ready else 0.0,
        samples=samples,
        # Of the replica that has served most: one without a request shows no bucket.
        buckets=max(samples.values(), key=attrgetter("figures"), default=NO_SAMPLE).buckets,
        interval=float(found.seconds.min()) if found.now else None,
        missing=table.missing,
        damaged=damaged,
    )


def _table(
    observation: Observation, pool: Pool, ready: Mapping[str, Replica], previous: Mapping[str, Sample], known: Usual
) -> _Table:
    """The table of an observation."""
    shown, figures, buckets, missing = _whole(observation, pool.slo, ready, previous)
    before = [previous.get(one.replica, NO_SAMPLE) for one in shown]
    was = np.array([one.figures for one in before]).reshape(-1, FIGURES)
    at = np.array([one.scraped_at for one in shown])
    seconds = at - np.array([one.at for one in before])
    recent = seconds <= LONGEST_GAP
    restarted, fell = resets(was[:, COUNTERS], figures[:, COUNTERS])
    rises = increases(np.where(restarted[:, None], 0.0, was), figures)
    metrics, levels = with_believed_gauges(shown, before, rises, recent, known, pool.slo)
    gauges = np.array([(one.running, one.waiting) for one in metrics], np.float64).reshape(-1, 2)
    # A request that is aborted in the batch is not begun any more; it has left the queue all the same.
    begun, reset = figures[:, Column.BEGUN], restarted | fell
    left = np.where(reset, begun, np.fmax(begun, was[:, Column.BEGUN])).tolist()
    # A request that comes between two steps waits for the next step. With room it counts as none that waits.
    full_from = {target: known.full_from.get(target, 0.0) for target in {one.target for one in observation.ready}}
    room = (gauges[:, 0] < [full_from[ready[one.replica].target] for one in metrics]).tolist()
    held = np.add.reduce(np.fmax(gauges, 0.0), axis=1)
    moved = np.logical_or.reduce(figures[:, PROGRESS] != was[:, PROGRESS], axis=1) | (held <= 0.0) | ~recent
    moved_at = np.where(moved, at, [one.moved_at for one in before]).tolist()
    # Each replica's `Sample.most_prompts`. It begins anew when a request begins; until then it grows with what is held.
    # The allowance is wide, because some engines count a prompt when its request ends, others before its first token.
    usual = OFTEN * (known.each[Column.PROMPTS] if known.each else MOST_BATCH * LONGEST_PROMPT)
    most, held_before = np.array([(one.most_prompts, one.held) for one in before]).reshape(-1, 2).T
    since = most + usual * np.fmax(held - held_before, 0.0)
    anew = figures[:, Column.PROMPTS] + usual * (held + SLACK)
    most_prompts = np.where(begun != was[:, Column.BEGUN], anew, since).tolist()
    gone, reset_of = (restarted & recent).tolist(), reset.tolist()
    now = []
    rows = zip(metrics, before, buckets, figures.tolist(), gauges.tolist(), strict=True)
    for place, (one, old, bucket, row, (running, waiting)) in enumerate(rows):
        line = old.queue
        if waiting != waiting:  # noqa: PLR0124, NaN
            line = None if gone[place] else line
        elif line is None or one.scraped_at > line.at:
            line = queue(
                line, at=one.scraped_at, requests=waiting, left=left[place], room=room[place], reset=reset_of[place]
            )
        rest = levels[place], None, one.sources, moved_at[place], most_prompts[place]
        now.append(Sample(one.scraped_at, bucket, tuple(row), line, running, float(held[place]), *rest))
    each = zip(shown, metrics, levels, strict=True)
    doubts = {old.replica: doubt for old, one, level in each if one is not old and (doubt := doubt_of(old, one, level))}
    return _Table(metrics, gauges, figures, now, before, was, seconds, restarted, fell, doubts, missing)


def _compared(
    table: _Table, ready: Mapping[str, Replica], known: Usual
) -> tuple[_Intervals, dict[str, Sample], dict[str, str], int]:
    """The intervals since the samples before. After a counter reset all that an engine counts came since.

    A sample that cannot be compared, and an outlier, are left out, and the next one is compared with the one before.
    Also the samples to compare the next ones with, why one or a gauge of it is left out, by replica, and how many are.
    """
    recent, restarted = table.seconds <= LONGEST_GAP, table.restarted
    before, was, seconds, damaged = list(table.before), table.was.copy(), table.seconds.copy(), dict(table.damaged)
    # Taken for 0, one scrape without 50,000 rejections made 50,000 arrivals of the next, and 80 replicas of 3. Left at
    # what it was, the other figures of its scrape would be read without it.
    lost = np.isnan(table.figures) & ~np.isnan(was)
    # If one of eight ranks answers a scrape, the counts of the other seven seem new at the next: 24 replicas, not 4.
    sources = np.array([(new.sources, old.sources) for new, old in zip(table.now, before, strict=True)]).reshape(-1, 2)
    partial = (sources[:, 0] < sources[:, 1]) & (seconds <= [ready[one.replica].age for one in table.metrics])
    # With a count of requests that stood for an hour 5% of them were lost, and 3 replicas ended as 11.
    most = [one.most_prompts if one.held > 0.0 else math.inf for one in table.now]
    stands = table.figures[:, Column.PROMPTS] > most
    out = partial | stands | (recent & (table.fell | np.logical_or.reduce(lost, axis=1)))
    samples: dict[str, Sample] = {}
    for place in out.nonzero()[0].tolist():
        why = [name for column, name in OPTIONAL.items() if lost[place, column]]
        why += ["first token (TTFT) is counted"] if stands[place] else []
        said = f"no {why[0]} any more" if why else "a counter fell"
        if partial[place]:
            said = "only {:.0f} of its {:.0f} targets answer".format(*sources[place])
        damaged[table.metrics[place].replica] = said
    rows = (recent & ~out & ~restarted).nonzero()[0]
    now = table.now if len(rows) == len(before) else [table.now[place] for place in rows]
    odd = outliers(table.figures[rows], was[rows], now, [before[place] for place in rows], known)
    for place in rows[np.logical_or.reduce(odd, axis=1)].tolist():
        name = table.metrics[place].replica
        old, doubt = compared_with(table.now[place], before[place], known)
        if doubt is not None:
            out[place], damaged[name], samples[name] = True, doubt, old._replace(doubted=table.now[place])
        before[place], was[place], seconds[place] = old, old.figures, table.now[place].at - old.at
    samples |= {one.replica: now for one, now, left in zip(table.metrics, table.now, out, strict=True) if not left}
    counted = recent & ~out & (seconds > 0.0) & (sources[:, 0] <= sources[:, 1])  # what is new did not all come since
    pairs = [(one, before[one], table.now[one]) for one in counted.nonzero()[0].tolist()]
    kept = [one for one, old, new in pairs if new.buckets == old.buckets or not bucket_changed(old, new)]
    rows = np.array(kept, np.intp)
    base = np.where(restarted[rows, None], 0.0, was[rows])
    at_once = table.figures[:, Column.BEGUN] == table.figures[:, Column.TTFT_COUNT]
    found = _Intervals(
        [table.metrics[place] for place in rows],
        [ready[table.metrics[place].replica] for place in rows],
        [before[place] for place in rows],
        [table.now[place] for place in rows],
        seconds[rows],
        increases(base, table.figures[rows]),
        restarted[rows],
        (was[rows, Column.BEGUN] == was[rows, Column.TTFT_COUNT]) & at_once[rows],
    )
    return found, samples, damaged, int(out.sum())


def _whole(
    observation: Observation, slo: Slo, ready: Mapping[str, Replica], previous: Mapping[str, Sample]
) -> tuple[list[ReplicaMetrics], Floats, list[Buckets], str | None]:
    """Whole samples of ready replicas, with figures and buckets; and the name of a series that another sample lacks."""
    shown = [one for one in observation.samples if one.replica in ready]
    figures, buckets = table_of(shown, slo)
    lacking: Flags = np.logical_or.reduce(np.isnan(figures[:, NEEDED]), axis=1)
    if not lacking.any():
        return shown, figures, buckets, None
    used = [previous.get(one.replica, NO_SAMPLE).figures[Column.TTFT_COUNT] > 0.0 for one in shown]
    shown = [with_empty_series(one, used=before) for one, before in zip(shown, used, strict=True)]
    lacks = [missing_series(one, slo) for one in shown]
    shown = [one for one, series in zip(shown, lacks, strict=True) if series is None]
    return shown, *table_of(shown, slo), next((series for series in lacks if series is not None), None)


class _Waits(NamedTuple):
    """Seconds that the next request of each replica had waited at both ends of an interval, at the gateway too."""

    begin: Floats
    end: Floats
    told: tuple[Wait, ...]
    """Waits of which the TTFT histogram tells: counted at the first token, by the same engine."""


def _waits(found: _Intervals, gateways: tuple[Queue | None, Queue | None], bound: float | None) -> _Waits:
    """The waits, with those at the gateway before and now. A queue that was not shown anew says nothing."""
    pairs = [(old.queue, new.queue) for old, new in zip(found.before, found.now, strict=True)]
    anew = np.array([old is not new for old, new in pairs], bool)
    hidden = np.array([new is None for _, new in pairs], bool)
    at_gateway = gateways if gateways[0] is not gateways[1] else (None, None)
    each = np.array([(old.wait if old else 0.0, new.wait if new else 0.0) for old, new in pairs]).reshape(-1, 2)
    begin, end = (each * anew[:, None] + [one.wait if one else 0.0 for one in at_gateway]).T
    tells = found.at_once & ~found.restarted & (anew & ~hidden if at_gateway[1] is None else anew | hidden)
    shows = np.array(shows_waits(found.metrics, bound), bool)
    # A queue of one length teaches nothing: it is parked, or those who begin tell of it anyway.
    moves = np.array([one.level is None or one.level.since == one.level.at for one in found.now], bool)
    rows = tells & shows & moves & (found.increase[:, Column.BEGUN] > 0.0)
    begun, spent = found.increase[rows][:, [Column.BEGUN, Column.TTFT_SUM]].T
    told = np.array((begun, begin[rows], end[rows], spent / begun)).T.tolist()
    return _Waits(begin, end, tuple([Wait(*one) for one in told]))


def _late_by_queue(increase: Floats, waits: _Waits, bound: float | None) -> tuple[float, float]:
    """WAITED and LATE_BY_QUEUE of the requests that the replicas began to serve.

    Half of them waited as long as the next one had at the begin, half as at the end: where a queue comes and goes
    between two observations, that is right on average, and a line between the two would count each peak twice.
    """
    begun, spent, first = increase[:, [Column.BEGUN, Column.TTFT_SUM, Column.TTFT_COUNT]].T
    # TTFT from admission of requests that queued is twice the mean; at the mean status was 3 to 7 points high.
    ttft, both = 2.0 * spent / np.maximum(first, 1.0), waits.begin + waits.end
    late = 0.0
    if bound is not None:
        ends = (waits.begin + ttft > bound).astype(float) + (waits.end + ttft > bound)
        late = float(0.5 * begun @ (ends * (both > 0.0)))
    return float(0.5 * begun @ both), late


def _growth(found: _Intervals) -> float:
    """Requests by which the engines' queues have grown from one sample to the next.

    Where one was not shown for a while, only as much as a rate is taken over: the growth of three minutes, taken for
    that of half of one, is a surge of three times what arrives.
    """
    grown = 0.0
    for old, new, seconds, restarted in zip(found.before, found.now, found.seconds, found.restarted, strict=True):
        before, now = old.queue, new.queue
        if now is None:
            continue
        if restarted:
            grown += now.requests
        elif before is not None and 0.0 < (gap := now.at - before.at) <= LONGEST_GAP:
            grown += (now.requests - before.requests) * min(1.0, RATE_SCRAPES * seconds / gap)
    return grown


def _engine(
    target: str, found: _Intervals, waits: _Waits, running: Floats, observation: Observation, pool: Pool, *, short: bool
) -> EngineDelta:
    """The work of one target's engines, from the waits of all replicas at both ends."""
    own = np.array([replica.target == target for replica in found.replicas], bool)
    whole = own & ~found.restarted  # what came before a restart is lost
    increase, seconds = found.increase[whole], found.seconds[whole]
    steps = mean_steps(increase, seconds)
    if not steps and not (own & found.restarted).any():
        # Many replicas with little to do are alike.
        steps = mean_steps(increase.sum(axis=0)[None], seconds.sum()[None])
    costs = []
    if pool.prefills or not steps:
        pairs = zip(increase.tolist(), seconds.tolist(), strict=True)
        costs = [cost for one, span in pairs if (cost := mean_prefill(one, span, short=short)) is not None]
    begun, generated = found.increase[:, [Column.BEGUN, Column.GENERATED]].T
    # An engine that hangs serves nothing, whatever its batch, and is not full. Nor is one for which nobody waited.
    full = own & (np.minimum(waits.begin, waits.end) >= pool.slo.queue_bound) & (begun + generated > 0.0)
    full &= np.array([one.level is None or not one.level.refuted for one in found.now], bool)
    return EngineDelta(
        steps=() if pool.prefills and costs else tuple(steps),
        prefills=tuple(costs),
        # Of metered engines only requests beyond the room of all replicas wait, so that none of them has any.
        full=tuple(_full(found, place, metered=observation.metered) for place in full.nonzero()[0].tolist()),
        most_running=float(np.fmax.reduce(running, initial=0.0)),
    )


def _full(found: _Intervals, place: int, *, metered: bool) -> Full:
    """The work of a full replica."""
    before, now, seconds = found.before[place], found.now[place], float(found.seconds[place])
    begun, generated, decoding = found.increase[place, [Column.BEGUN, Column.GENERATED, Column.ITL_SUM]].tolist()
    # Requests wait beside a batch with room while a long prompt is computed; the batch grows when that is done.
    room = now.running > (1.0 + ANOTHER_BATCH) * before.running + 1.0
    old, new = before.queue, now.queue
    if new is None or old is None or old is new:
        room = True
    elif not room:
        # The next request has waited since before the interval began, so there was no room for it all the time.
        stood = new.wait >= seconds and decoding > 0.0
        room = not stood and (old.room or new.room)
    return Full(room and not metered, seconds, begun, generated, decoding)


def mean_steps(increase: Floats, seconds: Floats) -> list[Steps]:
    """The mean step of each replica that decoded enough, if it is not one that no engine does."""
    count, spent = increase[:, [Column.ITL_COUNT, Column.ITL_SUM]].T
    rows = (count >= LEAST_TOKENS) & (count * FASTEST_STEP <= spent) & (spent <= seconds * MOST_BATCH)
    increase, seconds, count, spent = increase[rows], seconds[rows], count[rows], spent[rows]
    # Each decoding request spends all its time between tokens, so the sum of ITLs over the time is the mean
    # number decoding in it, where the gauge is one instant in fifteen seconds.
    itl = spent / count
    prefill = np.maximum(0.0, increase[:, Column.PROMPTS] - increase[:, Column.CACHED]) / seconds * itl
    rows = np.array((itl, spent / seconds, prefill)).T[prefill <= LONGEST_PROMPT]
    return [Steps(*one) for one in rows.tolist()]


def mean_prefill(increase: Sequence[float], seconds: float, *, short: bool = False) -> Steps | None:
    """Cost of a request where hardly any token is decoded; None where it is not known.

    None is by embeddings or a prefill engine, a few are by `short` answers, see `ShortAnswers`. An engine that serves
    one after the other, or all a bit at a time, makes a request that takes W take T = W / (1 - load) on the way from
    arrival to its last token, and the load is W times the arrivals. So W is T over one and what is in the engine on
    average, which by Little's law is T times the arrivals. Where a queue only grows that is the time between two that
    leave.
    """
    requests, first = increase[Column.BEGUN], increase[Column.TTFT_COUNT]
    prompts, decoded = increase[Column.PROMPTS] - increase[Column.CACHED], increase[Column.ITL_COUNT] > 0.0
    if not first > 0.0 or not prompts > 0.0 or (not decoded and increase[Column.GENERATED] != first):
        return None
    if decoded and not (short and increase[Column.GENERATED] <= STILL_SHORT * SHORT_ANSWER * first):
        return None  # tokens of requests that began before say nothing of those that began now
    each = (increase[Column.TTFT_SUM] + increase[Column.ITL_SUM]) / first
    cost = each / (1.0 + each * requests / seconds)
    return Steps(cost, 0.0, prompts / requests, base=0.0) if cost > FASTEST_STEP else None


def _gauge(readings: list[Reading], figures: Floats, ready: int) -> Reading:
    """Sum of a gauge, scaled up for the replicas that could not be read. `figures`: as far as they are believed."""
    known = figures[~np.isnan(figures)]
    if not len(known):
        return readings[0] if readings and isinstance(readings[0], Unknown) else Unknown("no replica was read")
    return float(known.sum()) * ready / len(known)


def _queues(
    serving: Sequence[ReplicaMetrics], waiting: Floats, ready: Sequence[Replica], previous: Mapping[str, Sample]
) -> tuple[float, ...] | Unknown:
    """Requests in each engine's queue; Unknown where an engine lacks the gauge that others expose.

    Of a replica without a sample now the last one counts, and one that has turned Ready since has had no time to queue:
    with each taken for the mean of the others, 8,279 requests on three replicas became 16,618 as soon as seven more
    were Ready.
    """
    hidden = [one for one, unknown in zip(serving, np.isnan(waiting), strict=True) if unknown]
    unread = [one.waiting for one in hidden if isinstance(one.waiting, Unknown)]
    if len(unread) == len(serving):
        return unread[0] if unread else Unknown("no replica was read")
    if unread:
        return Unknown(f"{len(unread)} of {len(serving)} replicas expose no queue: {unread[0].reason}")
    now, mean, shown = max([one.scraped_at for one in serving]), float(waiting.mean()), {one.replica for one in serving}

    def unseen(replica: Replica) -> float:
        last = previous.get(replica.name, NO_SAMPLE)
        began = -math.inf if replica.ready_for is None else now - replica.ready_for
        if now - began <= LONGEST_GAP and began > last.at:
            return 0.0
        return last.queue.requests if last.queue is not None and now - last.queue.at <= LONGEST_GAP else mean

    return (*waiting.tolist(), *(unseen(one) for one in ready if one.name not in shown))


def added(waiting: Reading, more: Reading) -> Reading:
    """The sum, of what there is: NOT_EXPOSED is no gateway, or engines that have no queue of their own."""
    if more is NOT_EXPOSED:
        return waiting
    if isinstance(more, Unknown):
        return more
    if waiting is NOT_EXPOSED:
        return more
    return waiting if isinstance(waiting, Unknown) else waiting + more


def _gateway_after(requests: Reading, before: Queue | None, passed: float, at: float | None) -> Queue | None:
    """The gateway's queue, of which `passed` more have reached an engine; as it was where it is not known."""
    if isinstance(requests, Unknown) or at is None:
        return None if requests is NOT_EXPOSED else before
    if before is not None and at <= before.at:
        return before
    left = 0.0 if before is None else before.joined[-1][1] - before.requests
    return queue(before, at=at, requests=requests, left=left + max(0.0, passed))


def _client_ttft(before: Counts | None, gateway: GatewayMetrics, slo: Slo) -> tuple[Counts | None, Sequence[float]]:
    """The client's TTFT as counted so far; what came since, in all and up to both ends of the bucket with the bound."""
    ttft, at, nothing = gateway.time_to_first_token, gateway.scraped_at, (0.0, 0.0, 0.0)
    if not slo.at_gateway:
        return None, nothing
    if not isinstance(ttft, Histogram) or at is None:
        return before, nothing
    counts, bucket = ttft.around(slo.time_to_first_token)
    latest, rise = follow(before, Counts(at, counts, bucket))
    return latest, nothing if rise is None or rise.seconds > LONGEST_GAP else rise.figures


def _client_unknown(gateway: GatewayMetrics, slo: Slo) -> str | None:
    """Why the client's TTFT is not known, where the SLO is judged by it."""
    ttft = gateway.time_to_first_token
    if not slo.at_gateway or not isinstance(ttft, Unknown):
        return None
    return "the gateway does not tell it" if ttft is NOT_EXPOSED else ttft.reason
