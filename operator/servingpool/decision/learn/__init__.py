"""Learn: from the increases of one observation to the memory of the pool.

In: an observation, the pool and its `Memory`. Out: an `UpdateResult`: the next memory, the demand and the step time.
`updating` (the entry), `memory` (what is remembered); `step_time`, `kinds` (what a request costs, on each target),
`queue_in_ttft` (which histogram tells), `miss_curve` (which load breaks the SLO), `forecast` (what comes next),
`error_budget` (what may be missed), `ledger` (work with deadlines).
"""
