"""Columns of figures: of a replica's sample, of the sums of an interval, and of a row of the window.

Each has the columns of the one before, and some more.
"""

from __future__ import annotations

from enum import IntEnum

Column = IntEnum(
    "Column",
    "TTFT_COUNT TTFT_LOWER TTFT_UPPER TTFT_SUM TTFT_QUICK TPOT_COUNT TPOT_LOWER TPOT_UPPER "
    "ITL_SUM ITL_COUNT GENERATED PROMPTS CACHED REJECTED BEGUN "
    "QUEUED WAITED LATE_BY_QUEUE CLIENT_COUNT CLIENT_LOWER CLIENT_UPPER "
    "SPAN COVERED AT READY WAITING GATEWAY RUNNING JUDGED LATE PROMPT_RATE STEP_RATE OFFERED_PROMPTS OFFERED_STEPS",
    start=0,
)
"""A sample: raw figures only. A counter reset shows as a counter that falls, and a derived figure falls without one.
TTFT_QUICK is the seconds that requests up to TTFT_LOWER took at most, by the buckets that are read.

Sums: growth of the engines' queues in requests; seconds that requests with a first token waited by the queues' length;
late requests by that wait plus the histogram's TTFT; the client's TTFT, as the gateway counts it.

A row: how long the tick was, and the replica-seconds that were covered; when; the fleet then; gauges; the verdict;
`engine.Rates` of demand without and with a queue.
"""
FIGURES, SUMS = Column.QUEUED, Column.SPAN
"""Number of columns of a sample, and of the sums of an interval."""
WORK = (Column.BEGUN, Column.ITL_COUNT, Column.GENERATED)
"""Figures one of which rises whenever an engine works."""
DEMAND, OFFERED = slice(Column.PROMPT_RATE, Column.OFFERED_PROMPTS), slice(Column.OFFERED_PROMPTS, len(Column))
"""Rates in a row of the window, without and with the queue."""
