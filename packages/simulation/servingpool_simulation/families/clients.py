"""A service with many clients, each with a day of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from servingpool_simulation.families.arrivals import STEP, arrivals, seconds
from servingpool_simulation.families.lengths import LogNormal
from servingpool_simulation.traces import DAY, Floats, Ints, Trace

NIGHT = 0.15
"""Share of its daytime sessions that a client has at its quietest hour."""


@dataclass(frozen=True, slots=True)
class Habits:
    """How clients come and go."""

    session: float = 900.0
    """Seconds that a session lasts on average."""
    pause: float = 1800.0
    """Seconds between two sessions at a client's best hour, on average."""
    best_hour: float = 14.0
    zones: float = 2.0
    """Standard deviation of the best hour between clients, in hours."""
    skew: float = 1.0
    """Standard deviation of the logarithm of a client's rate: at 1 the largest of 150 clients has 5% of the traffic."""


HABITS = Habits()


def clients_mix(
    clients: int,
    rate: float,
    prompt: LogNormal,
    output: LogNormal,
    *,
    duration: float = DAY,
    begin: float = 0.0,
    habits: Habits = HABITS,
    seed: int = 0,
) -> Trace:
    """`clients` clients with sessions on and off, `rate` requests/s in all on the day's average.

    Each client has its own best hour (normal), its own rate while a session lasts (log-normal), its own median prompt
    and answer; sessions and pauses are exponential, and pauses are longer by night. `begin` is the second of the day
    at which the trace begins.
    So the sum has a slow diurnal wave, noise of minutes from the few large clients, and a length mix that changes
    as clients come and go. ServeGen (arXiv 2505.09999) composes production traffic so, and finds that a few top
    clients make most of its swings.
    """
    random = np.random.default_rng((seed, 4))
    at = seconds(duration)
    # Drawn before anything that depends on the duration: a client is the same person in a longer trace.
    best = random.normal(habits.best_hour, habits.zones, clients)
    weight = np.exp(habits.skew * random.standard_normal(clients))
    prompts, outputs = (_own(kind, random.standard_normal(clients)) for kind in (prompt, output))
    busiest = rate * weight / weight.sum() / _active_share(habits)
    came: list[Floats] = []
    lengths: list[tuple[Ints, Ints]] = []
    for who in range(clients):
        on = _sessions(random, _awake((begin + at) / 3600.0 - best[who]), habits)
        came.append(arrivals(random, on * busiest[who]))
        size = len(came[-1])
        lengths.append((prompts[who].draw(random, size), outputs[who].draw(random, size)))
    times = np.concatenate(came)
    order = np.argsort(times, kind="stable")
    prompt_tokens, output_tokens = (np.concatenate(column)[order] for column in zip(*lengths, strict=True))
    return Trace(f"{clients} clients", times[order], prompt_tokens, output_tokens, duration)


def _own(kind: LogNormal, normal: Floats) -> list[LogNormal]:
    """Each client's own lengths: medians spread by half a unit of the logarithm around the one of all."""
    medians = np.clip(kind.median * np.exp(0.5 * normal), kind.least, kind.most)
    return [replace(kind, median=median) for median in medians.tolist()]


def _awake(hours: Floats) -> Floats:
    """Activity at so many hours from a client's best hour: 1 there, NIGHT twelve hours off."""
    return NIGHT + (1.0 - NIGHT) * (0.5 + 0.5 * np.cos(hours / 12.0 * np.pi))


def _active_share(habits: Habits) -> float:
    """Mean share of a day that a client is in a session: the mean of on / (on + off) over the day's activity."""
    awake = _awake(np.linspace(-12.0, 12.0, 241))
    return float(np.mean(habits.session / (habits.session + habits.pause / awake)))


def _sessions(random: np.random.Generator, awake: Floats, habits: Habits) -> Floats:
    """1 where a session is under way, else 0; one place a second."""
    on = np.zeros(len(awake))
    at = 0.0
    busy = random.random() < habits.session / (habits.session + habits.pause / awake[0])
    while at < len(on) * STEP:
        place = int(at / STEP)
        lasts = random.exponential(habits.session if busy else habits.pause / awake[place])
        if busy:
            on[place : int((at + lasts) / STEP) + 1] = 1.0
        at += lasts
        busy = not busy
    return on
