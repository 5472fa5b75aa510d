"""What was learned of a pool, written to the status of the resource and read again."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given

from servingpool.decision.decide import decide
from servingpool.decision.engine import Rates
from servingpool.decision.learn.forecast import FORECASTS_KEPT as KEPT
from servingpool.decision.learn.forecast import Busy
from servingpool.decision.learn.kinds import ColdStart, Kind
from servingpool.decision.learn.memory import Memory, Profile
from servingpool.decision.learn.miss_curve import BINS
from servingpool.decision.learn.step_time import Saturation
from servingpool.decision.observation import Unknown
from servingpool.decision.zero import Vanished
from servingpool.reconcile.keep.learned_profile import dump, load

from ..decision.sequences import (  # noqa: TID252, the same sequences as the core's promises are checked with
    HUGE_DEMAND,
    Life,
    Sequence,
    live,
    lives,
    sequences,
)
from ..decision.world import World  # noqa: TID252, the core's own stories
from ..fuzzing import fuzzed  # noqa: TID252, tests are no package of an installed name


@pytest.mark.parametrize(
    ("part", "figure", "value"),
    [
        ("calibration", "predicted", -30.0),
        ("forecast", "mean", "1 1 1"),
        ("forecast", "initial_replicas", 1e12),
        ("forecast", "pairs", "1e308 " * 6),
        ("curve", "requests", "1e300 " * len(BINS)),
        ("curve", "requests", "-300 " * len(BINS)),
        ("curve", "late", "1 " * len(BINS)),
        ("budget", "slow", -1e30),
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
        load(dump(profile) | {"busy": dump(profile)["busy"] | {"rates": "-1 1"}})


def of_two_targets() -> Profile:
    """The second one has not served yet."""
    world = World(replicas=3)
    world.run(20.0, 10)
    profile = world.memory.profile
    full = Saturation(seconds=600.0, requests=60.0, tokens=6_000.0, decoding=4_800.0, batch=8.0, most_running=8.0)
    kinds = (Kind("h100", profile.engine.fit, full, ColdStart((60.0, 70.0), ("a",)), 1.0), Kind("l40s"))
    return replace(profile, kinds=kinds, reference="h100")


def test_what_each_target_showed_is_read_again() -> None:
    profile = of_two_targets()
    found = load(json.loads(json.dumps(dump(profile))))
    assert found.reference == "h100"
    known, new = found.kinds
    assert replace(known, fit=profile.engine.fit) == profile.kinds[0]
    assert known.fit.known
    assert np.allclose(known.fit.gram, profile.engine.fit.gram, rtol=1e-6)
    assert (new.target, new.speed, new.fit.known) == ("l40s", None, False)
    assert len(json.dumps(dump(profile))) - len(json.dumps(dump(replace(profile, kinds=())))) < 1_500


@pytest.mark.parametrize(
    "figures",
    [
        {"target": "x" * 400},
        {"speed": -1.0},
        {"cold_start": {"seconds": "-60"}},
        {"fit": {"windows": -1.0}},
        {"fit": {"scale": 1e-200}},
        {"fit": {"gram": "0 0 0 0 0 0 0 0 0"}},
        {"fit": {"moment": "1e30 1e30 1e30"}},
        {"saturation": {"batch": 300.0}},
        {"saturation": {"seconds": 1e30}},
    ],
)
def test_impossible_figures_of_a_target_are_damage(figures: dict[str, object]) -> None:
    data = dump(of_two_targets())
    first, *others = data["kinds"]
    changed = {part: first[part] | more if isinstance(more, dict) else more for part, more in figures.items()}
    with pytest.raises(ValueError, match=r"damaged: kinds\.0"):
        load(data | {"kinds": [first | changed, *others]})
    with pytest.raises(ValueError, match="damaged"):
        load(data | {"kinds": [first] * 9})


def test_months_after_a_replica_was_full_its_rates_are_not_known() -> None:
    """What was seen counts 1/e after four hours: after four months nothing is left of it."""
    profile = load(dump(Profile(kinds=(Kind("", saturation=Saturation(batch=8.0, most_running=8.0)),))))
    world = World(replicas=3, memory=Memory(profile=profile))
    assert isinstance(world.tick(20.0).decision.figures.full_requests, Unknown)


@pytest.mark.parametrize("version", [None, 3, "4", [4]])
def test_a_profile_of_another_version_is_rejected(version: object) -> None:
    with pytest.raises(ValueError, match="this operator reads version 4"):
        load(dump(Profile()) | {"version": version})


def test_a_profile_that_lacks_a_part_is_damaged() -> None:
    for part in ("at", "kinds", "curve", "forecast", "budget", "calibration", "learned", "slo"):
        data = dump(Profile())
        del data[part]
        with pytest.raises(ValueError, match="damaged"):
            load(data)


def test_damage_names_its_place_and_its_reason() -> None:
    data = dump(Profile())
    with pytest.raises(ValueError, match=r"forecast\.pairs: .*number of figures must be a multiple of 6, got 4"):
        load(data | {"forecast": data["forecast"] | {"pairs": "1 2 3 4"}})
    data = dump(of_two_targets())
    first, second = data["kinds"]
    with pytest.raises(ValueError, match=r"damaged: kinds\.1\.fit: scale must be"):
        load(data | {"kinds": [first, second | {"fit": first["fit"] | {"scale": 0.0}}]})


def test_no_more_pairs_are_read_than_are_kept() -> None:
    data = dump(Profile())
    data["forecast"] |= {"pairs": "1.7 " * 6 * 2500}
    assert len(load(data).forecast.pairs) == KEPT


def test_the_full_batch_outlives_a_merge_patch_that_drops_nulls() -> None:
    for saturation in (Saturation(), Saturation(seconds=600.0, requests=500.0, decoding=4_800.0, batch=8.0123456789)):
        data = dump(Profile(kinds=(Kind("", saturation=saturation),)))
        [kind] = data["kinds"]
        kind["saturation"] = {key: value for key, value in kind["saturation"].items() if value is not None}
        assert load(data).engine.saturation.batch == pytest.approx(saturation.batch, rel=1e-6)


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
    np.testing.assert_allclose(found.engine.fit.gram, learned.engine.fit.gram, rtol=1e-6)
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
