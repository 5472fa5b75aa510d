"""The decision core: pure functions of observation, pool, memory and `now`.

A map, in the order of a tick:

- input: `observation`, `pool`, `slo`, `bounds`, `params` (the tunables); output: `decision`; entry: `decide`; memory:
  `state`
- update: `update`; `increase` (of any counter), `samples`, `queueing`, `counters`, `window` (what happened);
  `latency_count`, `queue_in_ttft`, `lateness`, `percentile` (who was late); `step_time`, `short_answers`, `saturation`
  (what a request costs); `lost_caches` (whether that follows changes of replicas); `attribution`, `miss_curve`, `knee`
  (which load breaks the SLO); `cold_start`, `forecast` (what comes next); `budget` (what may be missed)
- what is not believed: `plausible`, `usual` (damaged figures), `standing`, `gateway_gauge` (gauges that nothing moves)
- gateway: `gateway_demand` (to zero and back)
- plan: `plan`, `costs` (the cheapest fleet); `queue_growth` (where the need is unknown)
- limit: `limits` (named rules, in order), `ordinals` (which replicas stay where the highest go first)
- targets: `targets`, `kinds` (the speed of each), `shortage` (what does not come), `counting` (in replicas of
  which one), `mix` (the cheapest one), `fleet` (from a capacity to replicas of each), `parts` (what is said of each)
- prefill and decode apart: `roles` (what each is asked for, and both as one answer)
- report: `report` (figures and the sentence)
- GPU budgets, after all pools are decided: `holding` (what pods hold), `course` (misses at each size), `claims`,
  `part_claims` (a claim for each of several targets), `worth` (of a replica), `sharing` (who gets what)
"""
