"""Need: from the learned memory to the raw need, the cheapest fleet one cold start ahead.

In: an `UpdateResult`, the pool, the `Frontier` of what may be had of its targets. Out: a `Plan`, or Unknown with the
reason; `Wanted` where no replica serves because there were to be none, and for work with deadlines. Knows no bound but
what may be had, and min where replicas make up for lost capacity.
`planning` and `throughput` (the entries: for latency, and for deadlines), `costs` (replicas and misses at their
penalty), `mix` (which mix of targets has a capacity), `anchor` (how much is ordered at once, and what only on trial).
"""
