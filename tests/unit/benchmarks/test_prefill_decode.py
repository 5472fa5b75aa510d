"""The benchmark of prefill and decode apart, with a policy that is simple enough to know its answers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import prefill_decode
import pytest

from servingpool_simulation import traces
from servingpool_simulation.policies import Static


@dataclass(frozen=True, slots=True)
class Two(Static):
    """Two replicas of each."""

    replicas: int = 2


def test_a_case_is_measured_against_the_smallest_pair_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefill_decode, "OURS", Two)
    trace = traces.azure2023_conv().between(0.0, 600.0)
    (case,) = [replace(one, trace=lambda: trace) for one in prefill_decode.cases(quick=True) if one.slug == "conv"]
    monkeypatch.setattr(prefill_decode, "cases", lambda *, quick: [case])
    found = prefill_decode.measure("conv", 0, quick=True)
    assert found.pair == (1, 1)
    assert found.static.attained >= case.slo.attainment
    assert found.ratio > 1.5  # two and two of ours, as soon as they are ready
    told = "\n".join(prefill_decode.section([found, found]))
    assert told.count("| 1 + 1 |") == 2
    assert "goal 1.15: **not reached**" in told


def test_each_pool_misses_as_many_as_leave_the_client_its_share() -> None:
    for case in prefill_decode.cases(quick=True):
        first, second = case.slos
        assert first.attainment * second.attainment == pytest.approx(case.slo.attainment)
        assert first.time_per_output_token is None
        assert second.time_to_first_token == first.time_to_first_token
