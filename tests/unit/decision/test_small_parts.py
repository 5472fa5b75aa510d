"""The parts of a few lines: cold start, backlog, past loads, percentiles, what a pool may ask for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from servingpool.decision.engine import Rates, StepTime
from servingpool.decision.learn.kinds import MOST_STARTING, ColdStart, updated
from servingpool.decision.learn.memory import PastLoads
from servingpool.decision.observation import Replica, Unknown
from servingpool.decision.pool import Pool, Slo, Target

SLO = Slo(time_to_first_token=2.0, time_per_output_token=0.1)


def test_a_replica_teaches_its_cold_start_once_and_only_if_it_was_seen_to_load() -> None:
    loading, ready = Replica("a", age=80.0), Replica("a", age=200.0, ready_for=110.0)
    flapped = Replica("old", age=1500.0, ready_for=300.0)
    starts = ColdStart().update((flapped,), (loading,))
    for _ in range(5):
        starts = starts.update((flapped, ready), ())
    assert starts.seconds == (90.0,)
    assert starts.expected(otherwise=120.0) == 90.0
    assert ColdStart().expected(otherwise=120.0) == 120.0


@pytest.mark.parametrize("targets", [1, 2, 8])
def test_few_replicas_that_start_are_named_in_the_status_however_many_start(targets: int) -> None:
    pool = Pool(SLO, 1, 9, targets=tuple(map(Target, map(str, range(targets)))))
    starting = [Replica(str(number), age=9.0, target=str(number % targets)) for number in range(900)]
    assert sum(len(kind.cold_start.loading) for kind in updated((), {}, (), starting, pool, 15.0)) == MOST_STARTING


def test_the_highest_load_of_each_five_minutes_is_kept_for_two_hours() -> None:
    past, step = PastLoads(), StepTime(base=0.0, per_request=1.0, per_prefill_token=0.0)
    for tick in range(960):
        past = past.update(15.0 * tick, Rates(steps=4.0 if tick == 490 else 0.5), step)
    assert len(past.bins) <= 25
    assert past.highest(7_340.0, step) == 4.0
    assert past.highest(7_340.0, replace(step, per_request=0.5)) == 2.0
    assert past.highest(7_900.0, step) == 0.5
    assert past.highest(1e9, step) == 0.0


def test_an_unknown_figure_cannot_pass_for_false() -> None:
    with pytest.raises(TypeError, match="no truth value"):
        bool(Unknown("no scrape"))
