from __future__ import annotations

from collections.abc import Callable

from servingpool_simulation.demo import Comparison
from servingpool_simulation.report.conclusion import Verdict, conclude

Imagine = Callable[..., Comparison]


def test_wins_where_every_baseline_that_held_cost_more(imagine: Imagine) -> None:
    found = conclude(imagine(peak=(0.99, 16.0), hpa=(0.99, 20.0), llmd=(0.98, 12.5), ours=(0.97, 10.0)))
    assert found.verdict is Verdict.CHEAPEST
    assert found.sentence == (
        "servingpool held the SLO at the lowest cost without hindsight: 97.00% of requests met the SLO (objective 95%) with "
        "10.0 GPU-hours, 20% less than llm-d slo-aware, 38% less than static 4 (peak) and 50% less than HPA on running; "
        "static 3 (hindsight) (50.0%) missed it."
    )


def test_says_so_where_a_baseline_did_it_for_less(imagine: Imagine) -> None:
    found = conclude(imagine(peak=(0.99, 16.0), hpa=(0.99, 8.0), ours=(0.97, 10.0)))
    assert found.verdict is Verdict.DEARER
    assert found.head == "servingpool held the SLO, but HPA on running did so for less"
    assert "25% more than HPA on running" in found.figures


def test_says_so_where_ours_missed(imagine: Imagine) -> None:
    found = conclude(imagine(peak=(0.99, 16.0), llmd=(0.96, 12.0), ours=(0.9492, 3.0)))
    assert found.verdict is Verdict.MISSED
    assert found.sentence == (
        "servingpool missed the SLO: 94.92% of requests met the SLO (objective 95%) with 3.0 GPU-hours; "
        "it was held by llm-d slo-aware with 12.0 and static 4 (peak) with 16.0."
    )


def test_a_baseline_that_missed_is_not_cheap(imagine: Imagine) -> None:
    found = conclude(imagine(peak=(0.99, 16.0), hpa=(0.9, 2.0), ours=(0.97, 10.0)))
    assert found.verdict is Verdict.CHEAPEST
    assert "HPA on running (90.00%)" in found.figures
    assert "than HPA" not in found.figures


def test_a_fleet_chosen_in_hindsight_is_told_but_is_no_alternative(imagine: Imagine) -> None:
    found = conclude(imagine(hindsight=(0.96, 8.0), peak=(0.99, 16.0), ours=(0.97, 10.0)))
    assert found.verdict is Verdict.CHEAPEST
    assert "25% more than static 3 (hindsight)" in found.figures


def test_half_a_percent_is_no_difference(imagine: Imagine) -> None:
    found = conclude(imagine(peak=(0.99, 10.02), ours=(0.97, 10.0)))
    assert found.verdict is Verdict.LEVEL
    assert "as much as static 4 (peak)" in found.figures


def test_nobody_held_it(imagine: Imagine) -> None:
    assert conclude(imagine()).sentence.endswith("; no policy held it.")


def test_ours_alone_held_it(imagine: Imagine) -> None:
    found = conclude(imagine(ours=(0.97, 50.0)))
    assert found.verdict is Verdict.CHEAPEST
    assert "less than" not in found.figures
