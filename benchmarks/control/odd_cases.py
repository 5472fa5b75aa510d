"""Engines that are unlike the step-time model, as cases beside the catalogue.

Each is found at 3 replicas with nothing known, and asks for 95%. The SLO counts what users experience, whatever the
engine's page leaves out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scenes
from cases import A100_70B, H100_70B, H200_70B, Case, Kind

from servingpool.decision.pool import Slo
from servingpool_simulation.families.lengths import LogNormal, independent
from servingpool_simulation.families.regimes import regimes
from servingpool_simulation.families.renewal import renewal
from servingpool_simulation.fleet import Routing
from servingpool_simulation.hardware import EngineProfile, flat_profile
from servingpool_simulation.scrape import ScrapeOptions
from servingpool_simulation.traces import Trace, poisson

FOUND_AT = 3
"""Replicas that are there at the start."""
CHAT, RAMP, LONG = Slo(2.0, 0.15), Slo(4.0, 0.1), Slo(3.0, 0.15)
STEP_AT = 1_200.0
"""Seconds at which the load of the step-up cases rises."""
PROMPT = LogNormal(median=10_600.0, spread=0.5, least=500, most=30_000)
"""A mean of 12,000 tokens."""
DOCUMENT = LogNormal(median=8_000.0, spread=0.9, least=100, most=126_000)
SUMMARY = LogNormal(median=150.0, spread=0.7, least=1, most=1_000)
ARCHIVE = LogNormal(median=5_000.0, spread=1.35, least=100, most=126_000)
"""Means of 12,000 tokens."""
ANSWER = LogNormal(median=300.0, spread=0.8, least=1, most=4_000)

PLAIN = ScrapeOptions()
QUIRKS = ScrapeOptions(absent_until_used=True)


@dataclass(frozen=True, slots=True)
class OddCase:
    """A case and what its engines show."""

    case: Case
    group: str
    """What is odd."""
    scrape: ScrapeOptions = PLAIN
    half_speed: tuple[int, ...] = ()
    routing: Routing = Routing.LEAST_LOADED
    step_at: float | None = None
    """When the load rises at once, in seconds of the trace; the first order is timed from there."""


def long_ramp(seed: int) -> Trace:
    """The steps of the load ramp, with prompts of 12,000 tokens on average."""
    ramp, random = scenes.ramp(seed), np.random.default_rng((seed, 19))
    lengths = (PROMPT.draw(random, len(ramp)), ANSWER.draw(random, len(ramp)))
    return Trace("ramp of long prompts", ramp.arrival, *lengths, ramp.duration)


def long_regimes(seed: int) -> Trace:
    """1 to 11.5 requests/s with prompts of 12,000 tokens on average, eight minutes at a time, 90 minutes."""
    return regimes((1.0, 3.0, 6.5, 11.5), 480.0, independent(PROMPT, ANSWER), duration=5_400.0, seed=seed)


def documents(seed: int) -> Trace:
    """7 requests/s for an hour with prompts of 12,000 tokens on average, the longest 126,000."""
    lengths = independent(DOCUMENT, SUMMARY)
    return renewal(7.0, 1.0, lengths, drift=0.1, duration=3_600.0, seed=seed)


def more_documents(seed: int) -> Trace:
    """9 requests/s of them."""
    return renewal(9.0, 1.0, independent(DOCUMENT, SUMMARY), drift=0.1, duration=3_600.0, seed=seed)


def archives(seed: int) -> Trace:
    """8 requests/s for an hour; half of the tokens are of one prompt in twelve."""
    return renewal(8.0, 1.0, independent(ARCHIVE, ANSWER), duration=3_600.0, seed=seed)


def busy_chats(seed: int) -> Trace:
    """8, 11 or 14 conversations/s, ten minutes at a time, for an hour."""
    lengths = independent(scenes.CHAT_PROMPT, scenes.CHAT_ANSWER)
    return regimes((8.0, 11.0, 14.0), 600.0, lengths, duration=3_600.0, seed=seed)


def step_up(seed: int) -> Trace:
    """1 request/s, then 8: twice what 3 replicas of 8 sequences carry at 60 ms a step."""
    return poisson("step up", [1.0, 8.0], STEP_AT, prompt=500, output=100, seed=seed)


def _chat(slug: str, title: str, profile: EngineProfile, most: int) -> Case:
    return Case(slug, title, Kind.BURST, scenes.conv, profile, CHAT, most, None)


def _a100(**odd: Any) -> EngineProfile:
    return replace(A100_70B, **odd)


FROM_ADMISSION = "TTFT from admission"
COUNTED = "capped, the queue counted"
OTHER = "other"
STEP = "step up"
BELIEF = "not to be known at first"

_ADMITTED = (
    _chat("admitted-8", "conversations, cap 8", _a100(max_num_seqs=8, ttft_from_admission=True), 20),
    Case(
        "admitted-ramp-32",
        "load ramp, cap 32",
        Kind.BURST,
        scenes.ramp,
        replace(H100_70B, max_num_seqs=32, ttft_from_admission=True),
        RAMP,
        28,
        None,
    ),
    *(
        Case(
            slug,
            f"prompts of 12,000 tokens, {shape}",
            Kind.BURST,
            scene,
            replace(H100_70B, max_num_batched_tokens=2048, ttft_from_admission=True),
            LONG,
            44,
            None,
        )
        for slug, shape, scene in (
            ("admitted-long", "load ramp", long_ramp),
            ("admitted-long-regimes", "load in regimes", long_regimes),
        )
    ),
    _chat("admitted-256", "conversations, cap 256", _a100(ttft_from_admission=True), 16),
    Case(
        "admitted-ramp-64",
        "load ramp, cap 64",
        Kind.BURST,
        scenes.ramp,
        _a100(max_num_seqs=64, ttft_from_admission=True),
        Slo(4.0, 0.15),
        40,
        None,
    ),
)
_CAPPED = (
    *(
        _chat(f"capped-{cap}", f"conversations, cap {cap}", _a100(max_num_seqs=cap), most)
        for cap, most in ((4, 40), (8, 20), (16, 16))
    ),
    *(
        _chat(f"flat-{cap}", f"conversations, cap {cap}, every step 60 ms", flat_profile(0.06, max_num_seqs=cap), most)
        for cap, most in ((4, 56), (8, 28), (16, 16))
    ),
)
_STEPS = tuple(
    Case(
        f"step-{word}",
        f"step up, cap 8, every step 60 ms, TTFT from {word}",
        Kind.BURST,
        step_up,
        flat_profile(0.06, max_num_seqs=8, ttft_from_admission=word == "admission"),
        CHAT,
        24,
        None,
    )
    for word in ("admission", "arrival")
)
_BELIEFS = (
    Case(
        "documents",
        "prompts of 12,000 tokens, up to 126,000",
        Kind.BURST,
        documents,
        H200_70B,
        Slo(4.5, 0.15),
        40,
        None,
    ),
    Case(
        "documents-many",
        "the same, more of them, where the KV cache never binds",
        Kind.BURST,
        more_documents,
        replace(H100_70B, kv_tokens=4_000_000),
        Slo(4.5, 0.15),
        40,
        None,
    ),
    Case(
        "archives",
        "prompts of 12,000 tokens, up to 126,000, heavier tail",
        Kind.BURST,
        archives,
        H100_70B,
        Slo(8.0, 0.15),
        40,
        None,
    ),
    Case(
        "bend-conv",
        "conversations, the step bends at 24 of 48",
        Kind.BURST,
        busy_chats,
        _a100(max_num_seqs=48, bend=4.0),
        Slo(2.0, 0.1),
        32,
        None,
    ),
    Case(
        "bend-ramp",
        "load ramp, the step bends at 32 of 64",
        Kind.BURST,
        scenes.ramp,
        replace(H100_70B, max_num_seqs=64, bend=4.0),
        Slo(4.0, 0.06),
        32,
        None,
    ),
    Case("ramp-at-3", "load ramp", Kind.BURST, scenes.ramp, H100_70B, Slo(3.0, 0.1), 16, None),
)
FAMILY = (
    *(OddCase(case, FROM_ADMISSION) for case in _ADMITTED),
    *(
        OddCase(
            replace(case, slug=f"{case.slug}-turns", title=f"{case.title}, replicas take turns"),
            FROM_ADMISSION,
            routing=Routing.ROUND_ROBIN,
        )
        for case in _ADMITTED
        if case.slug in {"admitted-long", "admitted-ramp-64"}
    ),
    OddCase(
        _chat("absent-8", "conversations, cap 8, series absent until used", _ADMITTED[0].profile, 20),
        FROM_ADMISSION,
        QUIRKS,
    ),
    *(OddCase(case, COUNTED) for case in _CAPPED),
    OddCase(_chat("bend-32", "a step that bends at 16 of 32", _a100(max_num_seqs=32, bend=2.0), 16), OTHER),
    OddCase(_chat("pauses", "a pause of 1 to 3 s every 3 minutes", _a100(pause_every=180.0), 16), OTHER),
    OddCase(_chat("half-speed", "one replica at half speed", A100_70B, 16), OTHER, half_speed=(0,)),
    OddCase(_chat("speculative", "3 tokens a step", _a100(tokens_per_step=3), 16), OTHER),
    *(OddCase(case, STEP, step_at=STEP_AT) for case in _STEPS),
    *(OddCase(case, BELIEF) for case in _BELIEFS),
)
ODD = {odd.case.slug: odd for odd in FAMILY}
