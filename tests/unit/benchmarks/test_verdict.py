"""The guard's verdict: what a core may lose, and that small losses do not add up unseen."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
import verdict
from verdict import Landed, Rows, Scale, by_row, together

BASE: Rows = {
    "with history: ramp": [[0.9600, 10.0, 0.95], [0.9520, 10.0, 0.95]],
    "with history: code": [[0.9700, 40.0, 0.95], [0.9400, 40.0, 0.95]],
}


def varied(attained: float = 0.0, cost: float = 1.0, row: str = "") -> Rows:
    """Every row, or one, moved so far."""
    return {
        name: [[seed[0] + attained, seed[1] * cost, seed[2]] if row in name else seed for seed in seeds]
        for name, seeds in BASE.items()
    }


@pytest.mark.parametrize(
    ("now", "broken"),
    [
        (BASE, []),
        (varied(-0.0014, 1.0049), []),
        (varied(-0.0016), ["attainment fell"]),
        (varied(cost=1.0051), ["GPU-hours rose"]),
        # A geometric mean: a case of many GPU-hours counts as much as one of few.
        (varied(cost=1.012, row="ramp"), ["GPU-hours rose"]),
        (varied(cost=1.009, row="code"), []),
        (varied(-0.0025, row="ramp"), ["ramp, seed 1 (95.200% -> 94.950%), no longer holds"]),
        # A seed that missed before may miss by more; the mean of the case may not.
        (BASE | {"with history: code": [[0.9790, 40.0, 0.95], [0.9310, 40.0, 0.95]]}, []),
        (
            BASE | {"with history: code": [[0.9590, 40.0, 0.95], [0.9390, 40.0, 0.95]]},
            ["attainment fell", "code, the mean (95.500% -> 94.900%), no longer holds"],
        ),
    ],
)
def test_the_guard_has_limits_on_means_and_lets_no_seed_slip(now: Rows, broken: list[str]) -> None:
    told = together(BASE, now)[1]
    assert len(told) == len(broken)
    assert all(words in line for words, line in zip(broken, told, strict=True))


def test_the_odd_engines_have_limits_on_each_row() -> None:
    assert by_row(BASE, varied(-0.0099))[1] == []
    assert by_row(BASE, varied(-0.011, row="ramp"))[1] == ["with history: ramp attains 1.10 points less"]
    assert by_row(BASE, varied(cost=1.0049, row="ramp"))[1] == []
    assert by_row(BASE, varied(cost=1.006, row="ramp"))[1] == ["with history: ramp takes 0.060 replicas more"]


@pytest.fixture
def scale(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Scale:
    """What landed, and the anchor, are BASE."""
    monkeypatch.setattr(verdict, "LANDED", tmp_path)
    scale = Scale("guard", (), together)
    for file in (scale.file, scale.anchor):
        Landed("47c9aca0", "of before", "", BASE).save(file)
    return scale


def test_small_losses_end_at_the_anchor_that_moves_with_a_reason(
    scale: Scale, capsys: pytest.CaptureFixture[str]
) -> None:
    def landed(loss: float, reason: str = "") -> bool:
        asked = argparse.Namespace(against="", publish=True, reason=reason, cases=None)
        return scale.conclude(varied(-loss), asked)

    assert scale.known() is None
    assert landed(0.0)
    assert capsys.readouterr().out.count("held. every figure is the same.") == 2
    assert scale.known() == BASE, "so nothing is computed"
    assert landed(0.0012)
    assert not landed(0.0019), "it is 0.07 points below what landed last, and 0.19 below the anchor"
    out = capsys.readouterr().out
    assert "with history: ramp: 95.880%, 95.080% -> 95.810%, 95.010%; cost 20.000 -> 20.000" in out
    assert "against what landed last" in out
    assert "against the anchor (core 47c9aca0): WORSE: attainment fell by more than 0.15%" in out
    assert scale.known() == varied(-0.0012), "what does not hold is not published"
    assert landed(0.0019, "prompts of another length are measured now")
    assert Landed.read(scale.anchor.read_bytes()).reason == "prompts of another length are measured now"
    assert landed(0.0019)
