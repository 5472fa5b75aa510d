"""The decision core: pure functions of observation, pool, memory and `now`.

In: an `Observation`, a `Pool`, the `Memory` of the tick before, Unix time. Out: a `Decision` and the next memory.
`decide` calls `learn`, which calls `observe`; then `need`, `bound`, `allocate` and `explain`. Three are rooms, the
others are files. The list is the order of imports:

- what all share: `params` (the tunables), `pool` and `observation` (the input), `engine` (what one did, and its step),
  `increase` (what a counter rose by), `words` (figures in sentences), `zero` (what the gateway shows of a pool that may
  go to zero)
- `observe`: from samples to what happened; `learn`: from that to what is known, the memory
- `plan` (the raw need, and what it was weighed from), `figures` (a row for each), `decision` (the output's form),
  `roles` (prefill and decode: what each is asked for, and both as one answer)
- `need`: the cheapest fleet; `allocate`: its replicas of each target; `bound`: named limits, in order
- `explain`: figures and the sentence; `decide`: the entry
"""
