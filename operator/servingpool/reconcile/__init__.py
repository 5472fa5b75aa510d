"""One loop over all pools: collect, plan, act, report.

In: the cluster as the cache shows it, what each Prometheus says. Out: orders, statuses, events, metrics.
Around it: `operator` (clock and election), `config`, `loop` (the steps in order), `shards` (which pools are ours where
several operators write), `metrics` (its own), `backfill` (history at the start), `act` (scale). Rooms, each with one
door: `collect` (what Prometheus and the cluster say), `plan` (what is to be done about a pool), `keep` (what the next
tick needs). Beside them `gpubudget` and `status`.
"""
