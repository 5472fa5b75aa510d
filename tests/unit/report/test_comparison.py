from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from servingpool.decision.pool import Pool, Slo
from servingpool_simulation import demo
from servingpool_simulation.demo import HPA_TARGETS, Comparison, Role, Setup, compare
from servingpool_simulation.traces import poisson


@pytest.fixture
def unvaried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of a comparison's time is spent on other seeds and cold starts."""
    monkeypatch.setattr(demo, "LONGEST_VARIED", 0.0)


def test_every_policy_that_scales_starts_with_the_fleet_sized_for_the_peak(comparison: Comparison) -> None:
    peak = next(entry for entry in comparison.entries if entry.role is Role.PEAK)
    assert comparison.initial == peak.result.score.peak_replicas
    for entry in comparison.entries:
        if entry.changes:
            assert entry.changes[0].before == comparison.initial


@pytest.mark.usefixtures("unvaried")
def test_the_fleet_for_the_peak_is_larger_where_a_burst_is_lost_in_the_mean(comparison: Comparison) -> None:
    """A fixed fleet may attain over all and fail in the busy minutes: it is not sized for the peak."""
    trace = poisson("one burst", (1.0,) * 14 + (8.0,) + (1.0,) * 5, 60.0, prompt=1000, output=120)
    setup = replace(comparison.setup, trace=trace, pool=Pool(Slo(2.0, 0.15, 0.6), 1, 8))
    found = compare(setup)
    assert found.best is not None
    assert found.initial > found.best.score.peak_replicas
    assert [entry.role for entry in found.entries[:2]] == [Role.HINDSIGHT, Role.PEAK]


@pytest.mark.usefixtures("unvaried")
def test_one_fleet_is_named_once_where_it_is_best_and_sized_for_the_peak(comparison: Comparison) -> None:
    strict = replace(comparison.setup, pool=Pool(Slo(2.0, 0.15, 0.999), 1, 8))
    found = compare(strict)
    assert found.best is not None
    assert found.best.score.peak_replicas == found.initial
    assert [entry.role for entry in found.entries].count(Role.HINDSIGHT) == 0
    assert "also the smallest over the whole trace" in found.entries[0].settings


@pytest.mark.usefixtures("unvaried")
def test_where_no_fixed_fleet_attains_the_maximum_stands_for_the_peak(comparison: Comparison) -> None:
    found = compare(replace(comparison.setup, pool=Pool(Slo(2.0, 0.15, 0.95), 1, 1)))
    assert found.best is None
    assert found.entries[0].label == "static 1 (peak)"
    assert "no fixed fleet attains" in found.entries[0].settings


def test_every_change_is_told_with_the_decision_behind_it(comparison: Comparison) -> None:
    ours = comparison.ours
    score, hours = ours.result.score, comparison.setup.trace.duration / 3600
    assert len(ours.changes) == pytest.approx(score.scale_changes_per_hour * hours)
    assert len(ours.changes) > 0
    for change in ours.changes:
        assert change.decision is not None
        assert change.decision.replicas == change.after != change.before
        at = ours.result.series.time.index(change.at)
        assert ours.result.series.requested[at] == change.after


def test_the_same_setup_gives_the_same_comparison_and_progress_never_runs_past_its_total(
    setup: Setup, comparison: Comparison
) -> None:
    told: list[tuple[int, int]] = []
    found = compare(setup, lambda _, done, total: told.append((done, total)))
    assert found.to_dict() == comparison.to_dict()
    assert [done for done, _ in told] == list(range(len(told)))
    assert all(done < total for done, total in told)
    assert len(told) == told[-1][1]
    assert len(told) > len(found.statics) + len(HPA_TARGETS)


def test_what_came_before_is_shown_and_not_scored(setup: Setup, comparison: Comparison) -> None:
    """A pool that was watched for half an hour may shrink at once."""
    quiet = poisson("quiet", (0.5,), 1800.0, prompt=1000, output=120)
    told: list[tuple[int, int]] = []
    found = compare(replace(setup, past=quiet), lambda _, done, total: told.append((done, total)))
    assert len(told) == told[-1][1]
    for entry, alone in zip(found.entries, comparison.entries, strict=True):
        assert entry.result.score.requests == alone.result.score.requests
    assert found.variants[-1].name == "nothing seen before"
    assert dict(found.variants[-1].results)["servingpool"].score == comparison.ours.result.score
    assert found.ours.changes[0].at < comparison.ours.changes[0].at


def test_json_keys_are_stable(comparison: Comparison) -> None:
    found = orjson.loads(orjson.dumps(comparison.to_dict()))
    assert list(found) == ["format", "entries", "frontier", "variants"]
    assert list(found["entries"][-1]) == ["label", "role", "settings", "held", "result", "changes"]
    assert list(found["entries"][-1]["changes"][0]) == ["at", "before", "after", "ready", "reason", "need", "limits"]
    assert list(found["frontier"][0]) == ["label", "attainment", "gpu_hours", "average_replicas"]
    assert len(found["frontier"]) == len(comparison.statics) + len(HPA_TARGETS)
    assert [variant["name"] for variant in found["variants"]][:5] == [
        "other luck: seed 1",
        "other luck: seed 2",
        "other luck: seed 3",
        "cold start 30 s",
        "cold start 300 s",
    ]
