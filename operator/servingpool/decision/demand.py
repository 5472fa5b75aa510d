"""Offered work: what the requests that arrive cost, in replicas kept busy.

Demand is work, not requests: a 4,000-token prompt costs a hundred times a 40-token one. Work is counted in
replica-seconds per second, which is the number of replicas that it keeps fully busy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from servingpool.decision.intake import GENERATED, REJECTED
from servingpool.decision.ledger import AT, WAITING, WORK, Ledger, Window
from servingpool.decision.step_time import StepTime

LENGTHS_WINDOW = 600.0
LEVEL_WINDOW = 60.0
LEVEL_SCRAPES = 4.0
"""A rate over fewer than four scrapes swings with the phase of the scrape."""
PROMPT_INERTIA = 30.0
"""Requests that the ten-minute mean prompt weighs against the last minute's."""
TREND_TICKS = 8
"""Fewer ticks make a slope out of noise."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What arrives, over the last minute (or four scrapes)."""

    arrivals: float
    """Requests/s."""
    prompt_tokens: float
    """Mean prompt tokens of a request that have to be computed."""
    output_tokens: float
    """Mean output tokens of a request."""
    work_per_request: float
    """Replica-seconds."""
    queued: float
    """Requests waiting."""

    @property
    def level(self) -> float:
        """Work in replicas kept busy."""
        return self.arrivals * self.work_per_request


def measure(ledger: Ledger, step: StepTime, interval: float) -> Demand | None:
    """Demand from the ledger's last ticks; None where too little was covered to tell."""
    window = ledger.last(max(LEVEL_WINDOW, LEVEL_SCRAPES * interval))
    if window.covered <= 0.0:
        return None
    scale = window.ready / window.covered
    served = window.first_tokens().total * scale
    growth = window.span_of(WAITING) / window.seconds
    rejected = window.total(REJECTED) * scale
    prompt, output = _lengths(window, ledger.last(LENGTHS_WINDOW))
    waiting = window.rows[-1, WAITING]
    return Demand(
        arrivals=max(0.0, served + growth + rejected),
        prompt_tokens=prompt,
        output_tokens=output,
        work_per_request=step.work(prompt, output),
        queued=0.0 if np.isnan(waiting) else float(waiting),
    )


def _lengths(recent: Window, longer: Window) -> tuple[float, float]:
    """Mean prompt and output tokens of a request.

    Both from ten minutes; the prompt leans towards the last minute, since prompt tokens are counted in the
    same instant as the request's first token, while output tokens trail it by the request's whole life.
    """
    requests = longer.first_tokens().total
    if requests <= 0.0:
        return 0.0, 0.0
    usual = longer.computed_prompts / requests
    count = recent.first_tokens().total
    prompt = (recent.computed_prompts + PROMPT_INERTIA * usual) / (count + PROMPT_INERTIA)
    return prompt, longer.total(GENERATED) / requests


def trend(ledger: Ledger) -> float:
    """Slope of the work level over the last ten minutes, in replicas kept busy per second."""
    rows = ledger.last(LENGTHS_WINDOW).rows
    rows = rows[~np.isnan(rows[:, WORK])]
    if len(rows) < TREND_TICKS:
        return 0.0
    time, work = rows[:, AT] - rows[:, AT].mean(), rows[:, WORK]
    spread = float(time @ time)
    return float(time @ (work - work.mean())) / spread if spread > 0.0 else 0.0
