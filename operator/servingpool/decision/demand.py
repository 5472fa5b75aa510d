"""Offered work: what the requests that arrive cost, in replicas kept busy.

Demand is work, not requests: a 4,000-token prompt costs a hundred times a 40-token one. Work is counted in
replica-seconds per second, which is the number of replicas that it keeps fully busy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from servingpool.decision.columns import GENERATED, ITL_COUNT, QUEUED, REJECTED, TTFT_COUNT
from servingpool.decision.intake import LEVEL_SCRAPES
from servingpool.decision.ledger import GATEWAY, READY, RUNNING, SPAN, WAITING, WORK, Ledger, Window
from servingpool.decision.step_time import StepTime

LENGTHS_WINDOW = 600.0
USUAL_WINDOW = 600.0
LEVEL_WINDOW = 30.0
"""Half a minute: a whole one sees a step 15 s later (ramp 93.9% instead of 95.3% at the same fleet), a quarter is
noise that buys 6% more GPUs."""
IDLE_WINDOW = 1200.0
"""Seconds without a request after which a pool is idle. Without this rule a pool of min 1 that had missed its SLO in a
five-minute burst stood at 4 replicas for an hour without a request. At ten minutes on-off traffic, off for four
on average, attains 93.5 instead of 98.8% in one of three seeds."""
SURE = 0.9
"""Part of that time, and of its replica-seconds, that must have been seen."""
PROMPT_INERTIA = 30.0
"""Requests that the ten-minute mean prompt weighs against those of the level's window."""
MOST_WORK = 1e6
"""Replicas kept busy. What is more is a damaged page, or a damaged profile."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What arrives, over the last half minute (or two scrapes)."""

    arrivals: float
    """Requests/s."""
    prompt_tokens: float
    """Mean prompt tokens of a request that have to be computed."""
    steps: float
    """Mean steps that decode a request: its output tokens, fewer with speculative decoding."""
    work_per_request: float
    """Replica-seconds."""
    queued: float
    """Requests waiting."""

    @property
    def level(self) -> float:
        """Work in replicas kept busy."""
        return min(MOST_WORK, self.arrivals * self.work_per_request)


def level_window(interval: float) -> float:
    """Seconds over which the level is taken, where scrapes come every `interval`."""
    return max(LEVEL_WINDOW, LEVEL_SCRAPES * interval)


def measure(ledger: Ledger, step: StepTime, interval: float) -> Demand | None:
    """Demand from the ledger's last ticks; None where too little was covered to tell."""
    window = ledger.last(level_window(interval))
    served, queued, rejected = (window.rate(figure) for figure in (TTFT_COUNT, QUEUED, REJECTED))
    if served is None or queued is None or rejected is None:
        return None
    # The gateway's queue before the window's first tick is in the row before it.
    since = Window(ledger.rows[-len(window.rows) - 1 :])
    seconds = window.seconds if len(since.rows) > len(window.rows) else float(window.rows[1:, SPAN].sum())
    held = since.span_of(GATEWAY) / seconds if seconds > 0.0 else 0.0
    prompt, steps = lengths(ledger, interval)
    waiting = window.rows[-1, WAITING]
    return Demand(
        arrivals=max(0.0, served + queued + held + rejected),
        prompt_tokens=prompt,
        steps=steps,
        work_per_request=step.work(prompt, steps),
        queued=0.0 if np.isnan(waiting) else float(waiting),
    )


def lengths(ledger: Ledger, interval: float) -> tuple[float, float]:
    """Mean prompt tokens of a request, and steps that decode it.

    Both from ten minutes; the prompt leans towards the level's window, since prompt tokens are counted in the
    same instant as the request's first token, while decoding trails it by the request's whole life.
    """
    recent, longer = ledger.last(level_window(interval)), ledger.last(LENGTHS_WINDOW)
    requests = longer.first_tokens().total
    if requests <= 0.0:
        return 0.0, 0.0
    usual = longer.computed_prompts / requests
    count = recent.first_tokens().total
    prompt = (recent.computed_prompts + PROMPT_INERTIA * usual) / (count + PROMPT_INERTIA)
    return prompt, (longer.total(ITL_COUNT) + requests) / requests


def tokens_a_step(ledger: Ledger) -> float:
    """Tokens that a step yields for each request; at least 1."""
    window = ledger.last(LENGTHS_WINDOW)
    steps = window.total(ITL_COUNT) + window.first_tokens().total
    return max(1.0, window.total(GENERATED) / steps) if steps > 0.0 else 1.0


def idle(ledger: Ledger) -> bool:
    """Whether it is certain that no request came, waited or ran in that time."""
    window = ledger.last(IDLE_WINDOW)
    ready = float((window.rows[:, READY] * window.rows[:, SPAN]).sum())
    if window.seconds < SURE * IDLE_WINDOW or not 0.0 < SURE * ready <= window.covered:
        return False
    counted = sum(window.total(figure) for figure in (TTFT_COUNT, ITL_COUNT, GENERATED, REJECTED))
    return counted == 0.0 and window.highest(WAITING) == 0.0 and window.highest(RUNNING) == 0.0


def usual(ledger: Ledger) -> float:
    """Mean work level of the last ten minutes, in replicas kept busy."""
    work = ledger.last(USUAL_WINDOW).rows[:, WORK]
    work = work[~np.isnan(work)]
    return float(work.mean()) if len(work) else 0.0
