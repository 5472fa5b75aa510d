"""The engine as the history shows it: what a step takes, how many requests fit, what the prefix cache spares."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from servingpool.decision.engine import FASTEST_STEP, LONGEST_PROMPT
from servingpool.decision.learn.step_time import NEARLY_FULL, NOISE, StepTimeFit
from servingpool.decision.observe.counters import LEAST_TOKENS
from servingpool.decision.params import DEFAULT
from servingpool.recording.format import RecordingError
from servingpool_backtest.intervals import Intervals
from servingpool_simulation.hardware import EngineProfile

LEAST_ROWS = 20
"""Intervals with a step time: five minutes of one replica."""
CALM = 0.25
"""Share of the intervals, the least busy ones, whose TTFT tells the speed of prefill."""
FULL_ROWS = 6
"""Intervals that began and ended with a queue, from which on the largest batch is the limit."""
USUAL_BATCH = 256
"""Requests in a full batch where the history does not show it: vLLM's default on most GPUs."""
STEP_TOKENS = 8192
"""Tokens in a step: vLLM's default on large GPUs."""
KV_TOKENS = 100_000_000
"""The KV cache's size is in no metric that is recorded, so it does not bind."""


@dataclass(frozen=True, slots=True)
class EngineFit:
    """One replica."""

    base: float
    """Seconds of a step with no work in it."""
    per_request: float
    """Seconds that each decoding request adds."""
    per_prefill_token: float
    """Seconds that each computed prompt token adds."""
    batch: int
    """Requests in a full batch."""
    batch_known: bool
    """The history shows full replicas."""
    cached: float
    """Share of prompt tokens that the prefix cache supplied."""
    tokens_per_step: int
    rows: int
    """Intervals that it rests on."""
    error: float
    """Root mean square of the relative error of an interval's mean step time."""
    most_decoding: float
    """Largest mean batch of an interval: beyond it the fit extrapolates."""

    def profile(self, name: str, gpus: int) -> EngineProfile:
        """For the simulator."""
        return EngineProfile(
            name=name,
            dense=((0, self.base), (1, self.base)),
            decode_base=0.0,
            decode_per_request=self.per_request,
            decode_per_kv_token=0.0,
            prefill_base=0.0,
            prefill_per_token=self.per_prefill_token,
            prefill_per_token_context=0.0,
            kv_tokens=KV_TOKENS,
            gpus=gpus,
            host_overhead=0.0,
            max_num_batched_tokens=max(STEP_TOKENS, self.batch * self.tokens_per_step),
            max_num_seqs=self.batch,
            prefix_cache_hit_rate=self.cached,
            tokens_per_step=self.tokens_per_step,
        )


def fit(intervals: Intervals) -> EngineFit:
    """Raises RecordingError where the history shows no step times."""
    count, spent, seconds = intervals.increase["itl_count"], intervals.increase["itl_sum"], intervals.seconds
    computed = np.maximum(0.0, intervals.increase["prompt"] - intervals.increase["cached"])
    with np.errstate(divide="ignore", invalid="ignore"):
        itl, decoding = spent / count, spent / seconds
        prefill = computed / seconds * itl
    good = (count >= LEAST_TOKENS) & (spent >= count * FASTEST_STEP) & (prefill <= LONGEST_PROMPT) & np.isfinite(itl)
    if good.sum() < LEAST_ROWS:
        raise RecordingError(
            f"shows {int(good.sum())} intervals with step times, {LEAST_ROWS} are needed: "
            "the engine was idle, or its inter-token latency is not in Prometheus"
        )
    itl, decoding, prefill = itl[good], decoding[good], prefill[good]
    rows = np.stack((np.ones(len(itl)), decoding, prefill)) / (NOISE * itl)
    # The core's own fit and prior, over the whole history at once.
    step = StepTimeFit(
        gram=tuple((rows @ rows.T).ravel().tolist()),
        moment=tuple((rows.sum(axis=1) / NOISE).tolist()),
        windows=float(len(itl)),
        scale=float(itl.mean()),
    ).solve(DEFAULT)
    assert step is not None
    prefill_cost = min(step.per_prefill_token, _by_first_tokens(intervals, step.base))
    predicted = step.base + step.per_request * decoding + step.per_prefill_token * prefill
    batch = _full_batch(intervals)
    prompts = float(intervals.increase["prompt"].sum())
    yields = float(intervals.increase["generated"].sum() / max(1.0, count.sum()))
    return EngineFit(
        base=step.base,
        per_request=step.per_request,
        per_prefill_token=prefill_cost,
        batch=batch or USUAL_BATCH,
        batch_known=batch is not None,
        cached=min(0.99, float(intervals.increase["cached"].sum()) / prompts) if prompts else 0.0,
        tokens_per_step=max(1, round(yields)),
        rows=len(itl),
        error=float(np.sqrt(np.mean((itl / predicted - 1.0) ** 2))),
        most_decoding=float(decoding.max()),
    )


def _by_first_tokens(intervals: Intervals, base: float) -> float:
    """Seconds that a prompt token adds at most, by TTFT where little runs: half a step of waiting, and the prefill.

    Step times tell it badly where prompts fill most steps and answers are short.
    """
    count = intervals.increase["ttft_count"]
    computed = np.maximum(0.0, intervals.increase["prompt"] - intervals.increase["cached"])
    alone = (count > 0) & (intervals.waited == 0) & (intervals.waiting == 0) & (computed > 0)
    if intervals.ttft_from_admission or alone.sum() < LEAST_ROWS:
        return np.inf
    busy = intervals.increase["itl_sum"] / intervals.seconds
    alone &= busy <= np.quantile(busy[alone], CALM)
    seconds = float(intervals.increase["ttft_sum"][alone].sum() / count[alone].sum()) - 1.5 * base
    return max(0.0, seconds) / float(computed[alone].sum() / count[alone].sum())


def _full_batch(intervals: Intervals) -> int | None:
    """Requests that ran while others waited; None where no replica was seen full for an interval."""
    most = float(intervals.running.max()) if len(intervals.running) else 0.0
    full = (intervals.waited > 0) & (intervals.waiting > 0) & (intervals.running >= NEARLY_FULL * most)
    return int(most) if most >= 1.0 and int(full.sum()) >= FULL_ROWS else None
