"""GPUs that many pools share: who may order how much of each `GPUBudget`.

In: the plans of all pools, pods and objects of the cluster. Out: plans cut to their budgets, a check before each write,
the status of each budget. Pure: `sharing` (who gets what), `claims` (of each target), `holding` (what pods hold).
`budgets` (the entry), `members` (who shares which), `ledger` (what is held and ordered), `plans` (from plans to claims,
and from grants to plans), `report` (the status).
"""

from __future__ import annotations

from servingpool.gpubudget.budgets import Budgets, Shared
from servingpool.gpubudget.members import Groups, Subject, named_versions
from servingpool.gpubudget.report import BudgetReporter
from servingpool.gpubudget.sharing import Claim, share

__all__ = [
    "BudgetReporter",
    "Budgets",
    "Claim",
    "Groups",
    "Shared",
    "Subject",
    "named_versions",
    "share",
]
