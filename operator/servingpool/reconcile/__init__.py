"""One loop over all pools: collect, decide, act, report.

A map, in the order of a tick:

- around it: `operator` (ticks and election), `steady_clock`, `config`, `rounds` (backends in parallel), `loop`,
  `metrics` (its own)
- start: `backfill` (history from Prometheus), `learned_profile` (what the status keeps)
- collect: `collect`, `targets`, `stages` (prefill and decode, or one), `replicas` (from the cluster); `readings`,
  `turns` (from Prometheus)
- decide: `pool_plan`, `preconditions` (whether it may scale), `expense`
- GPU budgets: `budgets`, `budget_members`, `holdings`, `budget_claims`, `budget_cuts`, `budget_report`
- act: `act`, `deletion_cost` (which pods go)
- keep: `state` (of a pool), `pool_states` (of all), `kept_memory` (what the core knows), `orders` (the ledger of
  our own orders, and who else scales a target), `history` (of the replicas, as the status keeps it)
- report: `report`, `status_builder`, `decision_status`; conditions: `metrics_condition`, `limited_condition`,
  `target_status`, `draining`, `zero_ready`, `objects_condition`;
  `estimating` (how exact the attainment is)
"""
