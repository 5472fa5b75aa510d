from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from typer.testing import Result

Command = Callable[..., Result]
BASE = ("simulate", "--pool", "pool.yaml", "--trace", "trace.csv", "--fleet", "h100-8b-tp1")


def test_exits_0_where_the_slo_was_held(servingpool: Command) -> None:
    result = servingpool(*BASE)
    assert result.exit_code == 0
    assert "100% of 800 requests: held" in result.output
    assert "$" in result.output
    assert "tokens per dollar" in result.output


def test_tokens_per_dollar_are_those_per_gpu_second_at_the_price_of_a_gpu_hour(servingpool: Command) -> None:
    score = orjson.loads(servingpool(*BASE, "-o", "json").stdout)["score"]
    per_dollar = re.search(r"tokens/s per GPU, ([\d,]+) tokens per dollar", servingpool(*BASE).output)
    assert per_dollar is not None
    assert int(per_dollar[1].replace(",", "")) == pytest.approx(score["tokens_per_gpu_second"] * 3600 / 3, abs=1)
    Path("pool.yaml").write_text(Path("pool.yaml").read_text().replace(", costPerReplicaHour: 3", ""))
    assert "dollar" not in servingpool(*BASE).output


def test_exits_3_where_the_slo_was_missed(servingpool: Command) -> None:
    Path("pool.yaml").write_text(Path("pool.yaml").read_text().replace("timeToFirstToken: 1s", "timeToFirstToken: 1ms"))
    result = servingpool(*BASE)
    assert result.exit_code == 3
    assert "0.0% of 800 requests: MISSED" in result.output


def test_schedules_count_from_the_time_at_which_a_trace_begins(servingpool: Command) -> None:
    pool = Path("pool.yaml").read_text()
    evening = "{name: evening, timeZone: Europe/Berlin, days: [Tue], start: '23:14', end: '23:15', min: 3}"
    Path("pool.yaml").write_text(f"{pool}  schedules: [{evening}]\n")
    found = orjson.loads(servingpool(*BASE, "-o", "json").stdout)
    assert found["changes"][0]["at"] == 0.0
    assert "min is 3 by schedule evening, which begins in 40 s" in found["changes"][0]["reason"]
    assert {
        requested
        for requested, at in zip(found["series"]["requested"], found["series"]["time"], strict=True)
        if at < 100
    } == {3}


def test_json_keys_are_stable(servingpool: Command) -> None:
    result = servingpool(*BASE, "-o", "json")
    found = orjson.loads(result.stdout)
    assert list(found) == ["format", "policy", "trace", "profile", "slo", "score", "series", "held", "changes"]
    assert (found["policy"], found["trace"], found["held"]) == ("servingpool", "trace", True)
    assert found["score"]["cost"] == pytest.approx(found["score"]["gpu_hours"] * 3)


def test_a_static_policy_has_its_size_from_the_start(servingpool: Command) -> None:
    found = orjson.loads(servingpool(*BASE, "--policy", "static:2", "-o", "json").stdout)
    assert found["changes"] == []
    assert set(found["series"]["requested"]) == {2}


def test_a_fleet_is_read_from_a_file(servingpool: Command) -> None:
    Path("fleet.yaml").write_text("{hardware: h100-8b-tp1, initialReplicas: 3, coldStart: 30s, routing: round-robin}")
    found = orjson.loads(servingpool(*BASE[:-1], "fleet.yaml", "--policy", "hpa-running:64", "-o", "json").stdout)
    assert found["policy"] == "HPA on running, 64"
    assert found["series"]["ready"][0] == 3


def test_a_baseline_runs_by_its_name_at_its_own_pace(servingpool: Command) -> None:
    found = orjson.loads(servingpool(*BASE, "--policy", "knative-kpa:8", "-o", "json").stdout)
    assert found["policy"] == "Knative KPA, 8"
    assert found["series"]["time"][:3] == [0.0, 2.0, 4.0]


@pytest.mark.parametrize("mode", ["Recommend", "Paused"])
def test_whatever_its_mode_a_pool_is_scaled(servingpool: Command, mode: str) -> None:
    auto = orjson.loads(servingpool(*BASE, "-o", "json").stdout)
    Path("pool.yaml").write_text(Path("pool.yaml").read_text() + f"  mode: {mode}\n")
    assert orjson.loads(servingpool(*BASE, "-o", "json").stdout) == auto


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--trace", "nope"), "trace must be one of azure-conv, azure-code, azure-conv-day"),
        (("--trace", "pool.yaml"), "the first line must name the columns TIMESTAMP, ContextTokens"),
        (("--trace", "one.csv"), "leaves nothing of a trace of 0 s"),
        (("--fleet", "b300"), "fleet must be a YAML file, or one of h100-8b-tp1"),
        (("--fleet", "typo.yaml"), "coldstart: there is no such field"),
        (("--pool", "nope.yaml"), "cannot read nope.yaml: No such file or directory"),
        (("--pool", "two.yaml"), "two.yaml must hold exactly 1 YAML document, it holds 2"),
        (
            ("--pool", "gateway.yaml"),
            "gateway.yaml: a simulated fleet has no gateway: set slo.measuredAt to Engine, got",
        ),
        (("--pool", "several.yaml"), "only pools of one target without a role are simulated: leave one of"),
        (
            ("--pool", "rate.yaml"),
            "rate.yaml: a run is judged by an SLO, which batch and throughput lack: give a pool with slo",
        ),
        (
            ("--fleet", "a100-70b-tp4", "--pool", "gpus.yaml"),
            "gpusPerReplica is 1, but a replica of a100-70b-tp4 has 4",
        ),
    ],
)
def test_unusable_input_ends_with_exit_code_2(servingpool: Command, arguments: tuple[str, ...], said: str) -> None:
    manifest = Path("pool.yaml").read_text()
    Path("one.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n0,10,10\n")
    Path("typo.yaml").write_text("{hardware: h100-8b-tp1, coldstart: 10s}")
    Path("two.yaml").write_text(f"{manifest}---\n{manifest}")
    Path("gateway.yaml").write_text(manifest.replace("slo: {", "slo: {measuredAt: Gateway, "))
    Path("several.yaml").write_text(manifest.replace("  targets:\n", "  targets:\n    - {name: spot, max: 4}\n"))
    rate = "throughput: {outputTokensPerSecond: 5000}"
    Path("rate.yaml").write_text(manifest.replace("slo: {timeToFirstToken: 1s, timePerOutputToken: 50ms}", rate))
    Path("gpus.yaml").write_text(manifest.replace("max: 4", "max: 4, gpusPerReplica: 1"))
    result = servingpool(*BASE, *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
