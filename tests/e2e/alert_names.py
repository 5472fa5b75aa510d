"""Where each of the chart's alerts is seen. tests/unit/catalogue compares the names with the catalogue, without a cluster."""

from __future__ import annotations

REFUSED, STUCK, NEVER, WRONG = "refused", "unschedulable", "never-ready", "wrong-model"
"""Namespaces of `test_conditions`, each with a Deployment, a model and a pool of its name."""
TOO_SMALL = "too-small"
"""A second pool on the stuck fleet, that may not want more than one replica."""
CAUSED = {
    "ServingPoolNotReady": {"namespace": REFUSED, "pool": REFUSED, "reason": "FailedUpdateScale"},
    "ServingPoolBlind": {"namespace": WRONG, "pool": WRONG, "reason": "NoSeriesForModel"},
    # Not those without a node: after five minutes ServingPoolNotReady covers them.
    "ServingPoolReplicasNotReady": {"namespace": NEVER, "pool": NEVER},
    "ServingPoolSloMissed": {"namespace": STUCK, "pool": STUCK},
    "ServingPoolHeldBelowNeed": {"namespace": STUCK, "pool": TOO_SMALL},
}
"""Alerts that `test_conditions` causes, and the labels by which each is known."""
NEVER_CAUSED = {"ServingPoolTurnFailed", "ServingPoolLoopLate", "ServingPoolWritesRefused"}
"""A defect of the operator, a loop that is 10 s late for minutes, and an API server that refuses its statuses: no
scenario makes any of them."""
ELSEWHERE = {
    "ServingPoolNoLeader": "tests/e2e/test_operator_loss.py",
    "ServingPoolTwoLeaders": "tests/e2e/test_operator_loss.py",
    "ServingPoolSharesWrong": "tests/chart/test_alerts.py",
    "ServingPoolSloBurnsFast": "tests/chart/test_burn_rates.py",
    "ServingPoolSloBurns": "tests/chart/test_burn_rates.py",
    "ServingPoolTargetNotDelivering": "tests/chart/test_alerts.py",
    "ServingPoolWaitsForGpus": "tests/chart/test_alerts.py",
    "ServingPoolDeadline": "tests/chart/test_alerts.py",
}
"""The file in which another test makes it fire."""
OF_SHARDS = {"ServingPoolSharesWrong"}
"""Alerts that a release with one leader does not have."""
