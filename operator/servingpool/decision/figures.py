"""The figures a person wants beside a decision, each with its window; Unknown where they cannot be told."""

from __future__ import annotations

import numpy as np

from servingpool.decision.assess import Assessment
from servingpool.decision.belief import horizon, told
from servingpool.decision.decision import Figures
from servingpool.decision.demand import level_window
from servingpool.decision.intake import GENERATED, PROMPTS
from servingpool.decision.learn import SCORE_KEPT, Lesson
from servingpool.decision.ledger import READY, RUNNING, WAITING, Window
from servingpool.decision.memory import Memory
from servingpool.decision.pool import Pool
from servingpool.decision.unknown import Reading, Unknown


def measure(memory: Memory, pool: Pool, lesson: Lesson, assessment: Assessment | Unknown) -> Figures:
    """What was measured and weighed."""
    recent = memory.ledger.last(level_window(memory.interval))
    weighed = None if isinstance(assessment, Unknown) else assessment
    no_rate = assessment if isinstance(assessment, Unknown) else Unknown("no scrapes to take a rate from")
    known = lesson.demand
    return Figures(
        arrivals=no_rate if known is None else known.arrivals,
        generation_rate=_rate(recent, GENERATED, no_rate),
        prompt_rate=_rate(recent, PROMPTS, no_rate),
        queue=_gauge(recent, WAITING),
        running=_gauge(recent, RUNNING),
        time_to_first_token=memory.first_token_tail.at(pool.slo.attainment),
        time_per_output_token=memory.output_token_tail.at(pool.slo.attainment),
        attainment=_attainment(memory),
        load=no_rate if known is None or memory.ledger.rows[-1, READY] <= 0.0 else memory.ledger.load_of(known.level),
        safe_load=no_rate if weighed is None else _safe_load(memory, weighed, pool),
        forecast=no_rate if weighed is None else weighed.expected,
        horizon=horizon(memory, pool),
    )


def _safe_load(memory: Memory, weighed: Assessment, pool: Pool) -> Reading:
    allowed = 1.0 - pool.slo.attainment
    if weighed.curve.floor > allowed:
        some = "more requests miss than may, at any load"
        return Unknown(some if told(memory, allowed) else "too few requests were seen to tell")
    return weighed.curve.load_for(weighed.allowance)


def _rate(window: Window, column: int, otherwise: Unknown) -> Reading:
    rate = window.rate(column)
    return otherwise if rate is None else rate


def _gauge(window: Window, column: int) -> Reading:
    value = window.rows[-1, column] if len(window.rows) else np.nan
    return Unknown("not read at the last look") if np.isnan(value) else float(value)


def _attainment(memory: Memory) -> Reading:
    now = memory.at if memory.at is not None else -np.inf
    # Bins go when a new one begins: while nothing is read none does.
    kept = [(requests, late) for start, requests, late in memory.kept_score if start > now - SCORE_KEPT]
    judged = sum(requests for requests, _ in kept)
    if judged <= 0.0:
        return Unknown("no request was judged in the last hour")
    return 1.0 - sum(late for _, late in kept) / judged
