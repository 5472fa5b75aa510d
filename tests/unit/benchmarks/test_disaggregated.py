"""Prefill and decode on engines of their own: what each fleet gets, and when a client's request is met."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from disaggregated import Side, Transfer, decode_profile, handed, prefills, simulate_pair

from servingpool.decision.pool import Slo
from servingpool_simulation.hardware import engine_profile
from servingpool_simulation.policies import Static
from servingpool_simulation.traces import Trace, poisson

ENGINE = engine_profile("h100-8b-tp1")
SLO = Slo(1.0, 0.05)
TRACE = poisson("steady", [2.0], 120.0, prompt=2000, output=50)


def sides(prefill: int = 1, decode: int = 1) -> tuple[Side, Side]:
    return (
        Side(ENGINE, Static(prefill), prefill, 8, Slo(1.0, None)),
        Side(decode_profile(ENGINE), Static(decode), decode, 8, Slo(None, 0.05)),
    )


def test_a_request_decodes_once_its_cache_has_moved() -> None:
    transfer = Transfer(bytes_per_token=1e6, bytes_per_second=1e9, fixed=0.5)
    first = sides()[0].run(prefills(TRACE), seed=0)
    given = handed(TRACE, first, transfer)
    # 2,000 tokens of 1 MB at 1 GB/s, and half a second.
    moved = given.moved_at - TRACE.arrival - first.outcomes.ttft
    assert moved == pytest.approx(np.full(len(moved), 2.5))
    assert (np.diff(given.trace.arrival) >= 0.0).all()
    assert set(given.trace.output) == {50}


def test_a_client_waits_for_both_engines_and_the_transfer() -> None:
    fast = simulate_pair(TRACE, *sides(), SLO)
    assert (fast.attained, fast.first_tokens, fast.output_tokens) == (1.0, 1.0, 1.0)
    slow = simulate_pair(TRACE, *sides(), SLO, transfer=Transfer(fixed=2.0))
    assert (slow.attained, slow.first_tokens, slow.output_tokens) == (0.0, 0.0, 1.0)


def test_the_clients_latencies_are_those_of_both_engines() -> None:
    soon, late = (simulate_pair(TRACE, *sides(), SLO, transfer=Transfer(fixed=fixed)) for fixed in (0.0, 2.0))
    both = np.median(soon.prefill.outcomes.ttft) + np.median(soon.decode.outcomes.ttft)
    assert np.median(soon.ttft) == pytest.approx(both + 2000 * 131_072 / 25e9, rel=0.05)
    assert np.median(late.ttft) - np.median(soon.ttft) == pytest.approx(2.0, abs=0.01)
    assert len(soon.ttft) == len(soon.tpot)
    assert np.median(soon.tpot) == pytest.approx(np.median(soon.decode.outcomes.tpot))


def test_requests_whose_prefill_never_ends_are_missed() -> None:
    crowd = poisson("crowd", [60.0], 120.0, prompt=8000, output=2)
    assert simulate_pair(crowd, *sides(), SLO).attained < 0.2


def test_a_decode_engine_computes_no_prompt() -> None:
    def busy(trace: Trace) -> float:
        found = sides()[1].run(trace, seed=0)
        return float(found.outcomes.ttft.mean())

    short, long = (replace(TRACE, prompt=np.full(len(TRACE.prompt), tokens)) for tokens in (200, 20_000))
    assert busy(long) < busy(short) + 0.02


def test_both_fleets_are_paid_for() -> None:
    pair = simulate_pair(TRACE, *sides(prefill=2, decode=3), SLO)
    assert pair.gpu_hours == pytest.approx(5 * TRACE.duration / 3600)
