"""Status of a pool for people: built once a tick, and written if a change matters to a person.

In: a plan or a refusal, what was collected, how the orders ended. Out: a `Status` in the resource, and events.
`builder` (the entry), `conditions` (what each condition says, and each target), `missed` (the state of a missed SLO),
`report` (what is written), `write_rate` (how often, and whose first).
"""
