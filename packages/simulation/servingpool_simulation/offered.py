"""The work that a trace offers, in replicas kept busy: what only somebody who knows trace and hardware can tell."""

from __future__ import annotations

import numpy as np

from servingpool.decision.pool import Slo
from servingpool_simulation.hardware import EngineProfile
from servingpool_simulation.tables import Floats
from servingpool_simulation.traces import Trace

_BATCH = 64
"""Requests in a batch at which the cost of one more is taken: the step time is all but linear around it."""
_PAST_BOUND = 0.5
"""Share of the TPOT bound at which tokens come while the SLO is held: over how long a request's work is spread."""


def offered_load(trace: Trace, profile: EngineProfile, slo: Slo, every: float) -> Floats:
    """Replica-seconds of work a second, in bins of `every` seconds from the start of the trace.

    A step costs base + share * requests + prompt tokens * their price, so a request's own work is its prompt tokens'
    and its output tokens' part of the steps it is in; the base is not work, it is what batching shares.
    """
    dense = profile.dense_table()
    batch = min(_BATCH, len(dense) - 1)
    most = len(dense) - 1
    computed = trace.prompt * (1.0 - profile.prefix_cache_hit_rate)
    per_prompt_token = (dense[most] - dense[0]) / most + profile.prefill_per_token
    prompt = computed * (per_prompt_token + profile.prefill_per_token_context * computed / 2)
    context = trace.prompt + trace.output / 2
    per_output_token = (dense[batch] - dense[1]) / max(batch - 1, 1) + profile.decode_per_request
    output = trace.output * (per_output_token + profile.decode_per_kv_token * context)
    between = _PAST_BOUND * (slo.time_per_output_token or 4 * base_step(profile))
    bins = int(np.ceil(trace.duration / every))
    begins = trace.arrival / every
    lasts = np.maximum(trace.output * between / every, 1e-6)
    return _dropped(begins, prompt, bins) / every + _spread(begins, lasts, output, bins) / every


def base_step(profile: EngineProfile) -> float:
    """Seconds of a step with one decoding request: what no batch goes below."""
    return float(profile.dense_table()[1]) + profile.host_overhead + profile.decode_base + profile.decode_per_request


def _dropped(at: Floats, amount: Floats, bins: int) -> Floats:
    where = np.minimum(at.astype(np.int64), bins - 1)
    return np.bincount(where, weights=amount, minlength=bins).astype(np.float64)


def _spread(begins: Floats, lasts: Floats, amount: Floats, bins: int) -> Floats:
    """Each amount evenly over [begin, begin + lasts], in units of bins; what falls behind the end is left out."""
    # The amount done by time x is a sum of ramps, which two kinks each describe: slopes +r at begin, -r at the end.
    rate = amount / lasts
    edges = np.arange(bins + 1, dtype=np.float64)
    done = np.zeros(bins + 1)
    for sign, at in ((1.0, begins), (-1.0, begins + lasts)):
        order = np.argsort(at)
        kinks, slopes = at[order], sign * rate[order]
        passed = np.searchsorted(kinks, edges, side="right")
        slope = np.concatenate(([0.0], np.cumsum(slopes)))[passed]
        moment = np.concatenate(([0.0], np.cumsum(slopes * kinks)))[passed]
        done += slope * edges - moment
    return np.maximum(np.diff(done), 0.0)
