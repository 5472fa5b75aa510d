"""`servingpool check-profile`: a profile of one's own, on a page of an engine that nobody here has heard of."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from servingpool.cli.main import app

ENGINES = Path(__file__).parents[2] / "fixtures" / "engines"
PROFILE = """
doc: An engine of our own.
modelLabel: model
sumOver: [shard]
figures:
  running: [acme_running]
  waiting: [acme_waiting]
  generationTokens: [{name: acme_tokens_total, labels: {kind: output}}]
  promptTokens: [{name: acme_tokens_total, labels: {kind: [input, cached]}}]
  cachedPromptTokens: [{name: acme_tokens_total, labels: {kind: cached}}]
  timeToFirstToken: [{name: acme_ttft_new, versions: since 2}, acme_ttft]
  interTokenLatency: [{sum: [acme_decode_seconds_total], count: [acme_steps_total, -acme_ttft_count]}]
"""
PAGE = """
acme_running{model="m",shard="a"} 2
acme_running{model="m",shard="b"} 3
acme_waiting{model="m",shard="a"} 0
acme_tokens_total{model="m",kind="output"} 50
acme_tokens_total{model="m",kind="input"} 400
acme_tokens_total{model="m",kind="cached"} 100
acme_ttft_bucket{model="m",le="1.0"} 9
acme_ttft_bucket{model="m",le="+Inf"} 10
acme_ttft_sum{model="m"} 5
acme_ttft_count{model="m"} 10
acme_decode_seconds_total{model="m"} 4
acme_steps_total{model="m"} 50
"""


def check(tmp_path: Path, profile: str = PROFILE, page: str = PAGE) -> Result:
    (tmp_path / "profile.yaml").write_text(profile)
    (tmp_path / "page.txt").write_text(page)
    arguments = ["check-profile", str(tmp_path / "profile.yaml"), "--page", str(tmp_path / "page.txt")]
    return CliRunner().invoke(app, arguments)


def test_each_figure_is_shown_with_its_value_and_its_series(tmp_path: Path) -> None:
    result = check(tmp_path)
    assert result.exit_code == 0, result.stderr
    lines = {line.split()[0]: " ".join(line.split()[1:]) for line in result.stdout.splitlines()}
    assert lines["running"] == '5 acme_running{model="m", shard="a|b"}'
    assert lines["promptTokens"] == '500 acme_tokens_total{kind="cached|input", model="m"}'
    assert lines["generationTokens"].startswith("50 ")
    assert lines["cachedPromptTokens"].startswith("100 ")
    assert lines["timeToFirstToken"] == '10, mean 0.5 s acme_ttft{model="m"}'
    assert lines["interTokenLatency"].startswith("40, mean 0.1 s (acme_decode_seconds_total) over (acme_steps_total - ")
    assert lines["queueTime"] == "- the profile names no series for it"


def test_helm_values_with_one_engine_are_taken_too(tmp_path: Path) -> None:
    profile = yaml.safe_load(PROFILE)
    assert check(tmp_path, yaml.safe_dump({"engines": {"acme": profile}})).stdout == check(tmp_path).stdout
    result = check(tmp_path, yaml.safe_dump({"engines": {"acme": profile, "other": profile}}))
    assert result.exit_code == 2
    assert "must hold one profile under engines, got 2" in result.stderr


def test_what_is_missing_and_needed_is_an_error_with_the_names_that_were_looked_for(tmp_path: Path) -> None:
    result = check(tmp_path, page=PAGE.replace("acme_ttft", "acme_first").replace("acme_waiting", "acme_queue"))
    assert result.exit_code == 1
    assert "none of acme_ttft_new (since 2), acme_ttft" in result.stdout
    missing = "Missing, and needed for decisions: waiting, timeToFirstToken, interTokenLatency."
    assert missing in result.stderr


def test_a_page_of_another_label_is_told(tmp_path: Path) -> None:
    result = check(tmp_path, page=PAGE.replace('model="m"', 'model_name="m"'))
    assert result.exit_code == 1
    assert "The page has no series of the profile with label model." in result.stderr


@pytest.mark.parametrize(
    ("profile", "said"),
    [
        ("modelLabel: 5x", "modelLabel: string should match pattern '^[a-zA-Z_][a-zA-Z0-9_]*$', got '5x'"),
        ("figures: {runing: [a]}", "figures.runing.[key]: input should be 'running', 'waiting'"),
        (
            "figures: {running: [{name: a, counted: late}]}",
            "counted: input should be 'smooth' or 'atFinish', got 'late'",
        ),
        ("figures: {running: []}", "figures.running must name a series, got an empty list"),
        ("figures: {running: [{note: b}]}", "must have either name, or sum, or sum and count"),
        ("figures: {running: [{sum: [a], count: [b]}]}", "figures.running must have name, or sum alone, without count"),
        ("figures: {interTokenLatency: [{sum: [a]}]}", "interTokenLatency must have name, or sum and count together"),
        ("figures: {queueTime: [{name: a, labels: {b: c}}]}", "figures.queueTime must not have labels, as a histogram"),
        ("figures: {timeToFirstToken: [{sum: [a], count: [b]}]}", "must have a name: an SLO is judged by its buckets"),
        ("figures: {begun: [{sum: [-a, -b]}]}", "figures.begun[0]: must add a metric, got -a, -b"),
        ("figures: {running: [{name: a, labels: {b: []}}]}", "labels.b: tuple should have at least 1 item"),
        ("excluded: {b: ''}", "excluded.b[0]: string should have at least 1 character"),
        ("excluded: {is_streaming: false}", "excluded.is_streaming[0]: input should be a valid string, got False"),
        (
            "figures: {timeToFirstToken: [{name: a, excluded: {b: c}}]}",
            "figures.begun must be there too: figures.timeToFirstToken leaves requests out",
        ),
        ("modelLable: a", "modelLable: there is no such field"),
        ("- a", "is not valid"),
        ("[" * 20_000, "is not YAML: it is nested too deeply"),
    ],
)
def test_a_profile_that_is_wrong_is_refused_by_field_with_what_is_allowed_and_given(
    tmp_path: Path, profile: str, said: str
) -> None:
    result = check(tmp_path, profile)
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_bucket_that_ends_at_no_number_is_left_out_and_named(tmp_path: Path) -> None:
    result = check(tmp_path, page=f'{PAGE}acme_ttft_bucket{{model="m",le="most"}} 7\n')
    assert result.exit_code == 0
    assert result.stderr == "acme_ttft_bucket has a bucket le='most', which is no number: it is left out.\n"
    assert "timeToFirstToken" in result.stdout


def test_series_that_differ_in_a_label_of_the_engines_own_are_added_up(tmp_path: Path) -> None:
    """Such as the tenant. The page is one scrape, so none of it is a twin."""
    tenants = PAGE.replace('acme_tokens_total{model="m"', 'acme_tokens_total{model="m",tenant="a"')
    tenants += 'acme_tokens_total{model="m",kind="output",tenant="b"} 25\n'
    result = check(tmp_path, page=tenants)
    assert result.exit_code == 0, result.stderr
    assert "generationTokens     75 " in result.stdout


def test_gauges_that_differ_in_a_label_that_nobody_named_are_unknown(tmp_path: Path) -> None:
    """They may be parts of a total, or copies of it."""
    page = PAGE + 'acme_waiting{model="m",shard="a",tenant="b"} 4\n'
    result = check(tmp_path, page=page)
    assert result.exit_code == 1
    assert "acme_waiting has several series that differ in tenant. The figure is unknown." in result.stderr
    for cure, waiting in (("sumOver: [shard, tenant]", "4 "), ("sumOver: [shard]\ncopiesBy: [tenant]", "4 ")):
        cured = check(tmp_path, profile=PROFILE.replace("sumOver: [shard]", cure), page=page)
        assert cured.exit_code == 0, cured.stderr
        assert f"waiting              {waiting}" in cured.stdout
