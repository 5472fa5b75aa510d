"""The figures a person wants beside a decision, each with its window; Unknown where they cannot be told."""

from __future__ import annotations

import numpy as np

from servingpool.decision.assess import Assessment
from servingpool.decision.belief import horizon
from servingpool.decision.columns import GENERATED, PROMPTS
from servingpool.decision.decision import Figures
from servingpool.decision.demand import level_window
from servingpool.decision.learn import Lesson, of_last_hour
from servingpool.decision.ledger import READY, RUNNING, WAITING, Window
from servingpool.decision.memory import Memory
from servingpool.decision.observation import Observation
from servingpool.decision.pool import Pool
from servingpool.decision.unknown import Reading, Unknown
from servingpool.decision.witnesses import waiting_too_long


def measure(
    observation: Observation, memory: Memory, pool: Pool, lesson: Lesson, assessment: Assessment | Unknown, now: float
) -> Figures:
    """What was measured and weighed."""
    recent = memory.ledger.last(level_window(memory.interval))
    weighed = None if isinstance(assessment, Unknown) else assessment
    no_rate = assessment if isinstance(assessment, Unknown) else Unknown("no scrapes to take a rate from")
    known = lesson.demand
    overdue = waiting_too_long(observation, memory, pool.slo.time_to_first_token)
    return Figures(
        arrivals=no_rate if known is None else known.arrivals,
        generation_rate=_rate(recent, GENERATED, no_rate),
        prompt_rate=_rate(recent, PROMPTS, no_rate),
        queue=_gauge(recent, WAITING),
        running=_gauge(recent, RUNNING),
        time_to_first_token=memory.first_token_tail.at(pool.slo.attainment),
        time_per_output_token=memory.output_token_tail.at(pool.slo.attainment),
        attainment=_attainment(memory, overdue, now),
        load=no_rate if known is None or memory.ledger.rows[-1, READY] <= 0.0 else memory.ledger.load_of(known.level),
        safe_load=no_rate if weighed is None else _safe_load(weighed),
        forecast=no_rate if weighed is None else weighed.expected,
        horizon=horizon(memory, pool),
    )


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


def _attainment(memory: Memory, overdue: float, now: float) -> Reading:
    """Of the last hour; `overdue` requests have waited for too long already, and are late whenever they begin."""
    # Bins go when a new one begins: while nothing is read none does.
    kept = of_last_hour(memory.kept_score, now)
    requests = sum(entry[1] for entry in kept) + overdue
    if requests <= 0.0:
        return Unknown("no request was judged in the last hour")
    return 1.0 - (sum(entry[2] for entry in kept) + overdue) / requests
