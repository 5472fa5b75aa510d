"""Collect: each pool as Prometheus and the cluster show it.

In: pools, the cluster's cache, a backend. Out: `Collected`, which holds the core's `Observation`. Decides nothing.
`collected` (the entry), `targets` (what a pool scales), `readings` and `turns` (what each Prometheus says).
"""

from __future__ import annotations

from servingpool.reconcile.collect.collected import Collected, SeenStage, collect, own_samples
from servingpool.reconcile.collect.readings import Backend, Readings, requests_for, share_of, sound
from servingpool.reconcile.collect.targets import (
    Owners,
    SeenTarget,
    keys_of,
    of_role,
    owns,
    ratio_of,
    target_of,
    told_by_name,
)

__all__ = [
    "Backend",
    "Collected",
    "Owners",
    "Readings",
    "SeenStage",
    "SeenTarget",
    "collect",
    "keys_of",
    "of_role",
    "own_samples",
    "owns",
    "ratio_of",
    "requests_for",
    "share_of",
    "sound",
    "target_of",
    "told_by_name",
]
