"""The operator's configuration: what is wrong is said before anything starts."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
import yaml

from servingpool.reconcile.config import ConfigError, OperatorConfig, load

ROOT = Path(__file__).parents[3]
BACKEND = "backends: [{name: default, url: 'http://prometheus:9090'}]\n"


def read(tmp_path: Path, text: str) -> OperatorConfig:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return load(path)


def test_a_backend_is_all_it_takes(tmp_path: Path) -> None:
    config = read(tmp_path, BACKEND)
    assert config.interval == 15.0
    assert (config.leader_election.duration, config.leader_election.deadline, config.leader_election.retry) == (
        15,
        10,
        2,
    )
    assert config.namespaces == ()


def test_durations_are_written_as_everywhere(tmp_path: Path) -> None:
    config = read(tmp_path, BACKEND + "interval: 5s\nleaderElection: {duration: 1m, deadline: 40s, retry: 500ms}\n")
    assert (config.interval, config.leader_election.duration, config.leader_election.retry) == (5.0, 60.0, 0.5)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not valid: input should be a valid dictionary"),
        ("backends: []", "backends: tuple should have at least 1 item"),
        ("[1, 2", "is not YAML"),
        ("[" * 20_000, "is not YAML: it is nested too deeply"),
        (BACKEND + "noted: 2026-99-99", "is not YAML: month must be in 1..12"),
        (BACKEND + "engines: {acme: {modelLabel: 5x}}", "engines.acme.modelLabel: string should match pattern"),
        (BACKEND + "engines: {acme: {figures: {runing: [a]}}}", "figures.runing.[key]: input should be 'running', "),
        (BACKEND + "engines: {Acme: {}}", "engines.Acme.[key]: string should match pattern"),
        (
            BACKEND + "engines: {acme: {figures: {running: [a], waiting: [b], timeToFirstToken: [c]}}}",
            "acme.figures must have generationTokens, promptTokens, interTokenLatency too: decisions need them",
        ),
        (
            BACKEND + "prices: {acme: {input: 0, output: 1, noted: 2026-11-01}}",
            "prices.acme.input: input should be greater than or equal to 0.0001, got 0",
        ),
        (
            BACKEND + "prices: {acme: {input: 1, output: 2, noted: 1 Nov 2026}}",
            "prices.acme.noted: must be a date such as 2026-11-01, got '1 Nov 2026'",
        ),
        (BACKEND + "prices: {'acme/70b': {}}", "prices.acme/70b.[key]: string should match pattern"),
        (BACKEND + "interval: 100ms", "interval: must be 1s to 1m, got 100ms"),
        (BACKEND + "interval: 15", "interval"),
        (BACKEND + "leaderElecton: {}", "leaderElecton: there is no such field"),
        (BACKEND + "leaderElection: {deadline: 20s}", "needs retry < deadline < duration, got 2s, 20s and 15s"),
        (BACKEND + "metricsPort: 99999", "metricsPort: input should be less than or equal to 65535, got 99999"),
        (
            "backends: [{name: a, url: 'http://x'}, {name: a, url: 'http://y'}]",
            "backends must have different names, got a twice",
        ),
        (
            "backends: [{name: slow, url: 'http://x', timeout: 1m}]",
            "backends: timeout of backend 'slow' must be 1s to 15s, which is the interval, got 60s",
        ),
        (
            "interval: 5s\nbackends: [{name: slow, url: 'http://x', timeout: 5500ms}]",
            "timeout of backend 'slow' must be 1s to 5s, which is the interval, got 5.5s",
        ),
        ("backends: [{name: a, url: 'ftp://x'}]", "must be http:// or https:// with a host, got 'ftp://x'"),
    ],
)
def test_an_error_names_file_field_and_value(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert said in str(caught.value)
    assert str(tmp_path / "config.yaml") in str(caught.value)


def test_a_backend_has_ten_seconds_and_no_more_than_the_interval(tmp_path: Path) -> None:
    assert [read(tmp_path, f"interval: {interval}\n{BACKEND}").backends[0].timeout for interval in ("1m", "5s")] == [
        10,
        5,
    ]
    longest = "interval: 20s\nbackends: [{name: default, url: 'http://prometheus:9090', timeout: 20s}]"
    assert read(tmp_path, longest).backends[0].timeout == 20.0


def test_no_price_is_shipped_and_a_date_is_read_as_yaml_and_as_helm_write_it(tmp_path: Path) -> None:
    assert read(tmp_path, BACKEND).prices == {}
    text = "prices: {a: {input: 1, output: 2, noted: 2026-11-01}, b-3.3: {input: 1, output: 2, noted: '2026-11-01'}}"
    prices = read(tmp_path, BACKEND + text).prices
    assert prices["a"] == prices["b-3.3"]
    assert prices["a"].noted == date(2026, 11, 1)


def test_a_missing_file_is_reported() -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*: No such file"):
        load(Path("no/such.yaml"))


def test_what_deploy_ships_is_valid(tmp_path: Path) -> None:
    manifest = yaml.safe_load((ROOT / "deploy" / "config.yaml").read_text())
    assert read(tmp_path, manifest["data"]["config.yaml"]).backends[0].name == "default"


def test_an_engine_of_ones_own_stands_beside_those_of_the_release_and_may_replace_one(tmp_path: Path) -> None:
    figures = ["running", "waiting", "generationTokens", "promptTokens", "timeToFirstToken", "interTokenLatency"]
    profile = {"modelLabel": "model", "figures": {figure: [f"acme_{figure}"] for figure in figures}}
    known = read(tmp_path, BACKEND + yaml.safe_dump({"engines": {"acme": profile, "vllm": profile}})).known_engines
    assert {"acme", "vllm", "sglang"} <= known.keys()
    assert known["vllm"] == known["acme"]
    assert known["sglang"].model_label == "model_name"
