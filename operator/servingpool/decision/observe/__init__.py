"""Observe: from samples to the increases since the last observation, and whether each figure is believed.

In: an `Observation`, each replica's last sample, the step time as known. Out: a `CounterDelta`, the `SampleWindow` of
twenty minutes with demand and lateness, an observation without gauges that nothing moves. Learns nothing.
`samples`, `counters`, `window` (what happened); `queueing`, `latency`, `lateness` (who was late); `plausible`, `gauges`
(what is not believed).
"""

from __future__ import annotations

from servingpool.decision.observe.counters import (
    LEAST_TOKENS,
    CounterDelta,
    EngineDelta,
    diff_counters,
)
from servingpool.decision.observe.gauges import (
    GatewayGauge,
    Standing,
    believed_queue,
    doubted_queue,
    standing_still,
    with_believed_queue,
)
from servingpool.decision.observe.latency import LatencyCount, Misses, Tail, late_share_by_mean
from servingpool.decision.observe.lateness import Lateness, Queues, Witness
from servingpool.decision.observe.plausible import FAR
from servingpool.decision.observe.queueing import Look, Queue, growth, looked
from servingpool.decision.observe.samples import (
    BEGUN,
    CACHED,
    GENERATED,
    ITL_COUNT,
    ITL_SUM,
    PROMPTS,
    REJECTED,
    TTFT_COUNT,
    TTFT_SUM,
    WAITED,
    Buckets,
    Sample,
)
from servingpool.decision.observe.window import (
    AT,
    COVERED,
    DEMAND,
    KEPT_SECONDS,
    MINUTE,
    NOTHING,
    OFFERED,
    READY,
    RUNNING,
    SEEN,
    SPAN,
    SUMS,
    WAITING,
    Demand,
    SampleWindow,
    Slice,
    rate_window,
    usual,
)

__all__ = [
    "AT",
    "BEGUN",
    "CACHED",
    "COVERED",
    "DEMAND",
    "FAR",
    "GENERATED",
    "ITL_COUNT",
    "ITL_SUM",
    "KEPT_SECONDS",
    "LEAST_TOKENS",
    "MINUTE",
    "NOTHING",
    "OFFERED",
    "PROMPTS",
    "READY",
    "REJECTED",
    "RUNNING",
    "SEEN",
    "SPAN",
    "SUMS",
    "TTFT_COUNT",
    "TTFT_SUM",
    "WAITED",
    "WAITING",
    "Buckets",
    "CounterDelta",
    "Demand",
    "EngineDelta",
    "GatewayGauge",
    "LatencyCount",
    "Lateness",
    "Look",
    "Misses",
    "Queue",
    "Queues",
    "Sample",
    "SampleWindow",
    "Slice",
    "Standing",
    "Tail",
    "Witness",
    "believed_queue",
    "diff_counters",
    "doubted_queue",
    "growth",
    "late_share_by_mean",
    "looked",
    "rate_window",
    "standing_still",
    "usual",
    "with_believed_queue",
]
