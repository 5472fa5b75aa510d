"""A vLLM that ran on an H200, its clients' figures, and what our parts make of the same requests and pages."""

from __future__ import annotations

import numpy as np
import pytest
import real_gpu
from real_gpu import PROFILE, TPOTS, TTFT, Record, Step, capacity, known
from validate_simulator import prefill

from servingpool.decision.decision import Decision

ATTAINMENT = 0.95
Steps = dict[float, list[Step]]
Decided = dict[float, dict[float, Decision]]


@pytest.fixture(scope="module")
def record() -> Record:
    return real_gpu.load()


@pytest.fixture(scope="module")
def steps(record: Record) -> Steps:
    return {bound: real_gpu.decisions(record, bound) for bound in TPOTS}


@pytest.fixture(scope="module")
def decided(record: Record, steps: Steps) -> Decided:
    return {bound: real_gpu.at_rates(record, each) for bound, each in steps.items()}


def held(record: Record, bound: float) -> dict[float, bool]:
    """By requests/s: whether the clients' requests met the SLO."""
    return {stage["rate"]: real_gpu.measured(stage).attained(bound) >= ATTAINMENT for stage in record["stages"]}


@pytest.mark.parametrize("bound", TPOTS)
def test_more_replicas_are_asked_for_just_where_the_clients_miss_the_slo(
    record: Record, decided: Decided, bound: float
) -> None:
    holds = held(record, bound)
    assert set(holds.values()) == {True, False}, "the record has rates on both sides of the knee"
    assert {rate: decision.replicas == 1 for rate, decision in decided[bound].items()} == holds


@pytest.mark.parametrize("bound", TPOTS)
def test_what_one_replica_takes_is_known_at_the_knee(record: Record, decided: Decided, bound: float) -> None:
    knee = max(rate for rate, holds in held(record, bound).items() if holds)
    # A sixth below it is what the core leaves for what it does not know yet; never above the next rate, which missed.
    assert knee * 5 / 6 <= capacity(decided[bound][knee]) < knee + 4


def test_arrivals_are_read_as_they_were_sent(record: Record, decided: Decided) -> None:
    until = record["about"]["stage_seconds"]
    for stage in record["stages"]:
        # The last page is up to 5 s old; a decision's window is 30 s.
        last = max(at for at, _ in stage["pages"] if at <= stage["begin"] + until) - stage["begin"]
        sent = sum(last - 30.0 < at <= last for at, *_ in stage["requests"]) / 30.0
        assert known(decided[0.04][stage["rate"]].figures.arrivals) == pytest.approx(sent, rel=0.06), stage["rate"]


@pytest.mark.parametrize(("bound", "within"), [(0.025, 0.04), (0.05, 0.04), pytest.param(0.04, 0.06, id="in a bucket")])
def test_attainment_is_read_as_the_clients_met_it(record: Record, steps: Steps, bound: float, within: float) -> None:
    decision = steps[bound][-1].decision
    each = [real_gpu.measured(stage) for stage in record["stages"]]
    late = np.concatenate([(one.ttft > TTFT) | (one.tpot > bound) for one in each])
    # Two histograms do not say which requests missed both bounds.
    assert known(decision.figures.attainment_now) == pytest.approx(1 - late.mean(), abs=within)


def test_the_engine_models_steps_are_within_8_percent_of_the_real_ones(record: Record) -> None:
    for row in record["prefill"]:
        model = prefill(PROFILE, row["tokens"]) + real_gpu.SERVER_SECONDS
        assert model == pytest.approx(row["engine_mean_seconds"], rel=0.08), row["tokens"]
    for row in record["decode"]:
        assert row["others_at_end"] == row["batch"] - 1, "all decode until the end"
        model = real_gpu.decode_together(row["batch"], row["context"], record["about"]["steps"])
        assert model == pytest.approx(np.mean(row["gap_seconds"]), rel=0.08), row["batch"]


def test_the_engine_model_attains_what_the_real_one_does_at_each_rate(record: Record) -> None:
    for stage in record["stages"]:
        real, model = real_gpu.measured(stage), real_gpu.modelled(stage)
        for bound in TPOTS:
            assert model.attained(bound) == pytest.approx(real.attained(bound), abs=0.08), (stage["rate"], bound)
        assert np.median(model.ttft) == pytest.approx(np.median(real.ttft), rel=0.2), stage["rate"]
