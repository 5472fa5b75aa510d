"""Need: from the learned memory to the raw need, the cheapest fleet one cold start ahead.

In: an `UpdateResult`, the pool, the `Frontier` of what may be had of its targets. Out: a `Plan`, or Unknown with the
reason; `AtZero` where no replica serves because there were to be none. Knows no bound but what may be had, and
min where replicas make up for lost capacity.
`planning` (the entry), `costs` (replicas and misses at their penalty), `mix` (which mix of targets has a capacity).
"""

from __future__ import annotations

from servingpool.decision.need.mix import BEYOND, Frontier, Mix, Offer, capacity, cheapest_mix, greatest, price
from servingpool.decision.need.planning import PENALTY_LASTS, at_zero, plan, remembered

__all__ = [
    "BEYOND",
    "PENALTY_LASTS",
    "Frontier",
    "Mix",
    "Offer",
    "at_zero",
    "capacity",
    "cheapest_mix",
    "greatest",
    "plan",
    "price",
    "remembered",
]
