"""One damaged figure in one scrape of one replica."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from servingpool.decision.decide import Outcome, decide
from servingpool.decision.observation import Observation, ReplicaMetrics, Unknown

from .world import POOL, AtOnce, World

RATE = 4.0
FIGURES = (
    *("running", "waiting", "generation_tokens", "prompt_tokens", "cached_prompt_tokens", "admission_rejections"),
    *("begun", "time_to_first_token.count", "time_to_first_token.total", "time_to_first_token.counts"),
    *("inter_token_latency.count", "inter_token_latency.total", "inter_token_latency.counts"),
    *("time_per_output_token.count", "time_per_output_token.counts"),
)
DAMAGE: dict[str, Callable[[float], float]] = {
    "10^12 more": lambda figure: figure + 1e12,
    "gone": lambda _: 0.0,
    "below zero": lambda _: -40.0,
}


@dataclass
class Scraped(World):
    """Replicas with every figure, of which one may be damaged in the first one's sample."""

    figure: str = ""
    damage: Callable[[float], float] = lambda figure: figure

    def observation(self) -> Observation:
        seen = super().observation()
        assert not isinstance(seen.metrics, Unknown)
        pages = [whole(one) for one in seen.metrics]
        if self.figure:
            pages[0] = damaged(pages[0], self.figure, self.damage)
        return replace(seen, metrics=tuple(pages))


def whole(page: ReplicaMetrics) -> ReplicaMetrics:
    ttft, prompts = page.time_to_first_token, page.prompt_tokens
    assert not isinstance(ttft, Unknown)
    assert not isinstance(prompts, Unknown)
    return replace(page, cached_prompt_tokens=0.3 * prompts, admission_rejections=100.0, begun=ttft.count)


def damaged(page: ReplicaMetrics, figure: str, damage: Callable[[float], float]) -> ReplicaMetrics:
    name, _, part = figure.partition(".")
    held: Any = getattr(page, name)
    if part == "counts":
        held = replace(held, counts=(*held.counts[:-1], damage(held.counts[-1])))
    else:
        held = replace(held, **{part: damage(getattr(held, part))}) if part else damage(held)
    return replace(page, **{name: held})


@cache
def begun() -> Scraped:
    """Two replicas, half an hour of steady load."""
    world = Scraped(replicas=2, pool=replace(POOL, max_replicas=60))
    world.run(RATE, 30)
    return world


def again(**changed: Any) -> Scraped:
    """That world, to go on from there."""
    was = begun()
    world = replace(was, **changed)
    world.engines, world.serial = [replace(one) for one in was.engines], was.serial
    return world


def fleet(figure: str, damage: Callable[[float], float], minutes: float = 20.0) -> list[Outcome]:
    """From the scrape on in which the figure is damaged."""
    world = again(figure=figure, damage=damage)
    first = world.tick(RATE)
    world.figure = ""
    return [first, *world.run(RATE, minutes)]


@cache
def undamaged() -> list[int]:
    return [one.decision.replicas for one in fleet("", lambda figure: figure)]


def excess(found: list[Outcome]) -> list[int]:
    return [one.decision.replicas - usual for one, usual in zip(found, undamaged(), strict=False)]


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("figure", FIGURES)
def test_it_costs_one_replica_for_one_cold_start_at_most(figure: str, how: str) -> None:
    found = fleet(figure, DAMAGE[how])
    assert all(-1 <= one <= 1 for one in excess(found)), excess(found)
    assert sum(one > 0 for one in excess(found)) <= 30


@pytest.mark.parametrize(
    ("figure", "more"),
    [
        ("time_to_first_token.count", 56.0),
        ("time_to_first_token.count", 150.0),
        ("inter_token_latency.count", 30_000.0),
        ("inter_token_latency.total", 60_000.0),
    ],
)
def test_so_it_is_where_the_figure_is_one_that_other_times_bring(figure: str, more: float) -> None:
    """All of twenty minutes had one replica more: requests that no bucket holds were late, steps took no time."""
    assert sum(one > 0 for one in excess(fleet(figure, lambda held: held + more))) <= 8


@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(figure=st.sampled_from(FIGURES), power=st.floats(0.0, 19.0))
def test_so_it_is_whatever_the_figure_is_raised_by(figure: str, power: float) -> None:
    assert max(excess(fleet(figure, lambda held: held + 10.0**power, minutes=8.0))) <= 2


@pytest.mark.parametrize(
    ("figure", "damage", "told"),
    [
        ("generation_tokens", lambda held: 0.5 * held, "vllm-1: a counter fell"),
        ("admission_rejections", lambda _: Unknown("it is nan"), "vllm-1: no rejections any more"),
    ],
)
def test_a_sample_that_cannot_be_compared_is_counted_as_left_out_and_told(figure: str, damage: Any, told: str) -> None:
    first, second, *_ = fleet(figure, damage, minutes=1.0)
    assert (first.memory.last.coverage, second.memory.last.coverage) == (0.5, 1.0)
    assert told in first.decision.reason


def test_a_real_surge_of_forty_times_the_usual_is_believed_by_the_second_scrape() -> None:
    world = again(obey=False)
    found = [world.tick(160.0) for _ in range(4)]
    assert found[1].decision.replicas > 2
    assert found[3].decision.figures.arrivals == pytest.approx(160.0, rel=0.2)


def told(change: Callable[[ReplicaMetrics], ReplicaMetrics], pods: int = 2) -> Scraped:
    """The world from now on, with the samples of so many pods changed."""
    world = again()
    observe = world.observation

    def observation() -> Observation:
        seen = observe()
        assert not isinstance(seen.metrics, Unknown)
        return replace(seen, metrics=(*map(change, seen.metrics[:pods]), *seen.metrics[pods:]))

    world.observation = observation  # type: ignore[method-assign]
    return world


@pytest.mark.parametrize("from_admission", [False, True])
@pytest.mark.parametrize("pods", [1, 2])
def test_a_queue_of_a_million_orders_nothing_however_often_it_is_said(pods: int, from_admission: bool) -> None:
    world = told(lambda one: replace(one, waiting=1e6, ttft_from_admission=from_admission), pods)
    found = world.run(RATE, 20)
    assert max(one.decision.replicas for one in found) <= max(undamaged())
    assert "vllm-1: 1e+06 requests" in found[-1].decision.reason


def eighth(page: ReplicaMetrics) -> ReplicaMetrics:
    """The sample of one of eight ranks."""
    for figure in FIGURES:
        page = damaged(page, figure, lambda held: held / 8.0)
    return replace(page, sources=1.0)


@pytest.mark.parametrize("scrapes", [1, 40])
def test_a_sample_of_one_of_a_pods_eight_ranks_is_left_out_and_the_pod_is_named(scrapes: int) -> None:
    answers = [8.0]
    world = told(lambda one: eighth(whole(one)) if answers[0] < 8.0 else replace(one, sources=8.0), 1)
    world.tick(RATE)
    answers[0] = 1.0
    found = [world.tick(RATE) for _ in range(scrapes)]
    assert {one.memory.last.coverage for one in found} == {0.5}
    assert "vllm-1: only 1 of its 8 targets answer" in found[-1].decision.reason
    answers[0] = 8.0
    assert {one.decision.replicas for one in [*found, *world.run(RATE, 10)]} == {max(undamaged())}


def test_an_answer_that_is_always_the_same_is_told_within_five_scrapes() -> None:
    world = told(lambda one: one)
    found, seen = world.tick(RATE), world.observation()
    for _ in range(5):
        world.now += 15.0
        found = decide(seen, world.pool, found.memory, world.now)
    assert "the need is unknown (Prometheus shows no sample newer than" in found.decision.reason


def test_prompts_that_are_counted_at_the_end_of_long_requests_leave_no_replica_out_of_a_quiet_night() -> None:
    world = AtOnce(replicas=2)
    world.run(2.0, 30, prompt=500.0)
    for engine in world.engines:  # five requests of 40,000 tokens begin at each, and a few of the usual after them
        engine.requests += 5.0
        engine.first_token_seconds += 2.5
    world.tick(2.0, prompt=500.0)
    world.tick(0.0)
    for engine in world.engines:
        engine.prompt += 200_000.0
    night = world.run(0.0, 40)
    assert all(one.memory.last.coverage == 1.0 for one in night)
    assert night[-1].decision.replicas == 1
