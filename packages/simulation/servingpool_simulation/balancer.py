"""The load balancer: which ready replica gets a request, and all replicas' clocks in step."""

from __future__ import annotations

import numpy as np

from servingpool_simulation.compiled import compiled
from servingpool_simulation.kernel import advance, settle, submit
from servingpool_simulation.tables import NEVER, Ints, Records, State


@compiled
def catch_up(s: State, q: Records, row: int, until: float) -> None:
    """Advances to `until`, with the scrape that falls due on the way."""
    e = s.engines[row]
    if e.scrape_at <= until:
        settle(s, q, row, e.scrape_at)
        s.scraped[row] = s.page[row]
        e.scrape_at = np.inf
    advance(s, q, row, until)


@compiled
def settle_all(states: tuple[State, ...], q: Records, kinds: Ints, rows: Ints, until: float) -> None:
    """Brings several engines and their pages to `until`, with the scrapes that fall due on the way.

    `states` share their engines and differ in the step times; `kinds` has the place of each row's state.
    """
    for row in rows:
        s = states[kinds[row]]
        catch_up(s, q, row, until)
        settle(s, q, row, until)


@compiled
def least_loaded(states: tuple[State, ...], q: Records, kinds: Ints, ready: Ints, cursor: int, at: float) -> int:
    """Index in `ready` of the replica with fewest requests in flight at `at`; the first one from `cursor` on.

    A request counts the same on each kind, as gateways count.
    """
    engines = states[0].engines
    fewest = NEVER
    chosen = cursor
    for k in range(len(ready)):
        index = (cursor + k) % len(ready)
        row = ready[index]
        e = engines[row]
        if e.plan_end <= at or e.scrape_at <= at:
            catch_up(states[kinds[row]], q, row, at)
        if e.in_flight < fewest:
            fewest = e.in_flight
            chosen = index
    return chosen


@compiled
def serve(
    states: tuple[State, ...],
    q: Records,
    kinds: Ints,
    ready: Ints,
    by_load: bool,
    cursor: int,
    numbers: tuple[int, int],
    earliest: float,
) -> int:
    """Routes requests in order of arrival, but not before `earliest`, to the ready engines.

    From the first of `numbers` to before the second. By load, ties in turn from `cursor`; otherwise round robin.
    Returns the cursor for the next call.
    """
    for number in range(numbers[0], numbers[1]):
        at = max(q[number].arrival, earliest)
        chosen = cursor % len(ready)
        if by_load:
            chosen = least_loaded(states, q, kinds, ready, chosen, at)
        row = ready[chosen]
        s = states[kinds[row]]
        catch_up(s, q, row, at)
        submit(s, q, row, number, at)
        cursor = chosen + 1
    return cursor
