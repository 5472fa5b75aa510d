"""Whether the TTFT histogram includes the queue: by how TTFT moves with the wait."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from servingpool.decision.engine import Wait
from servingpool.decision.learn.queue_in_ttft import QueueInTtft
from servingpool.decision.params import DEFAULT

PREFILL = 1.0
"""Seconds."""


def judged(waits: list[Wait], verdict: QueueInTtft | None = None) -> QueueInTtft:
    """After one interval of 15 s for each."""
    verdict = QueueInTtft() if verdict is None else verdict
    for one in waits:
        verdict = verdict.update([one], elapsed=15.0, params=DEFAULT)
    return verdict


def queues(*, included: bool, longest: float, calm: int = 20) -> list[Wait]:
    """No queue for a while, then one that grows and goes again within five minutes."""
    waits = [*np.linspace(0.0, longest, 11), *np.linspace(longest, 0.0, 11)[1:]]
    of = [0.0] * calm + [float(wait) for wait in waits]
    return [Wait(10.0, begin, end, PREFILL + (0.5 * (begin + end) if included else 0.0)) for begin, end in pairwise(of)]


@pytest.mark.parametrize("longest", [1.0, 4.0, 300.0])
def test_a_queue_that_raises_ttft_by_its_own_length_is_included(longest: float) -> None:
    verdict = judged(queues(included=True, longest=longest))
    assert verdict.slope == pytest.approx(1.0, abs=0.15)
    assert not verdict.excluded


@pytest.mark.parametrize("longest", [1.0, 4.0, 300.0])
def test_a_queue_that_leaves_ttft_as_it_was_is_excluded_however_short_it_is(longest: float) -> None:
    assert judged(queues(included=False, longest=longest)).excluded


def test_bursts_that_are_gone_before_the_next_scrape_conclude_nothing() -> None:
    random = np.random.default_rng(0)
    ends = np.where(random.random(400) < 0.3, random.exponential(5.0, 400), 0.0)
    # Each scrape meets another burst, so what the requests waited has little to do with what the two scrapes show.
    waits = [
        Wait(10.0, float(begin), float(end), PREFILL + float(random.exponential(1.0))) for begin, end in pairwise(ends)
    ]
    verdict = judged(waits)
    assert verdict.queued > 5.0
    assert verdict.slope is None
    assert not verdict.excluded


def test_after_an_upgrade_the_next_queue_tells() -> None:
    verdict = judged(queues(included=False, longest=300.0))
    assert verdict.excluded
    assert not judged(queues(included=True, longest=300.0, calm=240), verdict).excluded


@pytest.mark.parametrize("wait", [0.7, 2.3, 33.3, 412.9])
def test_a_queue_of_one_length_concludes_nothing(wait: float) -> None:
    # Its variance is rounding, and the slope would be one rounding error over another.
    requests = np.random.default_rng(0).integers(1, 20, 200)
    verdict = QueueInTtft()
    for one in requests:
        verdict = judged([Wait(float(one), wait, wait, wait + 0.3)], verdict)
        assert verdict.slope is None
        assert not verdict.excluded


@pytest.mark.parametrize("requests", [0.0, 1e-200, 1e300])
def test_moments_of_a_damaged_profile_conclude_nothing_and_raise_nothing(requests: float) -> None:
    damaged = QueueInTtft((requests, *[1e300] * 9), queued=50.0)
    assert not judged(queues(included=True, longest=1.0), damaged).excluded
    assert damaged.slope is None


def test_what_is_known_is_not_forgotten_when_no_replica_was_read() -> None:
    # Prefills that slow each other raise TTFT with the queue, though it begins at admission.
    verdict = QueueInTtft()
    for one in queues(included=True, longest=4.0):
        verdict = verdict.update([one], elapsed=15.0, params=DEFAULT, known=True)
    assert verdict.excluded
    assert verdict.update([], elapsed=15.0, params=DEFAULT).excluded
