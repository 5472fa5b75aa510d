"""The stages of one tick: collect, plan, act, keep. Each has one frozen result, and knows only those before it.

`config` (of the operator), `collect` (what Prometheus and the cluster say), `plan` (what is to be done about a pool),
`act` (scale), `keep` (what the next tick needs). `loop` calls them; `gpubudget` and `status` stand between.
"""
