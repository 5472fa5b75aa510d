from __future__ import annotations

from collections.abc import Callable

import pytest

from servingpool.decision.observation import Histogram, Observation, Unknown
from servingpool_simulation.baselines.readings import History, histogram_quantile, or_zero, total
from servingpool_simulation.baselines.windows import Means

Look = Callable[..., Observation]


def test_a_quantile_is_promqls() -> None:
    assert histogram_quantile(0.9, Histogram((1.0, 2.0), (80.0, 100.0), 0.0, 100.0)) == pytest.approx(1.5)
    assert histogram_quantile(0.9, Histogram((1.0, 2.0), (10.0, 20.0), 0.0, 100.0)) == 2.0
    assert histogram_quantile(0.9, Histogram((1.0,), (0.0,), 0.0, 0.0)) == 0.0


def test_a_sum_makes_up_nothing_for_a_pod_that_is_missing(look: Look, blind: Callable[[int], Observation]) -> None:
    assert total(look(waiting=(3, 4)), "waiting") == 7
    assert total(look(waiting=(3, 4)), "running") == Unknown("no replica exposes running")
    assert or_zero(total(blind(2), "waiting")) == 0.0


def test_increases_are_over_the_range_and_a_new_replica_counted_from_zero(look: Look) -> None:
    history = History(60.0)
    history.add(0.0, look(first_tokens=(10,), prompt_tokens=(5_000,)))
    seen = look(first_tokens=(30, 8), prompt_tokens=(15_000, 2_000), at=40.0, ready_for=25.0)
    history.add(40.0, seen)
    # Both say they became ready at 15 s, so both counted from 0: 30 + 8 requests, 17,000 tokens.
    assert history.observed("time_to_first_token").count == 38
    assert history.mean_prompt() == pytest.approx(17_000 / 38)
    later = look(first_tokens=(50, 20), prompt_tokens=(25_000, 5_000), at=90.0)
    history.add(90.0, later)
    # The look at 0 s is out of range and nobody became ready within it: 20 + 12 since 40 s.
    assert history.observed("time_to_first_token").count == 32


def test_means_are_over_the_samples_of_a_window() -> None:
    means = Means(60.0)
    assert means.over(60.0) == 0.0
    for at, value in ((0.0, 1.0), (30.0, 2.0), (60.0, 6.0)):
        means.add(at, value)
    assert means.over(60.0) == 4.0  # the one at 0 s is 60 s old and out
    assert means.over(10.0) == 6.0
