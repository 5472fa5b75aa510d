from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from servingpool.api.serving_pool import ServingPool
from servingpool_lab.scenario import WORKLOADS, Scenario
from servingpool_lab.session import save_picture
from servingpool_lab.snapshot import Event, Snapshot
from servingpool_lab.view import plain
from servingpool_lab.view.chart import fit, latest, mean, stacked
from servingpool_lab.view.screen import Screen
from servingpool_lab.workload import serving_pool

SCENARIO = Scenario(WORKLOADS["conv"])
NOW = 1.76e9


def pool() -> ServingPool:
    at = datetime.fromtimestamp(NOW - 12, UTC).isoformat().replace("+00:00", "Z")
    raw = serving_pool(SCENARIO)
    raw["metadata"]["generation"] = 1
    raw["status"] = {
        "desiredReplicas": 4,
        "attainment": 97.31,
        "latency": {"timeToFirstToken": "1.32s", "timePerOutputToken": "61ms"},
        "lastDecision": {
            "at": at,
            "replicas": 4,
            "verdict": "ScaleUp",
            "reason": "scale up 3 -> 4: work for 2.2 busy replicas is expected in 62 s",
            "limits": [{"name": "Max", "before": 9, "after": 8, "reason": "spec.targets[0].max is 8"}],
            "warnings": ["prompts of 60,000 tokens miss the TTFT bound at any size"],
        },
    }
    return ServingPool.read(raw)


def snapshot(**changes: Any) -> Snapshot:
    ticks = 40
    series: dict[str, list[Any]] = {
        "time": [15.0 * (k + 1) for k in range(ticks)],
        "ready": [2] * 20 + [3] * 20,
        "loading": [0] * 16 + [1] * 4 + [0] * 20,
        "draining": [0] * ticks,
        "arrivals": [4.0 + 0.1 * k for k in range(ticks)],
    }
    truth = {
        "open": True,
        "seconds": 600.0,
        "replicas": {"ready": 3, "loading": 1, "draining": 0, "unready": 0},
        "arrivals": 5.6,
        "output_tokens": 1190.0,
        "prompt_tokens": 6136.0,
        "in_flight": 64,
        "queue": 2,
        "front_door": 0,
        "ended": {"finished": 3300, "rejected": 0, "lost": 0},
        "attainment": 0.9712,
        "ttft": 1.28,
        "tpot": 0.061,
        "gpus_per_replica": 4,
        "gpu_hours": 1.6,
        "static": {"replicas": 3, "attainment": 0.974},
    }
    known: dict[str, Any] = {
        "elapsed": 672.0,
        "unix": NOW,
        "parts": {"control plane": True, "Prometheus": True, "emulated fleet": True, "operator": True},
        "truth": truth,
        "series": series,
        "pool": pool(),
        "events": (Event(NOW - 12, "SuccessfulRescale", "New size: 4"),),
        "first_decision": 14.3,
    }
    return Snapshot(**(known | changes))


def drawn(look: Snapshot, width: int = 100, height: int = 30) -> list[str]:
    console = Console(width=width, height=height, file=io.StringIO(), record=True, force_terminal=True)
    console.print(Screen(look, SCENARIO, ["export KUBECONFIG=.lab/admin.kubeconfig", "kubectl get sp --watch"]))
    return console.export_text().splitlines()


@pytest.mark.parametrize(("width", "height"), [(100, 30), (80, 24), (80, 30), (120, 40), (200, 60), (60, 20)])
def test_a_frame_fits_the_window(width: int, height: int) -> None:
    lines = drawn(snapshot(), width, height)
    assert len(lines) <= height
    assert max(len(line) for line in lines) <= width


def test_a_frame_shows_what_a_person_wants_to_know() -> None:
    text = "\n".join(drawn(snapshot()))
    for wanted in (
        *("3 ready", "1 loading", "desired 4", "max 8", "1,190 tok/s", "2 waiting", "3,300 done"),
        *("TTFT p95", "2s", "1.32s", "1.28s", "TPOT p95", "150ms", "61ms"),
        *("95.0%", "97.3%", "97.1%", "1.60 GPU-hours", "2.00 with 3: -20%, attains 97.4%"),
        *("ScaleUp at 4", "scale up 3 -> 4", "Max 9 → 8", "prompts of 60,000 tokens", "14 s after start"),
        *("SuccessfulRescale", "● operator", "export KUBECONFIG=", "11:12"),
    ):
        assert wanted in text, wanted


def test_the_narrow_frame_cuts_no_figure() -> None:
    text = "\n".join(drawn(snapshot(), 80, 24))
    for wanted in ("1.28s", "1.32s", "150ms", "97.3%", "97.1%", "95.0%", "1.60 GPU-hours", "2.00 with 3: -20%"):
        assert wanted in text, wanted


def test_what_is_not_known_is_a_dash_and_not_a_zero() -> None:
    lines = drawn(Snapshot(elapsed=3.0, unix=NOW, parts={"control plane": True}))
    text = "\n".join(lines)
    assert "none yet" in text
    assert "desired –" in text
    assert "2 replicas load for about 60 s" in text
    assert "– ready" in text
    assert any("TTFT p95" in line and line.count("–") == 3 for line in lines)
    assert "0.00" not in text
    assert "0 waiting" not in text


def test_a_part_that_is_away_is_marked() -> None:
    parts = {"control plane": True, "Prometheus": False}
    text = "\n".join(drawn(snapshot(parts=parts)))
    assert "✗ Prometheus" in text
    assert "● control plane" in text


def test_text_from_the_cluster_is_not_taken_for_markup() -> None:
    events = (Event(NOW, "[bold]Odd", "spec.targets[0].max is [red]8"),)
    assert "spec.targets[0].max is [red]8" in "\n".join(drawn(snapshot(events=events)))


def test_a_line_for_a_log_has_all_of_it() -> None:
    text = plain.line(snapshot(), SCENARIO)
    assert "\n" not in text
    for wanted in ("11:12", "ready 3 +1 loading desired 4", "97.1% (operator: 97.3%)", "ScaleUp: scale up 3 -> 4"):
        assert wanted in text, wanted
    assert "no decision yet" in plain.line(Snapshot(elapsed=1.0, unix=NOW, parts={}), SCENARIO)


def test_a_picture_is_an_svg_of_the_frame(tmp_path: Any) -> None:
    path = tmp_path / "images" / "live.svg"
    save_picture(path, snapshot(), SCENARIO)
    svg = path.read_text()
    assert svg.startswith("<svg")
    assert "SuccessfulRescale" in svg
    assert "url(" not in svg.replace("url(#", "")


def test_a_long_run_fills_the_width_and_no_more() -> None:
    assert fit([1, 2, 3, 4, 5, 6], 3, latest) == [2, 4, 6]
    assert fit([1.0, 3.0, 5.0], 2, mean) == [1.0, 4.0]
    assert fit(list(range(104)), 88, latest)[-1] == 103
    assert len(fit(list(range(104)), 88, latest)) == 88
    assert fit([], 5, latest) == fit([1.0], 0, latest) == []


def test_a_replica_that_becomes_ready_within_a_column_is_counted_once() -> None:
    series = {**snapshot().series, "ready": [3] * 99 + [4] * 101, "loading": [0] * 95 + [1] * 4 + [0] * 101}
    series |= {"time": [15.0 * (k + 1) for k in range(200)], "arrivals": [5.0] * 200}
    lines = drawn(snapshot(series=series))
    assert lines[2].split()[1] == "4", lines[2]


def test_a_chart_stacks_loading_on_ready_and_marks_the_static_fleet() -> None:
    lines = stacked([2, 3, 0], [1, 0, 0], styles=("green", "yellow"), height=4, top=4, mark=3)
    assert [line.plain for line in lines] == ["▁▁▁", "██ ", "██ ", "██ "]
    assert lines[1].spans[0].style.color.name == "yellow"  # type: ignore[union-attr]
    assert lines[2].spans[0].style.color.name == "green"  # type: ignore[union-attr]
