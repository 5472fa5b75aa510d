"""The memory of the engine model: records of engines, of places in a batch and of requests.

Records rather than objects, so that numba compiles what works on them; all times are seconds.
"""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from servingpool_simulation import page
from servingpool_simulation.conduct import Conduct
from servingpool_simulation.hardware import BLOCK_TOKENS, EngineProfile

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Records = Any
"""An array of records (np.recarray), or one of them; numpy's types cannot name the fields."""

NEVER = np.iinfo(np.int64).max
NOBODY = -1

UNSENT, WAITS, RUNS, FINISHED, TURNED_AWAY = range(5)
"""Values of a request's `status`. UNSENT: no engine has it."""

LIMITS = np.dtype(
    [
        ("decode_base", "f8"),
        ("decode_per_request", "f8"),
        ("decode_per_kv_token", "f8"),
        ("prefill_base", "f8"),
        ("prefill_per_token", "f8"),
        ("prefill_per_token_context", "f8"),
        ("host_overhead", "f8"),
        ("prefix_cache_hit_rate", "f8"),
        ("max_num_batched_tokens", "i8"),
        ("max_num_seqs", "i8"),
        ("max_model_len", "i8"),
        ("kv_blocks", "i8"),
        ("ttft_from_admission", "i8"),
        ("async_scheduling", "i8"),
        ("bend", "f8"),
        ("tokens_per_step", "i8"),
        ("pause_every", "f8"),
        ("pause_shortest", "f8"),
        ("pause_longest", "f8"),
        ("gauges_every", "f8"),
        ("gauges_every_steps", "i8"),
        ("ttft_from_handle", "i8"),
    ]
)
"""EngineProfile and its Conduct, field by field, as the kernel reads them."""
_OF_CONDUCT = {field.name for field in fields(Conduct)}

ENGINE = np.dtype(
    [
        # The plan: `steps` steps from `now` to `plan_end`, step k (from 0) of first_step + k * growth seconds.
        # plan_end is +Inf without one, or the arrival that an idle engine waits for.
        ("now", "f8"),
        ("plan_end", "f8"),
        ("scheduled_at", "f8"),  # when the batch of the plan's first step is put together
        ("first_step", "f8"),
        ("growth", "f8"),
        ("steps", "i8"),
        ("done", "i8"),  # steps of the plan that are in the books
        ("scrape_at", "f8"),  # when the page is to be copied, +Inf for never
        ("decoding", "i8"),  # requests in the first places of the batch
        ("prefilling", "i8"),  # requests in the places after them
        ("tick", "i8"),  # steps with decoding since the start, the clock of next_finish
        ("next_finish", "i8"),  # tick at which the next decoding request may be done, or earlier
        ("blocks", "i8"),  # KV blocks in use
        ("kv", "i8"),  # KV tokens of the decoding requests
        ("head", "i8"),  # of the waiting queue, a list linked through Request.next
        ("tail", "i8"),
        ("queued", "i8"),
        ("in_flight", "i8"),  # submitted and not finished
        ("slowness", "f8"),  # how many times as long as the profile's its steps are
        ("pause_at", "f8"),  # when the next pause begins; where the profile has pauses
        ("draw", "i8"),  # state of its random numbers, 1 to 2**31 - 2
        ("refresh_at", "f8"),  # when its gauges are set next, where that is every few seconds
        ("without_handle", "i8"),  # the first in the queue that is beyond max_num_seqs in flight
    ]
)

PLACE = np.dtype(
    [
        ("request", "i8"),
        ("mark", "i8"),  # decoding: the tick at which it finishes. Prefilling: tokens computed before this step
        ("share", "i8"),  # decoding: its KV tokens less the engine's tick. Prefilling: tokens of this step
    ]
)

REQUEST = np.dtype(
    [
        ("arrival", "f8"),  # when the user sent it
        ("received", "f8"),  # when an engine got it, later where it waited before the engines
        ("handled", "f8"),  # when fewer than max_num_seqs were in flight before it; NaN before, as in the next ones
        ("scheduled", "f8"),  # when it first ran
        ("first", "f8"),  # its first token
        ("last", "f8"),  # its last token before a preemption
        ("finished", "f8"),  # its last token, or when it was turned away
        ("prompt", "i8"),
        ("output", "i8"),  # tokens it will get; cut on submission to what max_model_len allows
        ("generated", "i8"),  # tokens it had when it was last preempted, or finished
        ("cached", "i8"),  # prompt tokens from the prefix cache
        ("preemptions", "i8"),
        ("status", "i8"),
        ("next", "i8"),  # who waits behind it
    ]
)


class State(NamedTuple):
    """Engines of one profile, a row each."""

    limits: Records
    """One record of LIMITS."""
    dense: Floats
    """[n]: seconds of a step of n tokens, but attention."""
    bounds: Floats
    """[histogram, bucket], as `page.bounds_matrix`."""
    engines: Records
    """[row] of ENGINE."""
    phase: Ints
    """[row, p]: decoding requests that take a further KV block in steps whose tick is p modulo the block size."""
    batch: Records
    """[row, place] of PLACE, in the order of admission."""
    page: Floats
    """[row, offset], see `page`."""
    scraped: Floats
    """The page at its last scrape."""


PER_ROW = ("engines", "phase", "batch", "page", "scraped")
"""The fields of State that grow with the fleet."""


def records(dtype: np.dtype[np.void], *shape: int) -> Records:
    """Zeroed records whose fields are attributes."""
    return np.zeros(shape, dtype).view(np.recarray)


def request_table(arrival: ArrayLike, prompt: ArrayLike, output: ArrayLike) -> Records:
    """Requests that no engine has yet. `arrival` in seconds, lengths in tokens."""
    table = records(REQUEST, np.size(arrival))
    table.arrival, table.prompt, table.output = arrival, prompt, output
    for name in ("received", "handled", "scheduled", "first", "last", "finished"):
        table[name] = math.nan
    table.next = NOBODY
    return table


def engine_rows(profile: EngineProfile, rows: int) -> State:
    """Room for `rows` engines of one profile; `start_engine` brings a row to life."""
    limits = records(LIMITS, 1)[0]
    for name in LIMITS.names or ():
        limits[name] = getattr(profile.conduct if name in _OF_CONDUCT else profile, name)
    return State(
        limits=limits,
        dense=profile.dense_table(),
        bounds=page.bounds_matrix(profile.max_model_len, profile.conduct.bounds),
        engines=records(ENGINE, rows),
        phase=np.zeros((rows, BLOCK_TOKENS), dtype=np.int64),
        batch=records(PLACE, rows, profile.max_num_seqs),
        page=np.zeros((rows, page.SIZE)),
        scraped=np.zeros((rows, page.SIZE)),
    )


def with_more_rows(state: State, more: State) -> State:
    """The rows of both, those of `state` first."""
    grown = {name: np.concatenate((getattr(state, name), getattr(more, name))) for name in PER_ROW}
    for name in ("engines", "batch"):
        grown[name] = grown[name].view(np.recarray)
    return state._replace(**grown)


def start_engine(state: State, row: int, at: float, *, slowness: float = 1.0, draw: int = 1) -> None:
    """An idle engine with an empty page in this row, whatever was there before.

    `slowness` is how many times as long its steps are as the profile's; `draw`, 1 to 2**31 - 2, is the seed of its
    pauses.
    """
    for name in ("engines", "phase", "page", "scraped"):
        getattr(state, name)[row] = np.zeros((), getattr(state, name).dtype)
    engine = state.engines[row]
    engine.now = at
    engine.plan_end = engine.scrape_at = math.inf
    engine.head = engine.tail = engine.without_handle = NOBODY
    engine.next_finish = NEVER
    engine.slowness = slowness
    engine.pause_at = engine.refresh_at = at
    engine.draw = draw
