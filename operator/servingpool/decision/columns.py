"""Places of the figures that are counted, in a replica's page and in the sums over replicas."""

from __future__ import annotations

# Cumulative figures of one replica, as kept and as summed. Only raw ones: a reset is told by a counter that falls, and
# a derived figure falls when nothing was reset (an SLO bound that moved, cached tokens that ran ahead of prompts).
(TTFT_COUNT, TTFT_LOWER, TTFT_UPPER, TTFT_SUM, TPOT_COUNT, TPOT_LOWER, TPOT_UPPER) = range(7)
(ITL_SUM, ITL_COUNT, GENERATED, PROMPTS, CACHED, REJECTED) = range(7, 13)
(QUEUE_TIME_COUNT, QUEUE_TIME_LOWER, QUEUE_TIME_UPPER) = range(13, 16)
FIGURES = 16
NOTHING = (0.0,) * FIGURES
QUEUED = 16
"""Of the sums alone: what the engines' queues grew by, which may be negative. With what the same pages say was served,
it is what came."""
(WAITED, LATE_BY_QUEUE) = range(17, 19)
"""Only in the sums: seconds that the requests with a first token waited by the length of the queues (see `queueing`),
and how many of them were late with the histogram's TTFT added to that wait."""
FIELDS = 19
