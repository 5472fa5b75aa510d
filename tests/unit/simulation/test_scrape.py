from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from servingpool.decision.observation import Histogram, Observation, ReplicaMetrics, Unknown
from servingpool.decision.pool import Slo
from servingpool_simulation import traces
from servingpool_simulation.fleet import ColdStart, Fleet
from servingpool_simulation.hardware import engine_profile
from servingpool_simulation.scrape import EPOCH, ScrapeOptions, Scraper

SLO = Slo(time_to_first_token=2.0, time_per_output_token=0.1)
STEADY = traces.poisson("steady", [6.0], 600.0, prompt=500, output=100, seed=1)
EVERY_5_SECONDS = ScrapeOptions()


def looks(options: ScrapeOptions = EVERY_5_SECONDS, *, until: float = 300.0, **scraper: object) -> list[Observation]:
    fleet = Fleet(engine_profile("h100-8b-tp1"), STEADY, ColdStart(mean=100.0, jitter=0.0))
    fleet.start_ready(2)
    fleet.scale(3)
    watch = Scraper(fleet, SLO, options, **scraper)  # type: ignore[arg-type]
    seen = []
    for now in np.arange(0.0, until, 15.0).tolist():
        watch.arm(now)
        fleet.advance(now)
        seen.append(watch.observe())
    return seen


def pages(observation: Observation) -> tuple[ReplicaMetrics, ...]:
    assert not isinstance(observation.metrics, Unknown)
    return observation.metrics


def test_a_page_is_as_old_as_the_replicas_last_scrape() -> None:
    for interval in (5.0, 15.0, 30.0):
        ages = [
            EPOCH + 15.0 * tick - metrics.scraped_at
            for tick, observation in enumerate(looks(ScrapeOptions(interval=interval)))
            if tick >= 3
            for metrics in pages(observation)
        ]
        assert 0 <= min(ages)
        assert max(ages) <= interval
        assert len({round(age % interval, 6) for age in ages}) >= 3  # each replica at its own phase


def test_counters_rise_and_tell_no_more_than_the_scrape_saw() -> None:
    first = [next(m for m in pages(o) if m.replica == "replica-0") for o in looks()[1:]]
    for before, after in pairwise(first):
        assert not isinstance(before.generation_tokens, Unknown)
        assert not isinstance(after.generation_tokens, Unknown)
        rate = (after.generation_tokens - before.generation_tokens) / (after.scraped_at - before.scraped_at)
        assert 100 < rate < 500  # 2 to 3 replicas share 600 tokens/s
        assert isinstance(after.time_to_first_token, Histogram)
        assert after.time_to_first_token.count == pytest.approx(6 * after.scraped_at - 6 * EPOCH, rel=1)


def test_a_loading_replica_shows_its_age_and_no_page() -> None:
    loading, ready = looks()[5], looks()[8]
    assert [r.name for r in loading.starting] == ["replica-2"]
    assert (loading.starting[0].age, loading.starting[0].ready_for) == (75.0, None)
    assert len(pages(loading)) == 2
    assert ready.ready[2].age - (ready.ready[2].ready_for or 0.0) == 100.0
    assert len(pages(ready)) == 3
    assert ready.requested == loading.requested == 3


def test_only_the_buckets_around_the_slo_are_shown_unless_all_are_asked_for() -> None:
    few, every = pages(looks()[10])[0], pages(looks(every_bucket=True)[10])[0]
    assert isinstance(few.time_to_first_token, Histogram)
    assert isinstance(every.time_to_first_token, Histogram)
    assert few.time_to_first_token.bounds == (0.5, 1.0, 2.5, 5.0, 7.5), "and near four multiples of 2 s"
    assert len(every.time_to_first_token.bounds) == 22
    at = every.time_to_first_token.bounds.index(2.5)
    assert few.time_to_first_token.counts[2] == every.time_to_first_token.counts[at]
    assert isinstance(few.time_per_output_token, Histogram)
    assert few.time_per_output_token.bounds == (0.025, 0.05, 0.1, 0.15, 0.2, 0.4)


def test_lost_scrapes_age_the_page_and_then_it_is_unknown_not_zero() -> None:
    half_lost = looks(ScrapeOptions(interval=15.0, lost_share=0.5))
    ages = [EPOCH + 15.0 * k - m.scraped_at for k, o in enumerate(half_lost) if k > 4 for m in pages(o)]
    assert 15 < max(ages) <= 60
    assert any(len(pages(o)) < len(o.ready) for o in looks(ScrapeOptions(interval=15.0, lost_share=0.8))[5:])
    blind = looks(ScrapeOptions(lost_share=1.0))
    assert blind[0].metrics == Unknown("no good scrape in 60 s")
    assert all(isinstance(o.metrics, Unknown) for o in blind)


def test_the_front_door_is_seen_only_through_a_gateway() -> None:
    def waiting(*, gateway: bool) -> Observation:
        fleet = Fleet(engine_profile("h100-8b-tp1"), STEADY, ColdStart(mean=100.0, jitter=0.0))
        fleet.scale(1)
        watch = Scraper(fleet, SLO, ScrapeOptions(gateway=gateway))
        watch.arm(60.0)
        fleet.advance(60.0)
        return watch.observe()

    hidden, seen = waiting(gateway=False), waiting(gateway=True)
    assert hidden.metrics == seen.metrics == Unknown("no replica is ready")
    assert isinstance(hidden.gateway.queue, Unknown)
    assert seen.gateway.queue == pytest.approx(55 * 6, rel=0.2)


def test_a_replica_that_became_ready_between_two_looks_far_apart_shows_what_it_has_done_since() -> None:
    fleet = Fleet(engine_profile("h100-8b-tp1"), STEADY, ColdStart(mean=100.0, jitter=0.0))
    fleet.start_ready(1)
    fleet.scale(2)
    watch = Scraper(fleet, SLO)
    watch.arm(180.0)
    fleet.advance(180.0)
    late = next(metrics for metrics in pages(watch.observe()) if metrics.replica == "replica-1")
    assert isinstance(late.time_to_first_token, Histogram)
    assert late.time_to_first_token.count == pytest.approx(3 * 77, rel=0.2)  # half of 6 requests/s since 100 s
