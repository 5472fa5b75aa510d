"""What was learned of a pool, written to the status of the resource and read again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given

from servingpool.catalogue.limits import LimitName
from servingpool.decision.decide import decide
from servingpool.decision.engine import NO_DEMAND, Rates
from servingpool.decision.learn.error_budget import ErrorBudget
from servingpool.decision.learn.forecast import FORECASTS_KEPT as KEPT
from servingpool.decision.learn.forecast import Forecast
from servingpool.decision.learn.kinds import ColdStart, Kind
from servingpool.decision.learn.memory import Memory, Profile
from servingpool.decision.learn.miss_curve import BINS
from servingpool.decision.learn.step_time import Saturation
from servingpool.decision.observation import Unknown
from servingpool.decision.params import DEFAULT
from servingpool.decision.zero import Busy, Vanished
from servingpool.reconcile.keep.learned_profile import _part, dump, load

from ..decision.sequences import (  # noqa: TID252, the same sequences as the core's promises are checked with
    HUGE_DEMAND,
    Life,
    Sequence,
    live,
    lives,
    sequences,
)
from ..decision.world import World, applied  # noqa: TID252, the core's own stories
from ..fuzzing import fuzzed  # noqa: TID252, tests are no package of an installed name

RELEASED = Path(__file__).parents[2] / "fixtures" / "profile-0.1.0.json"
"""As an operator of 0.1.0 wrote it to a status."""
BEFORE_RATES = RELEASED.with_name("profile-before-rates.json")
"""As the last operator wrote it that kept demand in replicas kept busy: 48 minutes of 1,000 prompt tokens and 200 steps a
request."""


def test_a_profile_that_an_earlier_version_wrote_is_read() -> None:
    found = load(json.loads(RELEASED.read_text()))
    assert found.learned == 2385.0
    assert found.forecast.initial_replicas == 3
    assert found.forecast.mean.prompt == pytest.approx(5.0 * found.forecast.mean.steps, rel=1e-3)
    assert found.calibration.predicted == pytest.approx(7.667041)


def test_demand_in_replicas_kept_busy_is_read_as_rates_that_keep_as_many_busy() -> None:
    kept = json.loads(BEFORE_RATES.read_text())
    found = load(kept)
    step = found.fit.solve(DEFAULT)
    assert step is not None
    forecast, pairs = (
        found.forecast.in_work(step, DEFAULT),
        [float(figure) for figure in kept["forecast"]["pairs"].split()],
    )
    np.testing.assert_allclose(forecast.pairs.ravel(), pairs, rtol=1e-6)
    assert forecast.mean == pytest.approx(kept["forecast"]["mean"])
    assert (forecast.seen, forecast.initial_replicas) == (kept["forecast"]["seen"], kept["forecast"]["found"])
    assert step.work(*found.busy.rates) == pytest.approx(kept["busy"]["level"])
    assert found.busy.rates.prompt / found.busy.rates.steps == pytest.approx(1000.0 / 200.0, rel=1e-3)
    assert dump(found)["version"] == 3


def test_demand_in_replicas_kept_busy_counts_by_the_full_batch_of_then() -> None:
    kept = json.loads(BEFORE_RATES.read_text())
    full = Saturation(seconds=600.0, requests=60.0, tokens=6_000.0, decoding=4_800.0, batch=8.0, most_running=8.0)
    found = load(kept | {"saturation": dump(Profile(saturation=full))["saturation"]})
    step = found.fit.solve(DEFAULT)
    assert step is not None
    assert found.forecast.in_work(replace(step, batch=8.0), DEFAULT).mean == pytest.approx(kept["forecast"]["mean"])


def test_demand_in_replicas_kept_busy_without_a_step_time_is_forgotten() -> None:
    kept, nothing = json.loads(BEFORE_RATES.read_text()), dump(Profile())
    found = load(kept | {"fit": nothing["fit"]})
    assert (found.forecast, found.busy.rates) == (Forecast(), NO_DEMAND)
    assert found.learned == kept["learned"]


@pytest.mark.parametrize(("part", "figure"), [("forecast", "pairs"), ("forecast", "mean"), ("busy", "level")])
def test_damaged_demand_in_replicas_kept_busy_is_damage(part: str, figure: str) -> None:
    kept = json.loads(BEFORE_RATES.read_text())
    value = "1e7 1 1" if figure == "pairs" else 1e7
    with pytest.raises(ValueError, match=rf"damaged: {part}\.{figure}"):
        load(kept | {part: kept[part] | {figure: value}})


@pytest.mark.parametrize(
    ("part", "figure", "value"),
    [
        ("calibration", "foretold", -30.0),
        ("forecast", "mean", "1e308 1"),
        ("forecast", "mean", "1 1 1"),
        ("forecast", "found", 1e12),
        ("forecast", "pairs", "1e308 " * 6),
        ("curve", "requests", "1e300 " * len(BINS)),
        ("curve", "requests", "-300 " * len(BINS)),
        ("curve", "late", "-1 " * len(BINS)),
        ("curve", "late", "1 " * len(BINS)),
        ("budget", "fast", 2.0),
        ("budget", "slow", -1e30),
        ("cold_start", "seconds", "60 1e300"),
        ("cold_start", "seconds", "-60"),
    ],
)
def test_a_profile_with_impossible_figures_is_damaged(part: str, figure: str, value: float | str) -> None:
    data = dump(Profile())
    assert figure in data[part]
    with pytest.raises(ValueError, match="damaged"):
        load(data | {part: data[part] | {figure: value}})


def test_what_a_pool_learned_of_zero_is_read_again() -> None:
    busy = Busy(Rates(10_000.0, 2_000.0), prompt=1000.0, steps=200.0, tokens=1.5, seconds=7200.0)
    profile = replace(Profile(), busy=busy, vanished=Vanished(1_700_000_000.0, "vllm-router/router"))
    found = load(json.loads(json.dumps(dump(profile))))
    assert (found.busy, found.vanished) == (busy, profile.vanished)
    with pytest.raises(ValueError, match="damaged"):
        load(dump(profile) | {"vanished": {"at": 1e300, "gateway": "x"}})
    with pytest.raises(ValueError, match="damaged"):
        load(dump(profile) | {"busy": {"rates": "-1 1"}})


def of_two_targets() -> Profile:
    """The second one has not served yet."""
    world = World(replicas=3)
    world.run(20.0, 10)
    profile = world.memory.profile
    full = Saturation(seconds=600.0, requests=60.0, tokens=6_000.0, decoding=4_800.0, batch=8.0, most_running=8.0)
    kinds = (Kind("h100", profile.fit, full, ColdStart((60.0, 70.0), ("a",)), 1.0), Kind("l40s"))
    return replace(profile, kinds=kinds, reference="h100")


def test_what_each_target_showed_is_read_again() -> None:
    profile = of_two_targets()
    found = load(json.loads(json.dumps(dump(profile))))
    assert found.reference == "h100"
    known, new = found.kinds
    assert replace(known, fit=profile.fit) == profile.kinds[0]
    assert known.fit.known
    assert np.allclose(known.fit.gram, profile.fit.gram, rtol=1e-6)
    assert (new.target, new.speed, new.fit.known) == ("l40s", None, False)
    assert len(json.dumps(dump(profile))) - len(json.dumps(dump(replace(profile, kinds=())))) < 1_500


def test_a_pool_of_one_target_writes_the_profile_that_it_wrote_before() -> None:
    assert not {"kinds", "reference"} & dump(Profile()).keys()
    assert dump(of_two_targets()).keys() - dump(Profile()).keys() == {"kinds", "reference"}


@pytest.mark.parametrize(
    "figures",
    [
        {"target": ""},
        {"target": "x" * 400},
        {"speed": -1.0},
        {"speed": 1e-9},
        {"speed": 1e9},
        {"cold_start": {"seconds": "-60", "loading": []}},
        {"fit": {"gram": "0 0 0 0 0 0 0 0 0", "moment": "0 0 0", "windows": 9.0, "scale": 0.0, "drift": 0.0}},
        {"saturation": {"seconds": 600.0, "decoding": 4_800.0, "batch": 300.0}},
    ],
)
def test_impossible_figures_of_a_target_are_damage(figures: dict[str, object]) -> None:
    data = dump(of_two_targets())
    first, *others = data["kinds"]
    with pytest.raises(ValueError, match="damaged"):
        load(data | {"kinds": [first | figures, *others]})
    with pytest.raises(ValueError, match="damaged"):
        load(data | {"kinds": [first] * 9})


@pytest.mark.parametrize(
    "figures", [{"windows": -1.0}, {"windows": 9.0, "scale": 0.0}, {"windows": 9.0, "scale": 1e-200}]
)
def test_a_profile_of_an_engine_that_takes_no_time_is_damaged(figures: dict[str, float]) -> None:
    data = dump(Profile())
    with pytest.raises(ValueError, match="damaged"):
        load(data | {"fit": data["fit"] | figures})


@pytest.mark.parametrize(
    ("part", "figures"),
    [
        ("fit", {"gram": "0 0 0 0 0 0 0 0 0"}),
        ("fit", {"moment": "1e30 1e30 1e30"}),
        ("saturation", {"seconds": 600.0, "decoding": 4_800.0, "batch": 300.0}),
        ("saturation", {"seconds": 1e30, "decoding": 4_800.0, "batch": 8.0}),
    ],
)
def test_a_profile_whose_figures_contradict_each_other_is_damaged(part: str, figures: dict[str, object]) -> None:
    world = World(replicas=3)
    world.run(20.0, 10)
    data = dump(world.memory.profile)
    assert load(data).fit.known
    with pytest.raises(ValueError, match=f"damaged: {part}"):
        load(data | {part: data[part] | figures})


def test_months_after_a_replica_was_full_its_rates_are_not_known() -> None:
    """What was seen counts 1/e after four hours: after four months nothing is left of it."""
    profile = load(dump(Profile(saturation=Saturation(batch=8.0, most_running=8.0))))
    world = World(replicas=3, memory=Memory(profile=profile))
    assert isinstance(world.tick(20.0).decision.figures.full_requests, Unknown)


@pytest.mark.parametrize("version", [None, 1, 4, "3", [3]])
def test_a_profile_of_another_version_is_rejected(version: object) -> None:
    with pytest.raises(ValueError, match="this operator reads versions 2 and 3"):
        load(dump(Profile()) | {"version": version})


def test_a_profile_that_lacks_a_part_is_damaged() -> None:
    for part in ("at", "fit", "curve", "forecast", "cold_start", "budget", "calibration", "learned", "slo"):
        data = dump(Profile())
        del data[part]
        with pytest.raises(ValueError, match="damaged"):
            load(data)


def test_a_profile_from_before_full_batches_and_burn_rates_is_read() -> None:
    data = dump(Profile())
    del data["saturation"], data["fit"]["renewing"], data["budget"]["fast"], data["budget"]["slow"]
    assert load(data) == Profile()


def test_damage_names_its_place_and_its_reason() -> None:
    data = dump(Profile())
    with pytest.raises(ValueError, match=r"forecast\.pairs: .*number of figures must be a multiple of 6, got 4"):
        load(data | {"forecast": data["forecast"] | {"pairs": "1 2 3 4"}})
    data = dump(of_two_targets())
    first, second = data["kinds"]
    with pytest.raises(ValueError, match=r"damaged: kinds\.1\.fit: scale must be"):
        load(data | {"kinds": [first, second | {"fit": first["fit"] | {"scale": 0.0}}]})


@pytest.mark.parametrize("names", [{"needed": "mine"}, {"without": "mine"}, {"mine": float}])
def test_a_part_names_only_fields_that_the_core_has(names: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="ErrorBudget has no mine"):
        _part(ErrorBudget, **{"needed": "", **names})


def test_no_more_pairs_are_read_than_are_kept() -> None:
    data = dump(Profile())
    data["forecast"] |= {"pairs": "1.7 " * 6 * 2500}
    assert len(load(data).forecast.pairs) == KEPT


def test_the_full_batch_outlives_a_merge_patch_that_drops_nulls() -> None:
    for saturation in (Saturation(), Saturation(seconds=600.0, requests=500.0, decoding=4_800.0, batch=8.0123456789)):
        data = dump(Profile(saturation=saturation))
        data["saturation"] = {key: value for key, value in data["saturation"].items() if value is not None}
        assert load(data).saturation.batch == pytest.approx(saturation.batch, rel=1e-6)


def test_a_restart_resumes_with_the_learned_profile_and_holds_until_windows_fill() -> None:
    world = World(replicas=4)
    world.run(30.0, 30)
    learned = world.memory.profile
    world.memory = Memory(profile=load(dump(learned)))
    assert learned.budget != ErrorBudget()
    assert world.memory.profile.budget.slow == pytest.approx(learned.budget.slow)
    before = world.requested
    first = world.tick(30.0)
    assert first.decision.replicas == before
    second = world.tick(30.0)
    assert LimitName.CALIBRATING not in applied(second)
    assert second.decision.replicas == before
    solved, then = world.memory.profile.fit.solve(DEFAULT), learned.fit.solve(DEFAULT)
    assert solved is not None
    assert then is not None
    assert abs(solved.base - then.base) < 0.002


def test_a_learned_profile_is_read_as_it_was_to_seven_digits_and_four_of_a_settled_forecast() -> None:
    world = World(replicas=3)
    world.run(20.0, 30)
    learned = world.memory.profile
    found = load(json.loads(json.dumps(dump(learned))))
    assert len(learned.forecast.pending) > 0
    assert found.forecast.pending == ()
    assert len(found.forecast.pairs) > 0
    np.testing.assert_allclose(found.forecast.pairs, learned.forecast.pairs, rtol=5e-4)
    np.testing.assert_allclose(found.forecast.mean, learned.forecast.mean, rtol=1e-6)
    np.testing.assert_allclose(found.curve.requests, learned.curve.requests, rtol=1e-6)
    np.testing.assert_allclose(found.curve.late, learned.curve.late, rtol=1e-6)
    np.testing.assert_allclose(found.fit.gram, learned.fit.gram, rtol=1e-6)
    assert found.at == pytest.approx(learned.at, abs=1e-3)
    assert found.slo == learned.slo
    assert found.calibration.predicted == pytest.approx(learned.calibration.predicted, rel=1e-6)
    assert found.calibration.observed == pytest.approx(learned.calibration.observed, rel=1e-6)
    assert found.forecast.initial_replicas == learned.forecast.initial_replicas == 3
    assert len(json.dumps(dump(learned))) < 12_000


def check(sequence: Sequence) -> None:
    """What is written of any memory can be read, and is written the same again."""
    pool, observed = sequence
    memory = Memory()
    for now, observation in observed:
        memory = decide(observation, pool, memory, now).memory
        data = dump(memory.profile)
        assert dump(load(json.loads(json.dumps(data, allow_nan=False)))) == data


@fuzzed(0.25)
@given(sequences())
def test_a_profile_of_any_sequence_can_be_read_again(sequence: Sequence) -> None:
    check(sequence)


@fuzzed(0.25)
@given(lives())
@example(HUGE_DEMAND)
def test_a_profile_of_any_life_of_a_fleet_can_be_read_again(life: Life) -> None:
    pool, spells = life
    check((pool, list(live(pool, spells))))
