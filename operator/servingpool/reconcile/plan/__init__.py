"""Plan: the actions for a pool, and why.

In: `Collected`, what was learned before. Out: a `PoolPlan` with decision and orders, or a `Refusal`. Writes nothing.
`pool_plan` (the entry), `preconditions` (whether the pool may scale), `expense` (what its fleet costs).
"""
