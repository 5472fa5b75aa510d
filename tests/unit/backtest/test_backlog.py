"""A night's queue, served by a fleet that another autoscaler had: what the operator's rule would have done with it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from pathlib import Path

import orjson
import pytest
import typer
from typer.testing import CliRunner

from servingpool.cli.backtest import backtest
from servingpool.decision.observation import Histogram, ReplicaMetrics
from servingpool.decision.pool import Batch, Pool, Slo
from servingpool.recording.format import Chunk, Header, RecordingError
from servingpool_backtest.backlog import Backlogged, backlogged
from servingpool_backtest.result import Question

from .histories import header_of, write

HOUR = 3600.0
START, EACH = 120.0, 2.0
"""Seconds of a cold start, and of a replica for a request."""
BURSTS = ((HOUR, 6000.0), (6 * HOUR, 3000.0))


def night(replicas: int, tokens: float = 1.0, silent: Sequence[float] = (0.0, 0.0)) -> tuple[Header, list[Chunk]]:
    """So many replicas while requests wait, and 5 minutes longer; else none. `tokens`: what the backlog is told in."""
    samples, requested, backlog, lives, fleet, queue, idle = [], [], [], count(), dict[str, list[float]](), 0.0, 0.0
    for at in (15.0 * tick for tick in range(1, 2401)):
        queue += sum(requests for came, requests in BURSTS if came == at)
        idle = 0.0 if queue else idle + 15.0
        if queue and not fleet:
            fleet = {f"llama-7d8f9c5b6d-bcdf{next(lives)}": [at + START, 0.0] for _ in range(replicas)}
        fleet = fleet if idle < 300.0 else {}
        for pod, state in fleet.items():
            if at >= state[0]:
                queue, done = max(0.0, queue - 15.0 / EACH), min(queue, 15.0 / EACH)
                n = state[1] = state[1] + done
                ttft = Histogram((1.0,), (n,), n, n)
                figures = {"prompt_tokens": 600.0 * n, "generation_tokens": 200.0 * n, "time_to_first_token": ttft}
                samples.append(ReplicaMetrics(pod, at, running=10.0 * (done > 0.0), waiting=0.0, **figures))  # type: ignore[arg-type]
        requested.append((at, float(len(fleet))))
        if not silent[0] <= at < silent[1]:
            backlog.append((at, queue * tokens))
    return header_of(0.0, 10 * HOUR), [Chunk.of(0.0, 10 * HOUR, samples, requested, backlog)]


def replayed(history: tuple[Header, list[Chunk]], within: float, unit: str = "requests") -> Backlogged:
    batch = Batch(within=within, unit=unit)
    return backlogged(*history, Question(Pool(Slo(600.0), 0, 8, batch=batch)), batch)


@pytest.mark.parametrize(("tokens", "unit"), [(1.0, "requests"), (800.0, "tokens")])
def test_the_rule_does_in_time_what_was_done_with_fewer_replicas(tokens: float, unit: str) -> None:
    found = replayed(night(4, tokens), 3 * HOUR, unit)
    assert found.due == pytest.approx(9000.0 * tokens)
    work = 9000.0 * EACH / HOUR * 4
    assert found.was == pytest.approx(
        {"in_time": 1, "gpu_hours": work + 3.7, "most_replicas": 4, "cold_starts": 8}, rel=0.01
    )
    assert found.auto["in_time"] == 1.0
    assert found.auto["most_replicas"] == 2.0
    assert work < found.auto["gpu_hours"] < work + 1.0
    assert found.doubts == ()


def test_a_fleet_that_was_too_small_was_late_and_auto_is_not() -> None:
    found = replayed(night(1), 3 * HOUR)
    late = 6000.0 - (3 * HOUR - START) / EACH
    assert (found.was["in_time"], found.auto["in_time"]) == (pytest.approx(1.0 - late / 9000.0, rel=0.005), 1.0)


def test_a_source_that_was_silent_is_told_and_for_too_long_gives_no_verdict() -> None:
    short, long = (replayed(night(4, silent=(6.2 * HOUR, until * HOUR)), 3 * HOUR) for until in (6.4, 8.0))
    assert short.unknowns[0].startswith("The backlog is unknown for 12m")
    assert (short.doubts, short.auto["in_time"]) == ((), 1.0)
    assert "Data are missing for 1h48m" in long.sentence()
    with pytest.raises(RecordingError, match="holds no backlog"):
        replayed(night(4, silent=(0.0, 10 * HOUR + 1.0)), HOUR)


def test_the_command_prints_both_fleets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("night.rec"), *night(4))
    batch = "{finishWithin: 3h, backlog: {query: sum(queue)}}"
    spec = f"{{model: llama, batch: {batch}, targets: [{{name: llama, min: 0, max: 8}}]}}"
    of = "apiVersion: servingpool.dev/v1alpha1, kind: ServingPool, metadata: {name: llama, namespace: chat}"
    Path("pool.yaml").write_text(f"{{{of}, spec: {spec}}}")
    app, base = typer.Typer(), ["--from", "night.rec", "--pool", "pool.yaml"]
    app.command()(backtest)
    shown = CliRunner().invoke(app, base)
    assert (shown.exit_code, "GPU-hours      23.5       20.8" in shown.output) == (0, True), shown.output
    assert orjson.loads(CliRunner().invoke(app, [*base, "-o", "json"]).stdout)["auto"]["most_replicas"] == 2
    assert "a pool with batch is backtested alone" in CliRunner().invoke(app, [*base, "--from", "other.rec"]).output
