"""Collect: each pool as Prometheus and the cluster show it.

In: pools, the cluster's cache, a backend. Out: `Collected`, which holds the core's `Observation`. Decides nothing.
`collected` (the entry), `targets` (what a pool scales), `readings` and `turns` (what each Prometheus says).
"""
