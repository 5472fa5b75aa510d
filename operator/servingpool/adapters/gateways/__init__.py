"""Gateways: their figures on the pools behind them, in place of figures that engines do not tell.

- `own_gateway`: which one, and what is asked of Prometheus for it
- `sample`, `totals`: a pod's figures of one model, and all pods together since the first reading
- `completed`: the whole observation, by `metered` (engines that export nothing) and `first_tokens` (engines that count
  no requests). The simulator calls it too.
"""
