"""Memory of the loop for each pool, between two ticks and over a restart.

In: plans and their outcomes. Out: `PoolState`, and the profile in the status. Only this room changes a state.
`state` (of a pool, and of all), `orders` (the ledger of our orders), `history` (last changes, and whether the operator
or a person set 0 replicas), `kept_memory` and `learned_profile` (what the core knows, in the status).
"""
