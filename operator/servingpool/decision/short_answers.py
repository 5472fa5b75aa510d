"""Whether requests ask for so few tokens that steps tell little of their work, and the prompt's latency does.

A request of 6,000 prompt tokens and an answer of two decodes one token, in the very step that the prompts share which
came during its own. Steps seen like that read the prompt's cost as up to twice what it is, and forty such requests in
a scrape decode too few tokens to tell at all: the load was unknown for ever while 17,172 requests waited. By Little's
law (`counters.mean_prefill`) the time that such a request spends in the engine tells its work whatever the load.
"""

from __future__ import annotations

from typing import NamedTuple

from servingpool.decision.params import Params
from servingpool.decision.samples import GENERATED, ITL_SUM, TTFT_SUM
from servingpool.decision.step_time import StepTimeFit
from servingpool.decision.window import SampleWindow

MOST_TOKENS = 5.0
"""Output tokens of a request, on average, up to which an answer is short."""
LEAVING = 2.0
"""Ratio by which both bounds are wider once requests taught the work: to learn anew takes minutes."""


class ShortAnswers(NamedTuple):
    """What the last ten minutes say of the answers."""

    short: bool = False
    """So few tokens each that a request without a step to learn from may tell its work by its time in the engine."""
    by_prompt: bool = False
    """And most of that time is the prompt's: it tells more than steps do."""


def short_answers(window: SampleWindow, fit: StepTimeFit, params: Params) -> ShortAnswers:
    """Of the requests in the window. Without any, nothing is said of them."""
    mean = window.last(params.mean_window)
    requests = mean.first_tokens.total
    wider = LEAVING if fit.windows and not fit.decodes else 1.0
    if requests <= 0.0 or mean.total(GENERATED) > wider * MOST_TOKENS * requests:
        return ShortAnswers()
    return ShortAnswers(short=True, by_prompt=mean.total(ITL_SUM) <= wider * mean.total(TTFT_SUM))
