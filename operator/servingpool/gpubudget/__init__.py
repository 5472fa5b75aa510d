"""GPUs that many pools share: who may order how much of each `GPUBudget`.

In: the plans of all pools, pods and objects of the cluster. Out: plans cut to their budgets, a check before each write,
the status of each budget. Pure: `sharing` (who gets what), `claims` (of each target), `holding` (what pods hold).
`budgets` (the entry), `members` (who shares which), `ledger` (what is held and ordered), `plans` (from plans to claims,
and from grants to plans), `report` (the status).
"""
