"""Recorded traffic again, in another order: blocks of minutes drawn with replacement."""

from __future__ import annotations

import numpy as np

from servingpool_simulation.traces import Floats, Trace, azure2023_code, azure2024_conv_curve

MINUTE = 60.0


def resampled(trace: Trace, *, minutes: int, block: int = 10, seed: int = 0) -> Trace:
    """`minutes` minutes in blocks of `block` from random places of `trace`.

    A moving-block bootstrap (Kuensch 1989): what happens within a block, bursts and lulls, stays as recorded.
    """
    return _resampled(trace, np.ones(minutes), block, np.random.default_rng((seed, 9)), trace.name + ", resampled")


def code_day(day: int = 0, *, scale: float = 1.0, block: int = 10, seed: int = 0) -> Trace:
    """24 hours of code completion: Azure 2023 code's minutes, block by block, along day 0 to 6 of the 2024 curve.

    The curve is scaled to a mean of `scale` over its week, so that at 1 the week's mean rate is the recorded 2.6/s.
    Only an hour of code traffic was ever published with arrival times; its bursts are kept and the tide is added.
    """
    random = np.random.default_rng((seed, 10))
    shape = azure2024_conv_curve(day)[:, 0] / azure2024_conv_curve(0, 7)[:, 0].mean()
    return _resampled(azure2023_code(), scale * shape, block, random, "code-day")


def _resampled(trace: Trace, shape: Floats, block: int, random: np.random.Generator, name: str) -> Trace:
    """Each request of minute k comes shape[k] times on average; a second copy comes within a second of the first."""
    whole = int(trace.duration // MINUTE)
    if not 1 <= block <= whole:
        raise ValueError(f"block must be 1 to the {whole} whole minutes of {trace.name}, got {block}")
    bounds = np.searchsorted(trace.arrival, np.arange(whole + 1) * MINUTE)
    begins = random.integers(0, whole - block + 1, -(-len(shape) // block))
    source = (begins[:, None] + np.arange(block)).ravel()[: len(shape)]
    chosen: list[Floats] = []
    for minute, factor in zip(source, shape, strict=True):
        rows = np.arange(bounds[minute], bounds[minute + 1])
        times = int(factor) + (random.random(len(rows)) < factor % 1.0)
        chosen.append(np.repeat(rows, times))
    rows = np.concatenate(chosen)
    minute_of = np.repeat(np.arange(len(shape)), [len(part) for part in chosen])
    moved = minute_of * MINUTE + trace.arrival[rows] - source[minute_of] * MINUTE
    first = np.concatenate(([True], (rows[1:] != rows[:-1]) | (minute_of[1:] != minute_of[:-1])))[: len(rows)]
    moved += np.where(first, 0.0, random.random(len(rows)))
    duration = len(shape) * MINUTE
    order = np.argsort(np.minimum(moved, np.nextafter(duration, 0.0)), kind="stable")
    arrival = np.minimum(moved, np.nextafter(duration, 0.0))[order]
    return Trace(name, arrival, trace.prompt[rows][order], trace.output[rows][order], duration)
