"""The parts of a few lines: cold start, backlog, past loads, percentiles, what a pool may ask for."""

from __future__ import annotations

import pytest

from servingpool.decision.learn.kinds import MOST_STARTING, ColdStart, updated
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


def test_an_unknown_figure_cannot_pass_for_false() -> None:
    with pytest.raises(TypeError, match="no truth value"):
        bool(Unknown("no scrape"))
