"""The figures a person wants beside a decision, each with its window; Unknown where they cannot be told."""

from __future__ import annotations

import numpy as np

from servingpool.decision.assess import Assessment
from servingpool.decision.belief import horizon
from servingpool.decision.blame import missed
from servingpool.decision.columns import GENERATED, PROMPTS, TTFT_COUNT, WAITED
from servingpool.decision.decision import Figures
from servingpool.decision.demand import level_window
from servingpool.decision.learn import Lesson, of_last_hour
from servingpool.decision.ledger import READY, RUNNING, SUMS, WAITING, Window
from servingpool.decision.memory import Memory
from servingpool.decision.observation import Observation
from servingpool.decision.pool import Pool
from servingpool.decision.unknown import Reading, Unknown
from servingpool.decision.witnesses import WINDOW, Witness, believed, longest_wait, waiting_too_long

NEVER_FULL = Unknown("no replica was seen full")


def measure(
    observation: Observation, memory: Memory, pool: Pool, lesson: Lesson, assessment: Assessment | Unknown, now: float
) -> Figures:
    """What was measured and weighed."""
    recent = memory.ledger.last(level_window(memory.interval))
    weighed = None if isinstance(assessment, Unknown) else assessment
    no_rate = assessment if isinstance(assessment, Unknown) else Unknown("no scrapes to take a rate from")
    known = lesson.demand
    bound, saturation = pool.slo.time_to_first_token, memory.profile.saturation
    overdue = waiting_too_long(observation, memory, bound)
    return Figures(
        arrivals=no_rate if known is None else known.arrivals,
        generation_rate=_rate(recent, GENERATED, no_rate),
        prompt_rate=_rate(recent, PROMPTS, no_rate),
        queue=_gauge(recent, WAITING),
        running=_gauge(recent, RUNNING),
        time_to_first_token=_first_token(memory, pool),
        time_per_output_token=memory.output_token_tail.at(pool.slo.attainment),
        attainment=_attainment(memory, overdue, now),
        attainment_now=_attainment_now(memory, pool, overdue),
        witness=believed(memory, bound),
        longest_wait=longest_wait(observation, memory),
        full_batch=saturation.batch if saturation.known else NEVER_FULL,
        full_requests=saturation.requests / saturation.seconds if saturation.known else NEVER_FULL,
        full_tokens=saturation.tokens / saturation.seconds if saturation.known else NEVER_FULL,
        load=no_rate if known is None or memory.ledger.rows[-1, READY] <= 0.0 else memory.ledger.load_of(known.level),
        safe_load=no_rate if weighed is None else _safe_load(weighed),
        forecast=no_rate if weighed is None else weighed.expected,
        horizon=horizon(memory, pool),
    )


def _first_token(memory: Memory, pool: Pool) -> Reading:
    """TTFT at the SLO's percentile; with the time in the queue where the histogram leaves it out."""
    shown = memory.first_token_tail.at(pool.slo.attainment)
    if believed(memory, pool.slo.time_to_first_token) is Witness.HISTOGRAM or isinstance(shown, Unknown):
        return shown
    rows = memory.ledger.last(WINDOW).rows
    begun, waited = rows[:, SUMS + TTFT_COUNT], rows[:, SUMS + WAITED]
    each = np.divide(waited, begun, out=np.zeros(len(rows)), where=begun > 0.0)
    order = np.argsort(each)
    place = np.searchsorted(np.cumsum(begun[order]), pool.slo.attainment * begun.sum())
    return shown + float(each[order][min(place, len(rows) - 1)]) if len(rows) else shown


def _safe_load(weighed: Assessment) -> Reading:
    if weighed.holdable:
        return weighed.curve.load_for(weighed.allowance)
    many = "more requests miss than may, at any load"
    return Unknown(many if weighed.told else "too few requests were seen to tell")


def _rate(window: Window, column: int, otherwise: Unknown) -> Reading:
    rate = window.rate(column)
    return otherwise if rate is None else rate


def _gauge(window: Window, column: int) -> Reading:
    value = window.rows[-1, column] if len(window.rows) else np.nan
    return Unknown("not read at the last look") if np.isnan(value) else float(value)


def _attainment_now(memory: Memory, pool: Pool, overdue: float) -> Reading:
    judged = missed(memory, pool, memory.ledger.last(WINDOW))
    requests = judged.requests + overdue
    if requests * (1.0 - pool.slo.attainment) < 1.0:
        return Unknown("too few requests in five minutes")
    return 1.0 - (judged.late + overdue) / requests


def _attainment(memory: Memory, overdue: float, now: float) -> Reading:
    """Of the last hour; `overdue` requests have waited for too long already, and are late whenever they begin."""
    # Bins go when a new one begins: while nothing is read none does.
    kept = of_last_hour(memory.kept_score, now)
    requests = sum(entry[1] for entry in kept) + overdue
    if requests <= 0.0:
        return Unknown("no request was judged in the last hour")
    return 1.0 - (sum(entry[2] for entry in kept) + overdue) / requests
