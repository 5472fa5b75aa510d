"""The families with the parameters that the catalogue uses, as functions of a seed."""

from __future__ import annotations

from collections.abc import Callable

from servingpool_simulation.families.clients import clients_mix
from servingpool_simulation.families.correlated import correlated_lengths
from servingpool_simulation.families.held_out import held_out
from servingpool_simulation.families.large import conv_hours
from servingpool_simulation.families.lengths import LogNormal, like
from servingpool_simulation.families.long_prompts import long_prompts
from servingpool_simulation.families.on_off import on_off
from servingpool_simulation.families.reasoning import reasoning
from servingpool_simulation.families.regimes import regimes
from servingpool_simulation.families.renewal import renewal
from servingpool_simulation.families.resampled import code_day, resampled
from servingpool_simulation.families.stops import stops
from servingpool_simulation.traces import (
    DAY,
    Trace,
    azure2023_code,
    azure2023_conv,
    azure2024_conv_reconstructed,
    llmd_ramp,
)

Scene = Callable[[int], Trace]
"""Traffic by seed."""

CHAT_PROMPT = LogNormal(median=700.0, spread=1.0, least=8, most=16_000)
CHAT_ANSWER = LogNormal(median=150.0, spread=0.8, least=1, most=4_000)
DOCUMENT = LogNormal(median=1_500.0, spread=1.0, least=16, most=120_000)
CLUMPED_PROMPT = LogNormal(median=1_500.0, spread=1.0, least=16, most=32_000)
LONG_ANSWER = LogNormal(median=200.0, spread=0.8, least=1, most=4_000)

MONDAY, TUESDAY = 1, 2
"""Days of the 2024 curve, which begins on a quiet Sunday."""
CODE_SCALE = 0.75
"""At which the code-day's mean on the TUESDAY is the recorded 2.6 requests/s."""
PAST_MINUTES = 120
"""As far back as the operator asks Prometheus by default."""
OTHER = 1_000
"""Added to the seed for a past that is another draw of the same kind."""


def another(scene: Scene) -> Scene:
    """The same kind of traffic, drawn anew."""
    return lambda seed: scene(seed + OTHER)


def ramp(seed: int) -> Trace:
    """llm-d's own steps."""
    return llmd_ramp(seed=seed)


def conv(_: int) -> Trace:
    """As recorded, whatever the seed."""
    return azure2023_conv()


def code(_: int) -> Trace:
    """As recorded, whatever the seed."""
    return azure2023_code()


def conv_before(seed: int) -> Trace:
    """Two hours of the same hour's blocks of ten minutes, drawn anew: how large its bursts are is told, not when."""
    return resampled(azure2023_conv(), minutes=PAST_MINUTES, seed=seed)


def code_before(seed: int) -> Trace:
    """As `conv_before`."""
    return resampled(azure2023_code(), minutes=PAST_MINUTES, seed=seed)


def code_tuesday(seed: int) -> Trace:
    """A day of code completion."""
    return code_day(TUESDAY, scale=CODE_SCALE, seed=seed)


def code_monday(seed: int) -> Trace:
    """The day before."""
    return code_day(MONDAY, scale=CODE_SCALE, seed=seed + OTHER)


def conv_tuesday(seed: int) -> Trace:
    """A day of conversation at full rate: 4.8 million requests."""
    return azure2024_conv_reconstructed(TUESDAY, seed=seed)


def conv_monday(seed: int) -> Trace:
    """The day before."""
    return azure2024_conv_reconstructed(MONDAY, seed=seed + OTHER)


def _clients(seed: int) -> Trace:
    return clients_mix(150, 8.0, CHAT_PROMPT, CHAT_ANSWER, duration=2 * DAY, seed=seed)


def clients_today(seed: int) -> Trace:
    """150 clients, 8 requests/s on average."""
    return _clients(seed).between(DAY, 2 * DAY)


def clients_yesterday(seed: int) -> Trace:
    """The same clients the day before."""
    return _clients(seed).between(0.0, DAY)


def bursty(cv: float) -> Scene:
    """10 chats/s in gaps of coefficient of variation `cv`, two hours."""
    return lambda seed: renewal(10.0, cv, like(azure2023_conv()), drift=0.3, duration=7_200.0, seed=seed)


def switching(seed: int) -> Trace:
    """4 to 40 chats/s, eight minutes at a time, two hours."""
    return regimes((4.0, 10.0, 22.0, 40.0), 480.0, like(azure2023_conv()), seed=seed)


def coding(seed: int) -> Trace:
    """12 completions/s for 45 s every 285 s on average, two hours."""
    return on_off(12.0, 45.0, 240.0, like(azure2023_code()), seed=seed)


def reading(seed: int) -> Trace:
    """5 requests/s, one in 25 a document of 12k to 120k tokens, two hours."""
    return long_prompts(5.0, DOCUMENT, LONG_ANSWER, seed=seed)


def clumps(seed: int) -> Trace:
    """6 requests/s whose lengths come in clumps of minutes, two hours."""
    return correlated_lengths(6.0, CLUMPED_PROMPT, LONG_ANSWER, seed=seed)


def thinking(seed: int) -> Trace:
    """2 questions/s to a reasoning model, two hours."""
    return reasoning(2.0, seed=seed)


def stopping(seed: int) -> Trace:
    """12 chats/s for 45 minutes, nothing for two hours, 12 chats/s for 45 minutes."""
    return stops(renewal(12.0, 1.5, like(azure2023_conv()), duration=5_400.0, seed=seed), at=2_700.0, pause=7_200.0)


def unseen(seed: int) -> Trace:
    """What the controller is never tuned on."""
    return held_out(6.0, seed=seed)


def conv_at(scale: float) -> Scene:
    """From 7 to 8 o'clock, when the rate rises by a third."""
    return lambda seed: conv_hours(scale, day=TUESDAY, begin=7, seed=seed)


def conv_before_at(scale: float) -> Scene:
    """The hour before."""
    return lambda seed: conv_hours(scale, day=TUESDAY, begin=6, seed=seed + OTHER)
