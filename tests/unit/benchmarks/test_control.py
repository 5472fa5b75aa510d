from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import goals
import orjson
import pages
import plots
import pytest
import store
import tables
import work
from bench import PUBLISHED, enter
from cases import CASES, Case, Kind
from results import CaseResults, Run, baseline_runs
from sweeps import STEPS

from servingpool.decision.pool import Slo
from servingpool_simulation.baselines.catalogue import BASELINES
from servingpool_simulation.hardware import engine_profile
from servingpool_simulation.report.figures import percent
from servingpool_simulation.traces import poisson

TINY = Case(
    *("tiny", "five minutes, A100 70B TP4", Kind.BURST),
    lambda seed: poisson("tiny", (2.0, 8.0, 2.0), 100.0, prompt=1000, output=100, seed=seed),
    *(engine_profile("a100-70b-tp4"), Slo(2.0, 0.15), 6),
    lambda seed: poisson("before", (4.0,), 60.0, prompt=1000, output=100, seed=seed + 1),
)


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(CASES, "tiny", TINY)
    work.trace_of.cache_clear()


def a_run(attainment: float, gpu_hours: float, **other: Any) -> Run:
    score: dict[str, Any] = {
        "attainment": attainment,
        "settled_attainment": attainment,
        "gpu_hours": gpu_hours,
        "requests": 1000,
        "average_replicas": 2.0,
        "peak_replicas": 3,
        "scale_changes_per_hour": 4.0,
        "flapping": 0.0,
        "ttft": {"p95": 1.0},
        "tpot": {"p95": 0.1},
    }
    return Run(0.95, score | other)


def results_of(kind: Kind = Kind.BURST, **named: Any) -> CaseResults:
    case = Case("tiny", "tiny", kind, TINY.trace, TINY.profile, TINY.slo, 6, TINY.past)
    return CaseResults(case, **named)


def a_baseline(slug: str, default: Run, tuned: Run | None = None) -> Any:
    baseline = next(baseline for baseline in BASELINES if baseline.slug == slug)
    other = next(value for value in baseline.grid if value != baseline.default)
    tried = [{"value": baseline.default, "score": default.score}]
    tried += [] if tuned is None else [{"value": other, "score": tuned.score}]
    best = None if tuned is None else other
    return baseline_runs(0.95, slug, {"default": baseline.default, "best": best, "tried": tried})


class TestWhatIsKept:
    def test_it_is_found_again_and_half_a_file_is_none(self) -> None:
        path = store.place("tiny", (1, "a"), ())
        assert store.load(path) is None
        store.save(path, {"x": 1.5})
        assert store.load(path) == {"x": 1.5}
        path.write_bytes(b'{"x": 1')
        assert store.load(path) is None

    def test_each_input_has_its_own_place(self) -> None:
        pieces = [
            *(work.OurRun("tiny", 3, seed, history) for seed in (0, 1) for history in (False, True)),
            *(work.BaselineRuns("tiny", 3, "keda", how) for how in ("default", "grid")),
            *(work.Oracle("tiny", initial, 1000) for initial in (2, 3)),
        ]
        assert len({piece.kept() for piece in pieces}) == len(pieces)


def test_a_case_is_computed_and_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = CaseResults(TINY)
    statics = work.Statics("tiny").done()
    results.static_size = size = statics["best"]
    results.fleets = [Run.read(0.95, fleet) for fleet in statics["fleets"]]
    pieces = [
        work.Oracle("tiny", size, 60_000),
        work.OurRun("tiny", size, 0, False),
        work.OurRun("tiny", size, 0, True),
        work.AblationRun("tiny", size, 0, True, "penalty"),
        work.BaselineRuns("tiny", size, "hpa-running", "bisect"),
        work.BaselineRuns("tiny", size, "keda", "default"),
    ]
    for piece in pieces:
        enter(results, piece, piece.done())
        assert store.load(piece.kept()) is not None
    assert results.static is not None
    assert results.static.held
    assert results.oracle is not None
    assert results.oracle.cost < results.static.cost
    assert results.our(history=True).score["requests"] == results.our(history=False).score["requests"]  # type: ignore[union-attr]
    found = pages.Publication([results], [], 0, "a command")
    pages.publish(found, tmp_path / "another's plots", tmp_path / "drawings")
    assert names(tmp_path / "another's plots") == ["README.md", "cases.md", "summary.svg"]
    assert names(tmp_path / "drawings") == ["course-tiny.svg", "frontier-tiny.svg"]
    monkeypatch.setattr(pages, "EXAMPLE", "tiny")
    for folder in ("once", "again"):
        pages.publish(found, tmp_path / folder, tmp_path / "drawings")
    pages.write_figures(found, tmp_path / "build" / "control.json")
    files = names(tmp_path / "once")
    assert files == ["README.md", "cases.md", "course-tiny.svg", "frontier-tiny.svg", "summary.svg"]
    for name in files:
        assert (tmp_path / "once" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
    document = orjson.loads((tmp_path / "build" / "control.json").read_bytes())
    assert document["cases"]["tiny"]["best_static"]["peak_replicas"] == size
    page = (tmp_path / "once" / "cases.md").read_text()
    assert "HPA on running" in page
    assert "KEDA production-stack" in page
    assert "](frontier-tiny.svg)" in page
    front = (tmp_path / "once" / "README.md").read_text()
    for name, written in (("README.md", front), ("cases.md", page)):
        assert set(form(written.replace("tiny", "conv"))) <= set(form((PUBLISHED / name).read_text()))
    (penalty,) = (line for line in tables.ablations_table([results]).splitlines() if line.startswith("| penalty: "))
    without, whole = results.without["penalty"][True, 0], results.ours[True, 0]
    more = f"{without.cost / whole.cost - 1.0:+.1%}"
    figures = penalty.rstrip(" |").split(" | ")[1:]
    assert figures[:6] == ["-"] * 4 + [percent(without.attainment), f"{int(not without.held)} of 1"]
    assert figures[6] == more


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def form(page: str) -> list[str]:
    """Headings, pictures and heads of tables: what is alike whatever was found."""
    return re.findall(r"^(?:#.*|!\[.*|\|.*(?=\n\| ---))", page, re.MULTILINE)


def test_the_committed_pages_are_of_the_form_that_is_written() -> None:
    front, cases = ((PUBLISHED / name).read_text() for name in ("README.md", "cases.md"))
    said = (pages.GROUND, pages.REACH, pages.TIMETABLE, pages.BASELINES_SAID, pages.GUARD, pages.IDEAS, pages.AGAIN)
    assert [text for text in said if text not in front] == []
    assert pages.CASES_SAID in cases
    assert pages.DRAWN in cases
    written = re.findall(r"^## (.+)$", cases, re.MULTILINE)
    assert re.findall(r"^\| \[(.+)\]\(cases\.md#\1\)", front, re.MULTILINE) == written
    assert set(written) == CASES.keys() - {"tiny", "replicas-300"}


class TestGoals:
    def test_a_miss_is_never_a_success_however_cheap(self) -> None:
        results = results_of(oracle=a_run(0.95, 10.0), fleets=[a_run(0.96, 20.0)], static_size=3)
        results.ours[False, 0] = a_run(0.94, 5.0)
        static, with_history = (goal for goal in goals.goals([results]) if "static" in goal.goal)
        assert [(judged.figure, judged.reached) for judged in static.judged] == [("0.25, missed (94.00%)", False)]
        assert not with_history.judged

    def test_a_last_digit_is_no_miss(self) -> None:
        """The same fleet all the hour, summed in another order, took 1.0000000000000002 times its own GPU-hours."""
        results = results_of(fleets=[a_run(0.96, 20.0)], static_size=3)
        for history, cost in ((False, math.nextafter(20.0, 21.0)), (True, 20.001)):
            results.ours[history, 0] = a_run(0.96, cost)
        static = [goal.judged[0].reached for goal in goals.goals([results]) if "static" in goal.goal]
        assert static == [True, False]

    def test_ratios_are_of_the_cheapest_that_holds_the_slo(self) -> None:
        results = results_of()
        results.ours[False, 0] = a_run(0.955, 6.0)
        results.baselines = {
            "keda": a_baseline("keda", a_run(0.5, 1.0), a_run(0.96, 7.5)),
            "hpa-running": a_baseline("hpa-running", a_run(0.97, 10.0)),
            "llmd-slo-aware": a_baseline("llmd-slo-aware", a_run(0.99, 12.0), a_run(0.95, 8.0)),
        }
        default, tuned = results.best_default(), results.best_tuned()
        assert default is not None
        assert tuned is not None
        assert (default.name, default.run.cost) == ("HPA on running", 10.0)
        assert (tuned.name.partition(" at ")[0], tuned.run.cost) == ("KEDA production-stack", 7.5)
        # 6.0 / 10.0 is 40% fewer, 6.0 / 7.5 is 20% fewer.
        figures = {goal.measure: goal.judged[0] for goal in goals.goals([results]) if "baseline" in goal.measure}
        assert [(judged.figure, judged.reached) for judged in figures.values()] == [("0.60", True), ("0.80", True)]

    def test_days_are_held_to_their_budget_and_calm(self) -> None:
        results = results_of(Kind.DAY, oracle=a_run(0.95, 10.0))
        results.ours[False, 0] = a_run(0.97, 11.9, scale_changes_per_hour=6.5, flapping=0.03)
        results.ours[True, 0] = a_run(0.96, 11.3, scale_changes_per_hour=5.0, flapping=0.01)
        found = {goal.measure: [judged.reached for judged in goal.judged] for goal in goals.goals([results])}
        assert found["day-long, day one"] == [True]  # 1.19 of 1.2
        assert found["day-long, day two (yesterday known)"] == [False]  # 1.13 of 1.12
        # Day one, then day two: 2 and 1 points above the target, 6.5 and 5 changes, 3% and 1% of them flaps.
        for measure in ("unused budget", "changes an hour", "down then up within two cold starts"):
            assert found[f"day-long, {measure}"] == [False, True]

    def test_step_times_that_change_are_to_be_learned_within_ten_minutes(self) -> None:
        def sweep(name: str, seconds: float | None, group: str = STEPS) -> dict[str, Any]:
            return {"name": name, "group": group, "relearned_after": seconds}

        varied = [
            {"name": "conv, unchanged", "group": "base"},
            sweep("conv, prefix cache 0 to 50%", 0.0, "upgrade"),
            sweep("conv, steps x 0.7", 600.0),
            sweep("conv, steps x 1.3", 615.0),
            sweep("code, steps x 1.3", None),
        ]
        *_, goal = goals.goals([], varied)
        assert [(judged.slug, judged.figure, judged.reached) for judged in goal.judged] == [
            ("conv steps x 0.7", "600 s", True),
            ("conv steps x 1.3", "615 s", False),
            ("code steps x 1.3", "never", False),
        ]

    def test_every_seed_counts(self) -> None:
        results = results_of()
        results.ours = {(False, 0): a_run(0.96, 5.0), (False, 1): a_run(0.90, 5.0, settled_attainment=0.951)}
        results.ours[True, 0], results.ours[True, 1] = a_run(0.96875, 5.0), a_run(0.9375, 5.0)
        first, of_seeds, known, known_of_seeds, *_ = goals.goals([results])
        assert [(judged.figure, judged.reached) for judged in first.judged] == [("95.10%", True)]
        assert [judged.figure for judged in of_seeds.judged] == ["95.55%"]
        assert [(judged.figure, judged.reached) for judged in known.judged] == [("93.75%", False)]
        assert [(judged.figure, judged.reached) for judged in known_of_seeds.judged] == [("95.31%", True)]
        (line,) = goals.losses([results])
        assert line == "`tiny`: misses the SLO in 1 of 2 seeds: 90.00% at worst, 95.10% after the first 10 minutes."


@pytest.mark.parametrize("guess", [1, 2, 7, 40, 90])
@pytest.mark.parametrize("needed", [1, 2, 6, 7, 8, 40, 41])
def test_the_best_static_fleet_is_found_from_any_guess(needed: int, guess: int) -> None:
    found = work.smallest(lambda size: size >= needed, guess, 40)
    assert found == (needed if needed <= 40 else None)


def test_what_an_idea_is_worth_is_told_apart_by_what_was_known() -> None:
    cases = [
        results_of(ours={(False, 0): a_run(0.96, 10.0), (True, 0): a_run(0.96, 10.0), (True, 1): a_run(0.97, 12.0)})
    ]
    cases.append(results_of(ours={(True, 0): a_run(0.98, 10.0)}))
    cases[0].without["penalty"] = {
        (False, 0): a_run(0.97, 9.0),
        (True, 0): a_run(0.94, 11.0),
        (True, 1): a_run(0.98, 22.0),
    }
    cases[1].without["penalty"] = {(True, 0): a_run(0.95, 9.0)}
    lines = tables.ablations_table(cases).splitlines()
    (whole,) = (line for line in lines if line.startswith("| nothing"))
    (penalty,) = (line for line in lines if line.startswith("| penalty"))
    assert whole.split(" | ")[1:5] == ["96.00%", "0 of 1", "+0.0%", "+0% to +0%"]
    assert penalty.split(" | ")[1:5] == ["97.00%", "0 of 1", "-10.0%", "-10% to -10%"]
    # Of the first case 94 and 98%, 33 GPU-hours for 22; of the second 95%, 9 for 10.
    assert penalty.rstrip(" |").split(" | ")[5:] == ["95.50%", "1 of 2", "+20.0%", "-10% to +50%"]
    (margin,) = (line for line in lines if line.startswith("| margin"))
    assert margin.rstrip(" |").split(" | ")[1:] == ["-"] * 8


def test_the_summary_marks_what_was_missed_and_what_is_off_the_scale() -> None:
    missed = results_of(oracle=a_run(0.95, 10.0))
    missed.ours[False, 0] = a_run(0.90, 12.0)
    missed.baselines = {"keda": a_baseline("keda", a_run(0.96, 80.0))}
    drawn = plots.summary([missed])
    assert "missed: 90.00%" in drawn
    assert "8.0x" in drawn
    assert drawn == plots.summary([missed])
