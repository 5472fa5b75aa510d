"""The engine's step, learned from means of windows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servingpool.decision.engine import Steps, StepTime
from servingpool.decision.learn.step_time import StepTimeFit, _prior
from servingpool.decision.params import DEFAULT

ENGINE = StepTime(0.02, 1.2e-4, 9e-5)


def test_the_fit_finds_the_engine_it_was_shown() -> None:
    truth, fit = StepTime(0.02, 1.2e-4, 9e-5), StepTimeFit()
    random = np.random.default_rng(1)
    for _ in range(200):
        decoding, prefill = random.uniform(2, 90), random.uniform(0, 400)
        itl = truth.base + truth.per_request * decoding + truth.per_prefill_token * prefill
        fit = fit.update([Steps(itl * random.normal(1, 0.03), decoding, prefill)], elapsed=15.0, params=DEFAULT)
    found = fit.solve(DEFAULT)
    assert found is not None
    assert found.base == pytest.approx(truth.base, rel=0.1)
    assert found.work(1000, 200) == pytest.approx(truth.work(1000, 200), rel=0.1)


def test_of_engines_that_prefill_for_others_requests_that_decode_nothing_tell_more_than_steps() -> None:
    decode, prefill = Steps(0.02, 1.0, 0.0), Steps(0.1, 0.0, 1000.0, base=0.0)

    def fitted(*seen: Steps) -> StepTimeFit:
        fit = StepTimeFit()
        for one in seen:
            fit = fit.update([one], elapsed=15.0, params=DEFAULT, prefills=True)
        return fit

    assert fitted(decode).decodes, "as long as there is nothing else"
    assert fitted(decode, prefill) == fitted(prefill)
    assert fitted(prefill, decode) == fitted(prefill)


windows = st.tuples(st.floats(1e-3, 1.0), st.floats(0.0, 1000.0), st.floats(0.0, 8192.0))


@given(st.lists(windows, min_size=1, max_size=12))
def test_what_is_found_is_the_best_that_is_not_negative(seen: list[tuple[float, float, float]]) -> None:
    fit = StepTimeFit()
    for itl, decoding, prefill in seen:
        fit = fit.update([Steps(itl, decoding, prefill)], elapsed=15.0, params=DEFAULT)
    found = fit.solve(DEFAULT)
    assert found is not None
    coefficients = np.array([found.base, found.per_request, found.per_prefill_token])
    assert (coefficients >= 0.0).all()
    gram = np.array(fit.gram) + np.array(_prior(DEFAULT.decode_ratio, DEFAULT.prefill_ratio)) / fit.scale**2
    # Karush, Kuhn, Tucker: no coefficient can be made better, nor one that is 0 be made larger to any good.
    weights = gram.reshape(3, 3) * coefficients
    slope = weights.sum(axis=1) - np.array(fit.moment)
    slack = 1e-6 * (np.abs(weights).sum(axis=1) + np.abs(fit.moment))
    assert (slope >= -slack).all()
    assert (slope[coefficients > 0.0] <= slack[coefficients > 0.0]).all()


def shown(fit: StepTimeFit, speed: float, ticks: int, noise: np.random.Generator) -> tuple[StepTimeFit, int]:
    """The fit after so many ticks of an engine whose steps take `speed` as long, and in how many it was doubted."""
    doubts = 0
    for _ in range(ticks):
        decoding, prefill = noise.uniform(10, 60), noise.uniform(0, 300)
        itl = speed * itl_of(ENGINE, decoding, prefill) * noise.uniform(0.9, 1.1)
        fit = fit.update([Steps(itl, decoding, prefill)], elapsed=15.0, params=DEFAULT)
        doubts += fit.changed(DEFAULT)
    return fit, doubts


def itl_of(step: StepTime, decoding: float, prefill: float) -> float:
    return step.base + step.per_request * decoding + step.per_prefill_token * prefill


@pytest.mark.parametrize("speed", [0.7, 1.3])
def test_another_engine_is_relearned_within_ten_minutes(speed: float) -> None:
    # log 0.7 = -0.36, log 1.3 = 0.26: both well beyond engine_changed = 0.12.
    noise = np.random.default_rng(2)
    fit, _ = shown(StepTimeFit(), 1.0, 240, noise)
    fit, doubts = shown(fit, speed, 40, noise)
    step = fit.solve(DEFAULT)
    assert step is not None
    assert doubts > 0
    assert not fit.changed(DEFAULT)
    assert itl_of(step, 30.0, 100.0) == pytest.approx(speed * itl_of(ENGINE, 30.0, 100.0), rel=0.06)
    assert step.work(1000, 200) == pytest.approx(speed * ENGINE.work(1000, 200), rel=0.2)


@pytest.mark.parametrize("speed", [0.55, 0.7, 1.3])
@pytest.mark.parametrize(("decoding", "prefill"), [(60.0, 300.0), (12.0, 30.0)])
def test_where_another_engine_shows_one_size_of_batch_what_requests_cost_follows_its_speed(
    speed: float, decoding: float, prefill: float
) -> None:
    # The slope between two engines' windows is neither's: it made requests cost 0.4 to 2 times what they did.
    noise = np.random.default_rng(4)
    fit, _ = shown(StepTimeFit(), 1.0, 240, noise)
    for _ in range(40):
        batch, prompts = decoding + noise.uniform(-2, 2), prefill + noise.uniform(-10, 10)
        itl = speed * itl_of(ENGINE, batch, prompts) * noise.uniform(0.98, 1.02)
        fit = fit.update([Steps(itl, batch, prompts)], elapsed=15.0, params=DEFAULT)
    step = fit.solve(DEFAULT)
    assert step is not None
    assert not fit.renewing
    assert step.base == pytest.approx(speed * ENGINE.base, rel=0.2)
    assert step.work(1000, 200) == pytest.approx(speed * ENGINE.work(1000, 200), rel=0.2)


def test_noise_of_ten_percent_is_no_other_engine() -> None:
    for seed in range(5):
        noise = np.random.default_rng(seed)
        fit, _ = shown(StepTimeFit(), 1.0, 20, noise)
        fit, doubts = shown(fit, 1.0, 1000, noise)
        assert doubts == 0
        assert abs(fit.drift) < DEFAULT.engine_changed


def test_a_sick_gpu_is_one_among_many_and_no_other_engine() -> None:
    noise, fit = np.random.default_rng(1), StepTimeFit()
    for _ in range(240):
        batches = noise.uniform(10, 60, size=10)
        steps = [Steps(itl_of(ENGINE, batch, 100.0), batch, 100.0) for batch in batches]
        steps[0] = Steps(3.0 * itl_of(ENGINE, 200.0, 100.0), 200.0, 100.0)
        fit = fit.update(steps, elapsed=15.0, params=DEFAULT)
        assert not fit.changed(DEFAULT)
    step = fit.solve(DEFAULT)
    assert step is not None
    assert step.work(1000.0, 200.0) < 2.0 * ENGINE.work(1000.0, 200.0)
