"""Engines that count first tokens at the end, or show no TTFT: what tells of the queue there, and what does not."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from servingpool.decision.figures import slo_met
from servingpool.decision.observation import NOT_EXPOSED, Histogram, Observation, Replica, ReplicaMetrics
from servingpool.decision.observe.lateness import Witness
from servingpool.decision.pool import Slo

from .test_full_replicas import BOUND, POOL, START, TICK, Capped, Fleet

OF_TTFT = (0.5, BOUND)


@dataclass
class Damaged(Capped):
    """Reads zero requests begun at one scrape."""

    at: float = 0.0

    def page(self, now: float) -> ReplicaMetrics:
        page = super().page(now)
        return replace(page, begun=0.0) if now == self.at else page


def page(
    at: float, requests: float, seconds: float, *, begun: float | None = None, waiting: float = 9.0
) -> Observation:
    metrics = ReplicaMetrics(
        replica="pod",
        scraped_at=at,
        running=8.0,
        waiting=waiting,
        begun=NOT_EXPOSED if begun is None else begun,
        generation_tokens=200.0 * requests,
        prompt_tokens=200.0 * requests,
        time_to_first_token=Histogram(OF_TTFT, (0.0, requests), seconds, requests),
        inter_token_latency=Histogram((), (), 8.0 * requests, 200.0 * requests),
        time_per_output_token=Histogram((0.05, 0.1), (requests, requests), 0.04 * requests, requests),
    )
    return Observation(requested=1, ready=(Replica("pod", 9_999.0, 9_000.0),), metrics=(metrics,))


def test_a_histogram_without_a_bucket_never_says_that_the_slo_holds_while_all_wait() -> None:
    fleet = Fleet(pool=replace(POOL, max_replicas=3), odd="at_finish")
    shown = [fleet.tick(5.0).decision.figures for _ in range(16)]
    assert fleet.oldest > 60.0
    assert shown[-1].witness is Witness.QUEUE
    assert shown[-1].attainment < 0.2
    after = [fleet.tick(0.1).decision.figures for _ in range(40)]
    assert fleet.oldest == 0.0
    assert slo_met(after[-1], 0.95) is False, "of the last hour most waited for a minute"


def test_what_a_tpot_bound_taught_is_kept_whatever_the_ttft_histogram_includes() -> None:
    fleet = Fleet(pool=replace(POOL, slo=Slo(time_per_output_token=0.1), max_replicas=3))
    for _ in range(24):
        fleet.tick(1.5)
    least = np.sum(fleet.memory.profile.curve.requests)
    assert least > 0.0
    for _ in range(40):
        fleet.tick(5.0)
        assert np.sum(fleet.memory.profile.curve.requests) > 0.9 * least
    assert fleet.memory.profile.queue_in_ttft.excluded


def test_one_scrape_without_requests_begun_is_no_surge() -> None:
    fleet = Fleet(odd="at_finish")
    fleet.engines = [Damaged(f"pod-{number}", START - 3600.0, at_finish=True) for number in range(3)]
    calm = [fleet.tick(1.5).decision.figures.arrivals for _ in range(60)]
    most = max(one for one in calm if isinstance(one, float))
    for engine in fleet.engines:
        assert isinstance(engine, Damaged)
        engine.at = fleet.now + TICK
    after = [fleet.tick(1.5).decision.figures.arrivals for _ in range(3)]
    assert max(one for one in after if isinstance(one, float)) < 2.0 * most
