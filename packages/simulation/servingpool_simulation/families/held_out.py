"""The family that is held out: the controller is never tuned on it, so it tells what the defaults are worth.

Whoever works on the controller should not read on.
"""

from __future__ import annotations

import numpy as np

from servingpool_simulation.families.arrivals import arrivals, seconds, wandering
from servingpool_simulation.families.lengths import LogNormal
from servingpool_simulation.hardware import engine_profile
from servingpool_simulation.traces import Floats, Ints, Trace

INSTRUCTIONS = LogNormal(median=9_000.0, spread=0.4, least=2_000, most=40_000)
"""Tokens of system prompt, tools and task that a session begins with."""
READ = LogNormal(median=900.0, spread=1.4, least=20, most=30_000)
"""Tokens that a tool's answer adds to the context."""
SAID = LogNormal(median=140.0, spread=0.9, least=8, most=6_000)
"""Tokens of a step: mostly a tool call."""
TOOL_MEDIAN, TOOL_SPREAD = 2.5, 1.3
"""Seconds that a tool takes, log-normal: most are file reads, some are builds."""
ENGINE = engine_profile("h200-70b-tp4", prefix_cache_hit_rate=0.9)
"""What it is served by: most of a context was there in the step before."""
OWN_SPEED = 0.025
"""Seconds a token that the agent waits for its own answer; as in an open loop, whatever the fleet does."""


def held_out(
    sessions: float,
    *,
    steps: float = 25.0,
    jobs_every: float = 1_200.0,
    job_sessions: int = 40,
    compact_at: int = 100_000,
    duration: float = 7_200.0,
    seed: int = 0,
) -> Trace:
    """Coding agents in loops: `sessions` a minute begin on average, each takes geometric(`steps`) steps.

    Every step sends the whole context, which grows by what the tool gave, until it is compacted at `compact_at`
    tokens; so a session's work per request rises while it runs, and a wave of starts is followed minutes later by a
    wave of long prompts. Starts wander (standard deviation 0.35, memory 15 minutes); scheduled jobs start up to
    `job_sessions` sessions within a minute, every `jobs_every` seconds on the clock. TraceLab (arXiv 2606.30560)
    describes such loops: long contexts, short outputs, heavy-tailed tool calls, high prefix cache hit rates; the
    engine profile supplies the last.
    """
    random = np.random.default_rng((seed, 11))
    # The sessions that run when the trace begins have begun before it.
    before = steps * 20.0
    rates = np.full(len(seconds(before + duration)), sessions / 60.0)
    rates *= wandering(random, before + duration, 0.35, 900.0)
    begins = [arrivals(random, rates) - before]
    for at in np.arange(random.uniform(0.0, jobs_every), duration, jobs_every):
        wave = int(random.integers(job_sessions // 2, job_sessions + 1))
        begins.append(at + random.exponential(20.0, wave))
    loops = [_session(random, float(begin), steps, compact_at) for begin in np.concatenate(begins)]
    arrival, prompt, output = (np.concatenate(column) for column in zip(*loops, strict=True))
    order = np.argsort(arrival, kind="stable")
    order = order[(arrival[order] >= 0.0) & (arrival[order] < duration)]
    return Trace("held out", arrival[order], prompt[order], output[order], duration)


def _session(random: np.random.Generator, begin: float, steps: float, compact_at: int) -> tuple[Floats, Ints, Ints]:
    """(arrival, prompt, output) of each step of one agent."""
    count = int(random.geometric(1.0 / steps))
    said, read = SAID.draw(random, count), READ.draw(random, count)
    waits = said * OWN_SPEED + TOOL_MEDIAN * np.exp(TOOL_SPREAD * random.standard_normal(count))
    arrival = begin + np.concatenate(([0.0], np.cumsum(waits[:-1])))
    start = int(INSTRUCTIONS.draw(random, 1)[0])
    prompt = np.empty(count, dtype=np.int64)
    context = start
    for step in range(count):
        prompt[step] = context
        context += int(said[step] + read[step])
        if context > compact_at:
            context = start + compact_at // 10
    return arrival, prompt, said
