"""The work of one engine between two scrapes, and the time of an engine step.

A continuous-batching engine does one step after another; a step decodes one token for each running request and may
carry prefill tokens of new ones. Its duration is close to

    step = a + b * (requests decoding) + c * (prefill tokens in the step)          [seconds]

Every output token takes one slot of one step and every prompt token is prefilled once, so a request costs
`b * output + c * prompt` replica-seconds on top of the steps that run anyway. Offered work over ready replicas is the
load; without queueing ITL = a / (1 - load).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Amount = TypeVar("Amount", float, NDArray[np.float64])

FASTEST_STEP = 1e-5
"""Seconds of the fastest step of any engine: a lower ITL is a damaged sample, and would drown the fit."""
LARGEST_BATCH = 1024.0
"""Requests, vLLM's largest default. Where a step takes as long with one request as with many, an output token still
costs this fraction of a step."""
LONGEST_PROMPT = 1e6
"""Tokens of a prompt, and prefill tokens of a step, at most; more is a damaged sample. vLLM's steps have 8,192."""
SHORT_ANSWER, STILL_SHORT = 5.0, 2.0
"""Output tokens of a request, on average, up to which an answer is short; and the factor on all bounds of short answers
once they taught the work: to learn anew takes minutes."""
ANOTHER_BATCH = 0.1
"""Relative difference from which on two batches are told apart."""
MOST_WORK, MOST_RATE = 1e6, 1e12
"""Replicas kept busy, and tokens/s or steps/s, of a pool: more is a damaged sample."""


class Rates(NamedTuple):
    """Demand, whatever engine serves it."""

    prompt: float = 0.0
    """Prompt tokens/s that are to be computed."""
    steps: float = 0.0
    """Decode steps/s: a step counts once for each request that it decodes."""


NO_DEMAND = Rates()


class Steps(NamedTuple):
    """Means over the steps of one replica in one interval."""

    itl: float
    """Seconds of a step."""
    decoding: float
    """Requests in the batch."""
    prefill: float
    """Prefill tokens in a step."""
    base: float = 1.0
    """1, or 0 where a request without a step to decode takes the place of a step: its time grows from no base."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """The three coefficients of a step's duration, and the tokens that a step yields."""

    base: float
    """a: seconds of a step with no work in it."""
    per_request: float
    """b: seconds per decoding request."""
    per_prefill_token: float
    """c: seconds per prefill token."""
    batch: float = math.inf
    """Requests that decode in a full batch; infinite where none is known to be full."""
    tokens: float = 1.0
    """Tokens that a step yields for each request: more than one with speculative decoding."""
    stretch: float = 1.0
    """Work of the usual request over its work without a limit on the batch."""

    def seconds(self, decoding: Amount, prefill_tokens: Amount, base: Amount | float = 1.0) -> Amount:
        """Duration of a step with so much in it. `base`: see `Steps`."""
        return self.base * base + self.per_request * decoding + self.per_prefill_token * prefill_tokens

    def work(self, prompt_tokens: Amount, steps: Amount) -> Amount:
        """Replica-seconds of prompt tokens and of steps that decode a request; of `Rates`, replicas kept busy."""
        decoding = max(self.per_request, self.base / LARGEST_BATCH) + self.base / self.batch
        return self.per_prefill_token * prompt_tokens + decoding * steps

    @property
    def between_tokens(self) -> float:
        """Seconds from one token to the next where there is no load."""
        return self.base / self.tokens

    def limited(self, *, batch: float, tokens: float, prompt_tokens: float, steps: float) -> StepTime:
        """The step time with this full batch and yield, for the usual request's prompt tokens and steps."""
        limited, without = replace(self, batch=batch, tokens=tokens), self.work(prompt_tokens, steps)
        return replace(limited, stretch=limited.work(prompt_tokens, steps) / without) if without > 0.0 else limited


LEAST_BATCH, MOST_BATCH = 0.05, 8192.0
"""Requests that decode in a full batch: below 1 where prefills fill the batch. More is a damaged sample."""


class Full(NamedTuple):
    """The work of one replica in an interval at both ends of which requests had waited for too long."""

    room: bool
    """Whether the batch was smaller than other batches, or grew: it may have had room in between."""
    seconds: float
    requests: float
    """Requests that got their first token."""
    tokens: float
    """Output tokens."""
    decoding: float
    """Requests in the batch that decoded, summed over the seconds."""


class Wait(NamedTuple):
    """Requests that one replica began to serve between two scrapes, with their wait."""

    requests: float
    begin: float
    """Seconds that the next request had waited at the first scrape, the wait at the gateway included."""
    end: float
    """Seconds that the next request had waited at the second scrape, the wait at the gateway included."""
    ttft: float
    """Mean TTFT of these requests in seconds, by the histogram."""
