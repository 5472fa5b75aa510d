"""explain, pause and resume, as a person types them; the API server is in tests/integration."""

from __future__ import annotations

import copy
import inspect
import re
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from servingpool import __version__
from servingpool.adapters.cluster import kubeconfig
from servingpool.adapters.cluster.api_server import ApiServer
from servingpool.adapters.cluster.errors import ClusterError, Conflict, NotFound
from servingpool.adapters.cluster.kinds import OPERATOR
from servingpool.adapters.cluster.pools import Pools, pool_path
from servingpool.api.crd import manifests
from servingpool.cli.main import COMMANDS, EXAMPLE, app, loaded

BEFORE = "servingpool.dev/mode-before-pause"


@dataclass
class FakePools:
    """`Pools`, with one pool."""

    mode: str | None = "Auto"
    annotations: dict[str, Any] = field(default_factory=dict)
    namespace: str = "chat"
    failure: ClusterError | None = None
    patches: list[dict[str, Any]] = field(default_factory=list)
    asked: list[tuple[str | None, str | None]] = field(default_factory=list)

    def nobody_decides(self, _: float) -> str:
        return ""

    def read(self, namespace: str | None, name: str | None) -> dict[str, Any]:
        self.asked.append((namespace, name))
        if self.failure is not None:
            raise self.failure
        if name is None:
            return {"items": [{"metadata": {"name": "qwen"}}, {"metadata": {"name": "llama"}}]}
        spec = {} if self.mode is None else {"mode": self.mode}
        meta = {"namespace": namespace, "name": name, "resourceVersion": "7"}
        return {"metadata": meta | ({"annotations": self.annotations} if self.annotations else {}), "spec": spec}

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
    again = run("resume", "qwen").stdout
    assert (
        again.startswith(f"ServingPool chat/qwen is not paused, its mode is {mode or 'Auto'}.") or mode == "Recommend"
    )
    assert len(pools.patches) == 2


def test_each_change_is_refused_if_the_pool_has_changed_meanwhile(pools: FakePools) -> None:
    run("pause", "qwen")
    run("resume", "qwen")
    assert [patch["metadata"]["resourceVersion"] for patch in pools.patches] == ["7", "7"]
    pools.failure = Conflict("Cannot change ServingPool chat/qwen: 409 the object has been modified")
    assert run("pause", "qwen").exit_code == 5


def test_a_pool_in_recommend_is_not_resumed_and_what_sets_auto_is_named(pools: FakePools) -> None:
    pools.mode = "Recommend"
    refused = run("resume", "qwen")
    assert (refused.exit_code, refused.stdout, pools.patches) == (3, "", [])
    said = (
        "ServingPool chat/qwen is not paused, its mode is Recommend. "
        "Use `servingpool adopt qwen -n chat` to set Auto.\n"
    )
    assert refused.stderr == said
    assert run("resume", "qwen", "--mode", "Recommend").exit_code == 0


def test_a_pool_that_somebody_else_paused_is_not_guessed_at(pools: FakePools) -> None:
    pools.mode = "Paused"
    refused = run("resume", "qwen")
    assert refused.exit_code == 3
    assert "was not paused by `servingpool pause`: give --mode Auto or --mode Recommend" in refused.stderr
    assert run("resume", "qwen", "--mode", "Paused").exit_code == 2
    assert pools.patches == []
    assert run("resume", "qwen", "--mode", "recommend").exit_code == 0
    assert pools.mode == "Recommend"


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
    for command in (("explain", "qwen"), ("pause", "qwen"), ("resume", "qwen")):
        shown = run(*command)
        assert (shown.exit_code, shown.stderr) == (code, f"{failure}.{advice}\n")


FISH = {"_TYPER_COMPLETE_FISH_ACTION": "get-args", "_SERVINGPOOL_COMPLETE": "complete_fish"}


def completed(line: str, **environment: str) -> list[str]:
    """What fish is told for the last word of a command line."""
    settings = FISH | {"_TYPER_COMPLETE_ARGS": f"servingpool {line}"} | environment
    shown = CliRunner().invoke(app, [], env=settings, prog_name="servingpool")
    return [each.partition("\t")[0] for each in shown.stdout.splitlines()]


@pytest.mark.parametrize("command", ["pause", "resume", "adopt", "release", "explain", "history", "compare"])
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
    assert completed("explain -n prod --context eu --kubeconfig /x l") == ["llama"]
    assert (chosen, pools.asked) == ([("/x", "eu")], [("prod", None)])


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["explain", "q"], ["qwen"]),
        (["explain", "-n", "prod", ""], ["qwen", "llama"]),
        (["pause", "prod/l"], ["prod/llama"]),
        (["expl"], ["explain"]),
        (["suggest", "--all"], ["--all-namespaces"]),
    ],
)
def test_kubectl_is_told_a_word_a_line_and_no_files(pools: FakePools, words: list[str], found: list[str]) -> None:
    shown = CliRunner().invoke(app, ["__complete", *words])
    lines = [line.partition("\t")[0] for line in shown.stdout.splitlines()]
    assert lines == [*found, ":4"]


def test_a_cluster_that_fails_completes_nothing(pools: FakePools) -> None:
    pools.failure = ClusterError("403")
    assert completed("explain q") in ([], [""])


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_listed_by_the_first_sentence_of_its_own_help(name: str) -> None:
    assert loaded(name).get_short_help_str(limit=400) == COMMANDS[name]


def test_help_imports_nothing_that_it_does_not_need() -> None:
    """Each of these takes a tenth of a second or more; --help is to answer within 0.3 s."""
    slow = (
        "('pydantic', 'numpy', 'kopf', 'kubernetes', 'aiohttp', 'asyncio', 'rich', 'requests', 'urllib3', "
        "'starlette', 'numba', 'matplotlib', 'prometheus_api_client')"
    )
    what = "from servingpool.cli.main import app; app(['--help'], standalone_mode=False)"
    script = f"import sys; {what}; print([m for m in {slow} if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "[]"


def test_a_name_that_is_none_reaches_no_other_pool() -> None:
    assert pool_path("chat", "llama?x").endswith("/namespaces/chat/servingpools/llama%3Fx")


@pytest.mark.parametrize(
    "name",
    ["sp/qwen", "servingpool/qwen", "servingpools.servingpool.dev/qwen", "servingpool.servingpool.dev/qwen", "SP/qwen"],
)
def test_a_pool_may_be_named_with_its_kind(pools: FakePools, name: str) -> None:
    run("pause", name)
    assert pools.asked == [("chat", "qwen")]


@pytest.mark.parametrize(
    "line",
    [
        "-n prod explain qwen --as ann --context eu",
        "--as=ann --namespace=prod --context eu explain qwen",
        "explain qwen -n prod --context=eu --as ann",
        "-nprod --as ann explain --context eu qwen",
    ],
)
def test_what_every_command_takes_may_stand_anywhere(
    pools: FakePools, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    chosen: list[tuple[object, ...]] = []

    def connect(*given: object) -> FakePools:
        chosen.append((given[1], *kubeconfig.acting().values()))
        return pools

    monkeypatch.setattr(Pools, "connect", connect)
    run(*line.split())
    assert (chosen, pools.asked) == ([("eu", "ann")], [("prod", "qwen")])
    run("explain", "qwen")
    assert chosen[1:] == [(None,)], "another command acts as itself"


@pytest.mark.parametrize(
    "line", ["explain chat --as", "pause chat --as -n default", "--as --context eu explain", "explain chat --as="]
)
def test_whom_to_act_as_is_not_taken_from_the_next_word(pools: FakePools, line: str) -> None:
    shown = run(*line.split())
    assert (shown.exit_code, shown.stderr, pools.asked) == (2, "--as needs a USER\n", [])


@pytest.mark.parametrize("line", ["-n default", "-n default --help"])
def test_a_namespace_without_a_command_shows_the_commands(line: str) -> None:
    assert "Look at pools" in run(*line.split()).output


def test_a_request_names_whom_it_acts_as() -> None:
    kubeconfig.act_as("ann")
    try:
        headers = ApiServer("http://cluster", None, "Bearer t")._headers
        assert headers["Impersonate-User"] == "ann"
    finally:
        kubeconfig.act_as(None)
    assert "Impersonate-User" not in ApiServer("http://cluster", None, "Bearer t")._headers


class NearPools(Pools):
    """A cluster with these pools, by namespace."""

    def __init__(self, **names: list[str]) -> None:
        self.names = names

    def listed(self, path: str, query: Any, timeout: float = 0.0, accept: str = "") -> dict[str, Any]:
        assert (query["limit"], "PartialObjectMetadataList" in accept) == ("500", True), "whole pools are 10 kB each"
        only = query.get("fieldSelector", "").removeprefix("metadata.name=")
        found = [(within, name) for within, all_ in self.names.items() for name in all_ if only in {"", name}]
        items = [
            {"metadata": {"namespace": within, "name": name}}
            for within, name in found
            if "/namespaces/" not in path or f"/namespaces/{within}/" in path
        ]
        return {"items": items}


def test_a_name_near_a_typo_is_told_and_a_pool_of_another_namespace(pools: FakePools) -> None:
    cluster = NearPools(chat=["qwen3-8b", "llama"], prod=["gemma"])
    assert cluster._near("chat", "qwen3-8") == ("qwen3-8b",)
    assert cluster._near("chat", "gemma") == ("gemma -n prod",)
    assert cluster._near("chat", "mistral") == ()
    pools.failure = NotFound("Cannot read ServingPool chat/qwen3-8: 404 Not Found")
    pools.failure.near = ("qwen3-8b",)
    for command in ("explain", "pause"):
        assert run(command, "qwen3-8").stderr.endswith(". Did you mean qwen3-8b?\n")


@pytest.mark.parametrize(("late", "lost"), [(44.0, False), (46.0, True)])
def test_leases_that_nobody_renews_are_told_with_the_last_holder(late: float, *, lost: bool) -> None:
    """Two and a half minutes after the operator's end old figures stood everywhere as those of now."""

    class Held(Pools):
        def listed(self, path: str, query: Any, *_: Any) -> dict[str, Any]:
            assert (path, query) == ("/apis/coordination.k8s.io/v1/leases", {"labelSelector": "=".join(OPERATOR)})
            held = {"leaseDurationSeconds": 15, "holderIdentity": "sp-7f_1a", "renewTime": "2026-11-28T23:46:01.5Z"}
            former = held | {"holderIdentity": "", "renewTime": "2026-11-28T23:40:00.0Z"}
            return {"items": [{"metadata": {"namespace": "ops"}, "spec": spec} for spec in (former, held)]}

    at = datetime.fromisoformat("2026-11-28T23:46:01.5Z").timestamp()
    said = Held.nobody_decides(Held.__new__(Held), at + late)
    whole = "No operator has decided since 2026-11-28 23:46 UTC (last: pod sp-7f): pools keep their replicas."
    assert said.partition(" See ")[0] == (whole if lost else "")


def test_help_has_every_command_below_a_heading_and_no_sentence_is_cut() -> None:
    shown = run("--help").stdout
    assert "..." not in shown.partition("Look at pools")[2]
    text = " ".join(shown.split())
    assert all(said in text for said in COMMANDS.values())


@pytest.mark.parametrize("name", COMMANDS)
def test_an_example_stands_on_a_line_of_its_own_and_no_type_is_told(name: str) -> None:
    lines = [line.strip() for line in run(name, "--help").stdout.splitlines()]
    assert not [line for line in lines if re.search(r"<[a-z]|\]\.\.\.\]", line)]
    for example in EXAMPLE.findall(inspect.getdoc(loaded(name).callback) or ""):
        assert " ".join(example.split()) in lines


def test_the_version_is_told_with_and_without_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(operators: list[str], crds: dict[str, Any]) -> Result:
        class Versions:
            def listed(self, *_: object) -> dict[str, Any]:
                pods = [{"containers": [{"image": f"registry:5000/x/servingpool-operator:{one}"}]} for one in operators]
                meta = {"namespace": "sp", "name": "operator"}
                return {"items": [{"metadata": meta, "spec": {"template": {"spec": pod}}} for pod in pods]}

            def request(self, _: str, path: str, what: str) -> dict[str, Any]:
                if not crds:
                    raise NotFound(what)
                found: dict[str, Any] = crds[path.rpartition("/")[2]]
                return found

        monkeypatch.setattr(Pools, "connect", lambda *_: Versions())
        return run("version")

    assert run("--version").stdout == f"servingpool {__version__}\n"
    assert run("version", "--client").stdout == f"client    {__version__}\n"
    blind = run("version", "--kubeconfig", "/nonexistent")
    assert (blind.exit_code, blind.stdout) == (4, f"client    {__version__}\n")
    fits = find([__version__], manifests())
    assert (fits.exit_code, fits.stderr) == (0, "")
    assert fits.stdout.splitlines()[1:] == [f"operator  {__version__} (sp/operator)", "They fit, and so do the CRDs."]
    for tag in (f"v{__version__}", f"{__version__}@sha256:{'0' * 64}"):
        assert find([tag], manifests()).stdout == fits.stdout
    older = copy.deepcopy(manifests())
    schema = older["servingpools.servingpool.dev"]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    del schema["properties"]["spec"]["properties"]["schedules"]
    apart = find(["0.0.9"], older)
    assert apart.exit_code == 3
    assert "The operator sp/operator is 0.0.9 and this client" in apart.stderr
    assert "servingpools.servingpool.dev is older than this client and lacks spec.schedules" in apart.stderr
    none = find([], {})
    assert none.exit_code == 3
    assert "No operator is installed" in none.stderr
    assert "The CRDs are not installed" in none.stderr
