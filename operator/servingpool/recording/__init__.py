"""A workload's history, before a pool exists: recorded from Prometheus into a file, and the pool that it suggests."""
