"""The loop over all pools, every few seconds.

In: the cluster as the cache shows it, what each Prometheus says. Out: orders, statuses, events, metrics.
`operator` (clock and election), `reconciler` (the steps of a tick, in order), `shards` (which pools are ours where
several operators write), `metrics` (of the loop and of each pool), `backfill` (history at the start). The steps are in
`reconcile`, `gpubudget` and `status`.
"""
