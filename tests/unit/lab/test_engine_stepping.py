from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from servingpool_lab.engine_pod.stepping import SteppedEngine
from servingpool_simulation import page
from servingpool_simulation.engine import Engine, Outcome
from servingpool_simulation.hardware import EngineProfile, engine_profile

L40S = engine_profile("l40s-8b-tp1")
CRAMPED = replace(L40S, kv_tokens=2048, max_model_len=1024, max_num_batched_tokens=256, max_num_seqs=8)
"""Every limit is soon reached: prompts in chunks, preemptions, a queue."""


def run(engine: SteppedEngine, until: float) -> None:
    """Every step at its time."""
    while engine.next_step <= until:
        engine.advance(engine.next_step + 1e-9)
    engine.advance(until)


def state_of(engine: SteppedEngine) -> dict[str, float]:
    e = engine._state.engines[0]
    held = {name: float(e[name]) for name in ("blocks", "kv", "decoding", "prefilling", "queued", "in_flight")}
    return {**held, "phase": float(abs(engine._state.phase).sum())}


def test_steps_at_their_times_are_those_of_the_simulator() -> None:
    def outcomes(engine: Engine) -> list[Outcome]:
        draw = random.Random(1)
        now = 0.0
        for _ in range(60):
            now += draw.expovariate(8.0)
            run(engine, now) if isinstance(engine, SteppedEngine) else engine.advance(now)
            engine.submit(now, draw.randint(1, 800), draw.randint(1, 100))
        engine.drain()
        return engine.take_outcomes()

    ours, simulated = outcomes(SteppedEngine(CRAMPED, 0.0)), outcomes(Engine(CRAMPED, 0.0))
    assert sum(outcome.preemptions for outcome in ours) > 0
    for mine, theirs in zip(ours, simulated, strict=True):
        assert mine.ttft == pytest.approx(theirs.ttft, abs=1e-3)
        assert mine.finished_at == pytest.approx(theirs.finished_at, abs=1e-3)
        assert mine.preemptions == theirs.preemptions


def test_a_process_that_could_not_run_has_had_a_long_step_and_its_page_says_so() -> None:
    engine = SteppedEngine(L40S, 0.0)
    engine.submit(0.0, 100, 3)
    engine.advance(0.001)
    engine.advance(engine.next_step)
    first = engine.next_step
    engine.advance(first + 2.0)
    engine.drain()
    [outcome] = engine.take_outcomes()
    itl = engine.metrics().histograms["inter_token_latency_seconds"]
    assert outcome.tpot is not None
    assert (outcome.tpot * 2, itl.total) == (pytest.approx(itl.total), pytest.approx(2.05, abs=0.02))
    assert (itl.count, itl.counts[itl.bounds.index(1.0)]) == (2, 1)


def test_who_hangs_up_while_waiting_leaves_no_trace() -> None:
    def others(*, with_one_more: bool) -> list[tuple[float | None, float]]:
        engine = SteppedEngine(CRAMPED, 0.0)
        for number in range(12):
            engine.submit(0.0, 300, 20)
            if with_one_more and number % 3 == 0:
                engine.abort(0.0, engine.submit(0.0, 300, 20))
        engine.drain()
        return [(outcome.ttft, outcome.finished_at) for outcome in engine.take_outcomes()]

    assert others(with_one_more=True) == others(with_one_more=False)


def test_hanging_up_twice_or_too_late_changes_nothing() -> None:
    engine = SteppedEngine(L40S, 0.0)
    number = engine.submit(0.0, 10, 2)
    run(engine, 5.0)
    engine.abort(5.0, number)
    engine.abort(5.0, number)
    assert [outcome.request for outcome in engine.take_outcomes()] == [number]
    engine.abort(5.0, number)
    assert set(state_of(engine).values()) == {0.0}


@pytest.mark.parametrize("profile", [L40S, CRAMPED], ids=["room", "cramped"])
@pytest.mark.parametrize("seed", range(8))
def test_whoever_hangs_up_and_whenever_the_books_balance_in_the_end(profile: EngineProfile, seed: int) -> None:
    draw = random.Random(seed)
    engine = SteppedEngine(profile, 0.0)
    now, here, hung_up, asked, ended = 0.0, set[int](), set[int](), dict[int, int](), dict[int, int]()
    for _ in range(300):
        now += draw.expovariate(20.0)
        if draw.random() < 0.4:
            run(engine, now)
        if draw.random() < 0.6:
            output = draw.randint(1, 200)
            number = engine.submit(now, draw.randint(1, 800), output)
            asked[number] = output
            here.add(number)
        elif here:
            number = draw.choice(sorted(here))
            here.remove(number)
            hung_up.add(number)
            engine.abort(now, number)
        run(engine, now)
        for outcome in engine.take_outcomes():
            ended[outcome.request] = outcome.output_tokens
            here.discard(outcome.request)
        assert engine.in_flight - len(engine._leaving) <= len(here)
    engine.drain()
    ended |= {outcome.request: outcome.output_tokens for outcome in engine.take_outcomes()}
    assert {number: asked[number] for number in asked.keys() - hung_up} == {
        number: tokens for number, tokens in ended.items() if number not in hung_up
    }
    assert len(hung_up) > 50
    assert set(state_of(engine).values()) == {0.0}
    counted = engine._state.page[0, page.STOPPED] + engine._state.page[0, page.LENGTH]
    assert counted == len(ended)


def test_with_speculative_decoding_each_step_brings_several_tokens_and_the_last_one_what_is_left() -> None:
    engine = SteppedEngine(replace(L40S, tokens_per_step=3), 0.0)
    only = engine.submit(0.0, 100, 6)
    seen = []
    engine.advance(0.001)
    while (at := engine.next_step) < math.inf:
        engine.advance(at)
        seen.append(engine.tokens())
    assert seen == [{only: 1}, {only: 4}, {}]
    (outcome,) = engine.take_outcomes()
    assert outcome.output_tokens == engine.metrics().counters["generation_tokens"] == 6
