"""`servingpool backtest --from FILE`."""

from __future__ import annotations

import base64
import pickle
import re
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest
import typer
import yaml
from typer.testing import CliRunner, Result

from servingpool.adapters.cluster.errors import Forbidden
from servingpool.adapters.cluster.survey import Named
from servingpool.adapters.prometheus.backend_config import BackendConfig
from servingpool.cli import backtesting
from servingpool.cli import record as recording
from servingpool.cli.backtest import backtest
from servingpool.cli.figures import Target
from servingpool.cli.source import Where
from servingpool.reconcile.config import OperatorConfig
from servingpool.recording import verdict
from servingpool.recording.format import Chunk, Header
from servingpool_backtest import run
from servingpool_backtest.result import Backtest, Question
from servingpool_backtest.summary import Line, said, summary
from servingpool_simulation.hardware import engine_profile
from servingpool_simulation.traces import poisson

from .histories import recorded, write

Command = Callable[..., Result]
A100 = engine_profile("a100-70b-tp4")
ASKED = ("--ttft", "2s", "--prometheus", "http://prometheus")
BASE = ("backtest", "--from", "llama.rec", "--ttft", "2s", "--tpot", "150ms")


@cache
def busy() -> tuple[Header, list[Chunk]]:
    """The recording of a pool with a peak. It takes a second to make, so all tests share it."""
    trace = poisson("steps", (1.0, 14.0, 1.0), 800.0, prompt=1100, output=200)
    return recorded(trace, A100, 3)[:2]


@cache
def calm() -> tuple[Header, list[Chunk]]:
    """That of a quiet pool."""
    header, chunks, _ = recorded(poisson("calm", (2.0,), 1800.0, prompt=500, output=100), A100, 2)
    return header.model_copy(update={"target": "calm"}), chunks


KEPT: dict[bytes, Backtest] = {}


def replayed_once(header: Header, chunks: Iterable[Chunk], question: Question, *_: object, **__: object) -> Backtest:
    """What tests that ask for the same find: a replay takes seconds, and they are of what is told of it."""
    read = list(chunks)
    key = pickle.dumps((header, len(read), question))
    if key not in KEPT:
        KEPT[key] = run.backtest(header, read, question, processes=1)
    return KEPT[key]


@pytest.fixture
def servingpool(in_processes: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command that replays in this process, and neither a draw nor a question twice."""
    monkeypatch.setattr(backtesting, "backtest", replayed_once)
    monkeypatch.setattr(backtesting, "ProcessPoolExecutor", ThreadPoolExecutor)
    monkeypatch.setattr(run, "TIMES", 1)
    return in_processes


@pytest.fixture
def in_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    write(tmp_path / "llama.rec", *busy())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setenv("TERMINAL_WIDTH", "400")
    # These histories are of an hour at most, so that they are made in a second.
    monkeypatch.setattr(verdict, "LEAST", 0.0)
    monkeypatch.setattr(verdict, "MOST_APART", 1.0)
    app = typer.Typer()
    app.command()(backtest)
    app.command()(recording.record)
    return lambda *arguments: CliRunner().invoke(app, arguments)


def test_it_writes_one_page_that_needs_nothing_else(in_processes: Command) -> None:
    result = in_processes(*BASE)
    assert result.exit_code in {0, 3}, result.output
    assert re.search(r"Auto would have used [\d.]+ GPU-hours where [\d.]+ were used", result.output)
    page = Path("report/backtest.html").read_text()
    assert not re.search(r"""(src|href)=["'](?!#)|@import|url\((?!#)""", page)
    for part in ("What it could not know", "Every scale change of Auto, and why", "as it was, observed", "<svg"):
        assert part in page


def test_json_has_the_fleets_over_time_and_every_decision(servingpool: Command) -> None:
    found = orjson.loads(servingpool(*BASE, "--price", "8", "-o", "json").stdout)
    assert found["gpu_hours"]["saved"] == pytest.approx(found["gpu_hours"]["observed"] - found["gpu_hours"]["auto"])
    assert found["dollars"]["auto"] == pytest.approx(found["gpu_hours"]["auto"] / 4 * 8)
    assert len(found["decisions"]["time"]) == len(found["decisions"]["ready"]) > 100
    assert found["changes"]
    assert all(change["reason"] for change in found["changes"])
    assert {len(column) for column in found["series"]["auto"].values()} == {len(found["series"]["time"])}


def test_a_history_under_two_hours_has_no_verdict_but_a_band_and_when_to_ask_again(
    servingpool: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdict, "LEAST", 7200.0)
    result = servingpool(*BASE)
    assert result.exit_code == 5, result.output
    assert "No verdict yet. The history is " in result.output
    assert " long, and a verdict needs 2h: ask again in 1h" in result.output
    assert re.search(
        r"Auto may have used [\d.]+ to [\d.]+ GPU-hours where [\d.]+ were used, with \d+% to \d+%", result.output
    )
    page = Path("report/backtest.html").read_text()
    assert "No verdict yet." in page
    assert "SLO held" not in page
    found = orjson.loads(servingpool(*BASE, "-o", "json").stdout)
    assert found["verdict"] is None
    assert found["doubts"]


def test_a_pool_without_a_verdict_is_in_no_sum() -> None:
    sound = Line("chat/a", page="chat.a.html", held=True, was=10.0, auto=8.0)
    short = Line("chat/b", page="chat.b.html", was=90.0, auto=10.0, doubts=("The history is 10m long.",))
    assert said([sound, short]) == (
        "1 pool: Auto would have used 8.0 GPU-hours where 10.0 were used (20% less), and 1 would have kept the SLO. "
        "1 pool without a verdict yet"
    )
    assert said([short]) == "1 pool without a verdict yet"
    page = summary([sound, short], "servingpool backtest")
    assert "No verdict yet" in page
    assert "The history is 10m long." in page


def test_exits_3_where_auto_would_have_missed_the_slo(servingpool: Command) -> None:
    assert servingpool("backtest", "--from", "llama.rec", "--ttft", "50ms").exit_code == 3


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("backtest",), 2, "Give KIND/NAME, -A, --from FILE or --collect FILE"),
        (("backtest", "--from", "llama.rec"), 2, "give --ttft, --tpot or --pool"),
        ((*BASE, "--min", "17"), 2, "need 0 <= min <= max replicas, got min 17, max 16"),
        ((*BASE, "--cold-start", "2 minutes"), 2, "allowed: 1s to 1h"),
        (("backtest", "deployment/x", "--as-job", "i", "--pool", "x.yaml"), 2, "--as-job cannot be used with --pool"),
        (("backtest", "--collect", "llama.rec"), 1, "holds no line of"),
    ],
)
def test_bad_input_is_refused_with_what_is_allowed(
    servingpool: Command, arguments: tuple[str, ...], code: int, said: str
) -> None:
    result = servingpool(*arguments)
    assert result.exit_code == code
    assert said in result.output


def test_an_slo_measured_at_the_gateway_is_refused_because_a_recording_has_none(servingpool: Command) -> None:
    manifest = (
        "{apiVersion: servingpool.dev/v1alpha1, kind: ServingPool, metadata: {name: llama, namespace: chat}, spec: {"
        "model: llama, slo: {timeToFirstToken: 2s, measuredAt: %s}, targets: [{name: llama, min: 1, max: 16}]}}"
    )
    Path("pool.yaml").write_text(manifest % "Gateway")
    refused = servingpool("backtest", "--from", "llama.rec", "--pool", "pool.yaml")
    assert refused.exit_code == 2
    assert "set slo.measuredAt to Engine, got Gateway" in refused.output
    several = (manifest % "Engine").replace("targets: [", "targets: [{name: spot, max: 4}, ")
    Path("pool.yaml").write_text(several)
    refused = servingpool("backtest", "--from", "llama.rec", "--pool", "pool.yaml")
    assert refused.exit_code == 2
    assert "only pools of one target" in " ".join(refused.output.split())
    Path("pool.yaml").write_text(manifest % "Engine")
    assert servingpool("backtest", "--from", "llama.rec", "--pool", "pool.yaml").exit_code in {0, 3}


def test_schedules_count_at_the_times_of_the_history(servingpool: Command) -> None:
    """It is recorded from 22:13 to 22:53."""
    evening = "{name: evening, timeZone: UTC, start: '22:48', end: '22:52', min: 15}"
    Path("pool.yaml").write_text(
        "{apiVersion: servingpool.dev/v1alpha1, kind: ServingPool, metadata: {name: llama, namespace: chat}, spec: {"
        "model: llama, slo: {timeToFirstToken: 2s}, targets: [{name: llama, min: 1, max: 16}], "
        f"schedules: [{evening}]}}}}"
    )
    result = servingpool("backtest", "--from", "llama.rec", "--pool", "pool.yaml", "-o", "json")
    found = orjson.loads(result.stdout)
    [raised] = [change for change in found["changes"] if "min is 15 by schedule evening" in change["reason"]]
    assert raised["after"] == 15
    begins = datetime(2023, 11, 14, 22, 48, tzinfo=UTC).timestamp()
    assert 0.0 < begins - raised["at"] < 200.0
    assert "1 to 16 replicas of 4 GPUs; others by schedule evening" in Path("report/backtest.html").read_text()


@pytest.fixture
def two(servingpool: Command) -> Command:
    """A second recording beside the first, and one that was cut off."""
    write(Path("calm.rec"), *calm())
    Path("cut.rec").write_bytes(Path("calm.rec").read_bytes()[:200])
    return servingpool


BOTH = (*BASE, "--from", "calm.rec")


@pytest.fixture
def lines(two: Command) -> str:
    """What a Job's pods print of both."""
    return two(*BOTH, "-o", "lines").stdout


def test_several_pools_get_a_page_each_and_a_summary_with_links(in_processes: Command) -> None:
    write(Path("calm.rec"), *calm())
    result = in_processes(*BOTH, "--report", "out/all.html")
    assert result.exit_code in {0, 3}, result.output
    assert "2 pools: Auto would have used" in result.output
    summary = Path("out/all.html").read_text()
    for pool in ("llama", "calm"):
        assert f'href="chat.{pool}.html"' in summary
        assert f"Backtest of chat/{pool}" in Path(f"out/chat.{pool}.html").read_text()


def test_two_kinds_of_one_name_have_a_file_and_a_page_each(two: Command) -> None:
    header, chunks = calm()
    write(Path("statefulset.calm.rec"), header.model_copy(update={"sort": ("apps", "StatefulSet")}), chunks)
    result = two(*BASE, "--from", "calm.rec", "--from", "statefulset.calm.rec")
    assert "chat/calm: " in result.output
    assert "chat/calm (StatefulSet): " in result.output
    assert {"chat.calm.html", "chat.statefulset.calm.html"} <= {one.name for one in Path("report").iterdir()}
    files = [
        recording.file_of(Named("chat", kind, "calm"), with_namespace=False)
        for kind in ("deploy", "deployments.apps", "sts", "statefulset", "leaderworkerset.leaderworkerset.x-k8s.io")
    ]
    assert list(map(str, files)) == [
        *("calm.rec", "calm.rec"),
        *("statefulset.calm.rec", "statefulset.calm.rec", "leaderworkerset.calm.rec"),
    ]


def test_a_recording_of_another_kind_is_not_continued() -> None:
    header, _ = calm()

    def same(kind: str, sort: tuple[str, str]) -> bool:
        target = Target(header.namespace, kind, header.target)
        return recording._is_of(header.model_copy(update={"sort": sort}), target)

    assert same("deploy", ("apps", "Deployment"))
    assert not same("sts", ("apps", "Deployment"))
    assert not same("lws", ("apps", "Deployment"))
    assert same("lws", ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"))


def test_why_a_target_has_no_recording_has_the_api_servers_words(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Forbidden("Cannot read chat/llama: 403 Forbidden")
    refused.detail = 'User "alice" cannot list pods'

    def fails(*_: object) -> None:
        raise refused

    monkeypatch.setattr(recording, "attempt", fails)
    source = BackendConfig(url="http://prometheus")
    where = Where(OperatorConfig(backends=(source,)), source)
    found = recording.record_each([Named("chat", "sts", "llama")], 600.0, where, with_namespace=True)
    said = 'Cannot read chat/llama: 403 Forbidden: User "alice" cannot list pods'
    assert found == {Path("chat.statefulset.llama.rec"): said}


def test_a_pool_that_cannot_be_backtested_has_a_line_with_the_reason(two: Command) -> None:
    result = two(*BOTH, "--from", "cut.rec", "-o", "json")
    assert result.exit_code == 1
    found = orjson.loads(result.stdout)
    assert [one["target"] for one in found["pools"]] == ["chat/llama", "chat/calm"]
    assert "cut.rec holds no two scrapes" in found["failed"]["cut"]
    assert "cut.rec holds no two scrapes" in Path("report/backtest.html").read_text()


def test_a_jobs_lines_are_collected_into_the_same_pages(two: Command) -> None:
    directly = two(*BOTH, "--report", "direct/all.html")
    lines = two(*BOTH, "-o", "lines")
    assert lines.exit_code == 0
    assert len(lines.stdout.splitlines()) == 2
    Path("lines.txt").write_text(f"a pod's warning\n{lines.stdout}")
    collected = two("backtest", "--collect", "lines.txt", "--report", "collected/all.html")
    assert collected.exit_code == directly.exit_code
    assert Path("collected/chat.llama.html").read_text() == Path("direct/chat.llama.html").read_text()
    assert 'href="chat.calm.html"' in Path("collected/all.html").read_text()


def test_a_line_that_a_log_has_cut_is_told_and_the_others_are_collected(servingpool: Command) -> None:
    whole = a_line(Line("chat/calm", failed="no history"), b"")
    Path("lines.txt").write_text(f'{{"line":{{"target":"chat/llama"}},"shown":"eNq\n{whole[:-9]}\n{whole}\n')
    collected = servingpool("backtest", "--collect", "lines.txt", "--report", "all.html")
    assert collected.exit_code == 1
    assert "lines.txt has 2 lines that are cut short" in collected.output
    assert "no history" in Path("all.html").read_text()


def a_line(line: Line | dict[str, Any], shown: bytes) -> str:
    """As a Job's pod prints it, or somebody who prints beside it."""
    told = line if isinstance(line, dict) else asdict(line)
    return orjson.dumps({"line": told, "shown": base64.b64encode(zlib.compress(shown)).decode()}).decode()


def test_lines_name_no_file_and_bring_no_markup(two: Command, lines: str) -> None:
    """A pod with the Job's label adds lines of its own to the log."""
    true = lines.splitlines()[0]
    raw = orjson.loads(true)
    shown = orjson.loads(zlib.decompress(base64.b64decode(raw["shown"])))
    line = raw["line"]
    names = ("Makefile", ".envrc", "../up.html", "chat.llama.html", "chat.other.html")
    forged = [a_line(line | {"page": name, "target": "chat/mine"}, orjson.dumps(shown)) for name in names]
    forged += [
        a_line(line | {"target": target}, orjson.dumps(shown)) for target in ("../x", "chat/llama\n", "", "a/b/c")
    ]
    forged += [
        a_line(line, b"<script>alert(1)</script>"),
        a_line(line | {"was": "many"}, orjson.dumps(shown)),
        a_line(line, orjson.dumps(shown | {"curves": shown["curves"] | {"serving": [1.0]}})),
        a_line(line, orjson.dumps(shown | {"curves": shown["curves"] | {"width": 0}})),
        a_line(line, orjson.dumps(shown | {"curves": shown["curves"] | {"scored_until": 1e11}})),
        a_line(line, b"[" * 100_000),
        a_line(line, b" " * (65 * 2**20)),
    ]
    evil = "<script>alert(1)</script>"
    marked = shown | {"title": evil, "unknowns": [evil], "command": evil, "ruled": evil}
    Path("out").mkdir()
    Path("out/Makefile").write_text("all:\n")
    said = "\n".join([*forged, a_line(line | {"sentence": evil}, orjson.dumps(marked))])
    Path("lines.txt").write_text(f"{said}\n")
    result = two("backtest", "--collect", "lines.txt", "--report", "out/all.html")
    assert result.exit_code == 1
    assert f"lines.txt has {len(forged)} lines that are cut short or of no backtest" in result.output
    assert sorted(each.name for each in Path("out").iterdir()) == ["Makefile", "all.html", "chat.llama.html"]
    assert Path("out/Makefile").read_text() == "all:\n"
    assert evil not in Path("out/chat.llama.html").read_text() + Path("out/all.html").read_text()


def test_a_report_is_written_over_no_other_file(two: Command, lines: str) -> None:
    Path("lines.txt").write_text(lines)
    Path("out").mkdir()
    mine = Path("out/chat.llama.html")
    mine.write_text("<title>My own page</title>")
    refused = two("backtest", "--collect", "lines.txt", "--report", "out/all.html")
    assert refused.exit_code == 2
    assert "is no report of servingpool backtest" in " ".join(refused.output.replace("│", " ").split())
    assert mine.read_text() == "<title>My own page</title>"
    mine.unlink()
    for _ in range(2):
        assert two("backtest", "--collect", "lines.txt", "--report", "out/all.html").exit_code in {0, 3}
    assert "servingpool backtest: chat/llama" in mine.read_text()


def test_a_pod_that_was_tried_again_counts_once(two: Command, lines: str) -> None:
    Path("lines.txt").write_text(f"{lines}{lines}")
    assert "2 pools" in two("backtest", "--collect", "lines.txt", "--report", "all.html").output


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        ("[" * 20_000, "it is nested too deeply"),
        ("when: 2026-99-99", "month must be in 1..12"),
        ("# " + "x" * 5 * 2**20, "it is larger than 4 MiB"),
        ("{kind: ScaledObject, spec: []}", "ScaledObject is not complete"),
        ("{kind: ScaledObject, metadata: {name: x}, spec: {triggers: [1]}}", "ScaledObject is not complete"),
        ("{kind: HorizontalPodAutoscaler, spec: {metrics: 3}}", "HorizontalPodAutoscaler is not complete"),
        ("{kind: HorizontalPodAutoscaler, spec: {minReplicas: many}}", "HorizontalPodAutoscaler is not complete"),
        ("a: 1\n---\nb: 2", "it holds 2 documents"),
    ],
)
def test_an_autoscalers_file_that_is_none_is_refused(servingpool: Command, manifest: str, said: str) -> None:
    Path("scaler.yaml").write_text(manifest)
    result = servingpool(*BASE, "--autoscaler", "scaler.yaml")
    assert result.exit_code == 2
    assert said in " ".join(result.output.replace("│", " ").split())


def test_as_a_job_each_index_takes_its_share(servingpool: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ("backtest", "deployment/a", "deployment/b", "-n", "chat", *ASKED)
    monkeypatch.setattr("sys.argv", ["servingpool", *given, "--as-job", "tools:1"])
    result = servingpool(*given, "--as-job", "tools:1")
    account, role, binding, job = yaml.safe_load_all(result.stdout)
    assert (account["kind"], role["kind"], binding["kind"]) == ("ServiceAccount", "Role", "RoleBinding")
    assert (job["spec"]["completionMode"], job["spec"]["completions"]) == ("Indexed", 2)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "tools:1"
    assert container["args"] == [*given, "--shards", "2", "--output", "lines"]
    assert {one["metadata"]["namespace"] for one in (account, role, binding, job)} == {"chat"}


def test_an_index_records_and_replays_its_share_alone(servingpool: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def attempt(target: Target, *_: object) -> None:
        asked.append(target.name)
        raise recording.Failed("Prometheus does not answer.")

    monkeypatch.setattr(recording, "attempt", attempt)
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "1")
    names = ("deployment/c", "deployment/a", "deployment/b", "--shards", "2", "-o", "lines")
    result = servingpool("backtest", *names, *ASKED)
    assert asked == ["b"]
    (line,) = result.stdout.splitlines()
    assert orjson.loads(line)["line"]["failed"] == "Prometheus does not answer"
