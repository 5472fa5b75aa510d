"""Status of a pool for people: built once a tick, and written if a change matters to a person.

In: a plan or a refusal, what was collected, how the orders ended. Out: a `Status` in the resource, and events.
`builder` (the entry), `conditions` (what each condition says, and each target), `missed` (the state of a missed SLO),
`report` (what is written), `write_rate` (how often, and whose first).
"""

from __future__ import annotations

from servingpool.status.builder import FIGURE_NAMES, build, told_bounds
from servingpool.status.conditions import judge_drain
from servingpool.status.report import Cause, Reporter

__all__ = [
    "FIGURE_NAMES",
    "Cause",
    "Reporter",
    "build",
    "judge_drain",
    "told_bounds",
]
