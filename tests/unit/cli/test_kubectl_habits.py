"""get, pause and resume, as a person types them; the API server is in tests/integration."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from servingpool.adapters.cluster.errors import ClusterError, Conflict, NotFound
from servingpool.adapters.cluster.pools import Pools, pool_path
from servingpool.cli.main import COMMANDS, app, loaded

BEFORE = "servingpool.dev/mode-before-pause"
COLUMNS = [
    {"name": "Name", "priority": 0},
    {"name": "Mode", "priority": 0},
    {"name": "Attainment", "priority": 0},
    {"name": "TTFT", "priority": 1},
]


def row(name: str, mode: str, namespace: str = "chat") -> dict[str, Any]:
    return {"cells": [name, mode, None, "1.3s"], "object": {"metadata": {"name": name, "namespace": namespace}}}


def table(*rows: dict[str, Any], first: bool = True) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": "7"}, "columnDefinitions": COLUMNS if first else None, "rows": list(rows)}


@dataclass
class FakePools:
    """`Pools`, with one pool."""

    mode: str | None = "Auto"
    annotations: dict[str, Any] = field(default_factory=dict)
    namespace: str = "chat"
    failure: ClusterError | None = None
    patches: list[dict[str, Any]] = field(default_factory=list)
    asked: list[tuple[str | None, str | None]] = field(default_factory=list)
    found: dict[str, Any] = field(default_factory=table)
    events: list[dict[str, Any]] = field(default_factory=list)

    def read(self, namespace: str | None, name: str | None, *, table: bool = False) -> dict[str, Any]:
        self.asked.append((namespace, name))
        if self.failure is not None:
            raise self.failure
        if table:
            return self.found
        if name is None:
            return {"items": [{"metadata": {"name": "qwen"}}, {"metadata": {"name": "llama"}}]}
        spec = {} if self.mode is None else {"mode": self.mode}
        meta = {"namespace": namespace, "name": name, "resourceVersion": "7"}
        return {"metadata": meta | ({"annotations": self.annotations} if self.annotations else {}), "spec": spec}

    def watch(self, *_: object, **__: object) -> Iterator[dict[str, Any]]:
        yield from self.events
        raise KeyboardInterrupt

    def patch(self, namespace: str, name: str, changes: dict[str, Any]) -> None:
        self.patches.append(changes)
        self.mode = changes["spec"]["mode"]
        self.annotations = {key: value for key, value in changes["metadata"]["annotations"].items() if value}


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> FakePools:
    fake = FakePools()
    monkeypatch.setattr(Pools, "connect", lambda *_: fake)
    return fake


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@pytest.mark.parametrize("mode", ["Auto", "Recommend", None])
def test_a_pause_and_a_resume_lead_back_to_the_mode_before(pools: FakePools, mode: str | None) -> None:
    pools.mode = mode
    paused = run("pause", "qwen")
    assert (paused.exit_code, pools.mode) == (0, "Paused")
    assert paused.stdout == f"ServingPool chat/qwen: {mode or 'Auto'} -> Paused. Replicas stay as they are.\n"
    assert run("pause", "qwen").stdout == "ServingPool chat/qwen is Paused already.\n"
    resumed = run("resume", "qwen")
    assert (resumed.exit_code, pools.mode, pools.annotations) == (0, mode or "Auto", {})
    assert resumed.stdout == f"ServingPool chat/qwen: Paused -> {mode or 'Auto'}.\n"
    assert len(pools.patches) == 2


def test_each_change_is_refused_if_the_pool_has_changed_meanwhile(pools: FakePools) -> None:
    run("pause", "qwen")
    run("resume", "qwen")
    assert [patch["metadata"]["resourceVersion"] for patch in pools.patches] == ["7", "7"]
    pools.failure = Conflict("Cannot change ServingPool chat/qwen: 409 the object has been modified")
    assert run("pause", "qwen").exit_code == 5


def test_a_pool_that_somebody_else_paused_is_not_guessed_at(pools: FakePools) -> None:
    pools.mode = "Paused"
    refused = run("resume", "qwen")
    assert refused.exit_code == 3
    assert "was not paused by `servingpool pause`: give --mode Auto or --mode Recommend" in refused.stderr
    assert run("resume", "qwen", "--mode", "Paused").exit_code == 2
    assert pools.patches == []
    assert run("resume", "qwen", "--mode", "Recommend").exit_code == 0
    assert pools.mode == "Recommend"


def test_a_pool_that_is_not_paused_is_left_alone(pools: FakePools) -> None:
    assert run("resume", "qwen").stdout == "ServingPool chat/qwen is not paused, its mode is Auto.\n"
    assert pools.patches == []


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (("get",), ("chat", None)),
        (("get", "-n", "prod"), ("prod", None)),
        (("get", "-A"), (None, None)),
        (("get", "qwen"), ("chat", "qwen")),
        (("get", "prod/qwen"), ("prod", "qwen")),
        (("pause", "qwen", "-n", "prod"), ("prod", "qwen")),
        (("resume", "prod/qwen"), ("prod", "qwen")),
    ],
)
def test_where_is_said_as_to_kubectl(
    pools: FakePools, arguments: tuple[str, ...], asked: tuple[str | None, str | None]
) -> None:
    run(*arguments)
    assert pools.asked == [asked]


@pytest.mark.parametrize("name", ["a/b/c", "/qwen", "prod/"])
def test_a_name_that_is_none_is_wrong_usage(pools: FakePools, name: str) -> None:
    assert run("pause", name).exit_code == 2
    assert run("pause", "prod/qwen", "-n", "chat").exit_code == 2
    assert run("get", "qwen", "-A").exit_code == 2


def test_columns_are_those_of_the_api_server(pools: FakePools) -> None:
    pools.found = table(row("qwen", "Auto"), row("a-longer-name", "Recommend"))
    assert run("get").stdout.splitlines() == [
        "NAME            MODE        ATTAINMENT",
        "qwen            Auto        <none>",
        "a-longer-name   Recommend   <none>",
    ]
    assert run("get", "-o", "wide").stdout.splitlines()[0] == "NAME            MODE        ATTAINMENT   TTFT"
    assert run("get", "-A").stdout.splitlines()[1] == "chat        qwen            Auto        <none>"


def test_no_pool_is_said_on_the_error_stream(pools: FakePools) -> None:
    advice = "`servingpool suggest` writes one for a Deployment.\n"
    assert run("get").stderr == f"No ServingPools found in namespace chat. {advice}"
    assert run("get", "-A").stderr == f"No ServingPools found. {advice}"


def test_a_watch_prints_each_change_below_the_same_columns(pools: FakePools) -> None:
    pools.found = table(row("qwen", "Recommend"))
    pools.events = [{"type": "MODIFIED", "object": table(row("qwen", "Auto"), first=False)}]
    shown = run("get", "-w")
    assert shown.exit_code == 130
    assert shown.stdout.splitlines() == [
        "NAME   MODE        ATTAINMENT",
        "qwen   Recommend   <none>",
        "qwen   Auto        <none>",
    ]


def test_json_and_yaml_are_the_pool_as_stored(pools: FakePools) -> None:
    assert json.loads(run("get", "qwen", "-o", "json").stdout)["metadata"]["name"] == "qwen"
    assert "name: qwen" in run("get", "qwen", "-o", "yaml").stdout


@pytest.mark.parametrize(
    ("failure", "code", "advice"),
    [
        (NotFound("404 not found"), 1, " Check name and namespace."),
        (ClusterError("400"), 4, ""),
        (Conflict("409"), 5, " Try again."),
    ],
)
def test_a_failure_is_one_sentence_and_an_exit_code(
    pools: FakePools, failure: ClusterError, code: int, advice: str
) -> None:
    pools.failure = failure
    for command in (("get", "qwen"), ("pause", "qwen"), ("resume", "qwen")):
        shown = run(*command)
        assert (shown.exit_code, shown.stderr) == (code, f"{failure}.{advice}\n")


FISH = {"_TYPER_COMPLETE_FISH_ACTION": "get-args", "_SERVINGPOOL_COMPLETE": "complete_fish"}


def completed(line: str, **environment: str) -> list[str]:
    """What fish is told for the last word of a command line."""
    settings = FISH | {"_TYPER_COMPLETE_ARGS": f"servingpool {line}"} | environment
    shown = CliRunner().invoke(app, [], env=settings, prog_name="servingpool")
    return [each.partition("\t")[0] for each in shown.stdout.splitlines()]


@pytest.mark.parametrize("command", ["get", "pause", "resume", "adopt", "release", "explain", "history", "compare"])
def test_names_of_pools_are_completed_by_each_command_that_takes_one(pools: FakePools, command: str) -> None:
    assert completed(f"{command} q") == ["qwen"]
    assert completed(f"{command} prod/") == ["prod/qwen", "prod/llama"]


def test_the_namespace_and_the_context_that_stand_on_the_line_count(
    pools: FakePools, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[tuple[object, ...]] = []

    def connect(*given: object) -> FakePools:
        chosen.append(given)
        return pools

    monkeypatch.setattr(Pools, "connect", connect)
    assert completed("get -n prod --context eu --kubeconfig /x l") == ["llama"]
    assert (chosen, pools.asked) == ([("/x", "eu")], [("prod", None)])


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["get", "q"], ["qwen"]),
        (["get", "-n", "prod", ""], ["qwen", "llama"]),
        (["pause", "prod/l"], ["prod/llama"]),
        (["ge"], ["get"]),
        (["get", "--all"], ["--all-namespaces"]),
    ],
)
def test_kubectl_is_told_a_word_a_line_and_no_files(pools: FakePools, words: list[str], found: list[str]) -> None:
    shown = CliRunner().invoke(app, ["__complete", *words])
    lines = [line.partition("\t")[0] for line in shown.stdout.splitlines()]
    assert lines == [*found, ":4"]


def test_a_cluster_that_fails_completes_nothing(pools: FakePools) -> None:
    pools.failure = ClusterError("403")
    assert completed("get q") in ([], [""])


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_listed_by_the_first_sentence_of_its_own_help(name: str) -> None:
    assert loaded(name).get_short_help_str(limit=400) == COMMANDS[name]


def test_help_and_get_import_nothing_that_they_do_not_need() -> None:
    """Each of these takes a tenth of a second or more; --help and get are to answer within 0.3 s."""
    slow = (
        "('pydantic', 'numpy', 'kopf', 'kubernetes', 'aiohttp', 'asyncio', 'rich', 'requests', 'urllib3', 'orjson', "
        "'starlette', 'numba', 'matplotlib', 'prometheus_api_client')"
    )
    # A command's own parameters make typer import pydantic: of get only the module is imported.
    for what in (
        "from servingpool.cli.main import app; app(['--help'], standalone_mode=False)",
        "import servingpool.cli.get",
    ):
        script = f"import sys; {what}; print([m for m in {slow} if m in sys.modules])"
        ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert ran.stdout.splitlines()[-1] == "[]"


def test_a_name_that_is_none_reaches_no_other_pool() -> None:
    assert pool_path("chat", "llama?x").endswith("/namespaces/chat/servingpools/llama%3Fx")
