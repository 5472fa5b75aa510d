"""A past decision and past changes, told from the operator's own metrics alone."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from servingpool.api.status import LastDecision
from servingpool.catalogue.metrics import Metric
from servingpool.cli.own_record import ENDED, point_in_time

from ..reconcile.role_cluster import RoleCluster  # noqa: TID252
from ..reconcile.stories import settled, several  # noqa: TID252
from ..reconcile.test_batch import asleep  # noqa: TID252
from .recorder import Recorder

HPA = "kube-controller-manager"


def iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")


@pytest.fixture(scope="module")
def burst() -> Recorder:
    """A burst that is over: scaled up and down again."""
    recorder = Recorder(settled())
    recorder.run(2)
    recorder.world.services["vllm"].rate = 30.0
    recorder.run(15)
    recorder.world.services["vllm"].rate = 3.0
    recorder.run(40)
    return recorder


@pytest.fixture
def past(burst: Recorder) -> Recorder:
    return burst.copy()


def test_a_decision_of_the_past_has_the_same_numbers_as_when_it_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(settled())
    recorder.world.services["vllm"].rate = 30.0
    recorder.run(3)
    made, at = recorder.world.decision(), recorder.world.now
    recorder.world.services["vllm"].rate = 3.0
    recorder.run(30)
    shown = recorder.ask(monkeypatch, "explain", "--at", iso(at + 10.0), "-o", "json")
    assert shown.exit_code == 0, shown.output
    told = LastDecision.read(json.loads(shown.stdout)["lastDecision"])
    assert told.at.timestamp() == made.at
    midnight = 1_764_374_400.0
    asked = [point_in_time("--at", text, midnight + 240.0) - midnight for text in ("-10m", "23:28", "00:03:30")]
    assert asked == [-360.0, -1920.0, 210.0], "a time of day is the last one"
    assert (told.replicas, told.need, told.verdict) == (made.replicas, made.need, made.verdict)
    assert [(one.name, one.before, one.after) for one in told.limits] == [
        (one.name, one.before, one.after) for one in made.limits
    ]
    assert {one.replicas: one.misses for one in told.candidates} == {
        round(one.replicas): pytest.approx(one.misses, rel=1e-5) for one in made.candidates
    }


def test_targets_of_the_past_are_told_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(several())
    recorder.run(3)
    told = recorder.world.status()["targets"]
    shown = recorder.ask(monkeypatch, "explain", "--at", iso(recorder.world.now), "-o", "json")
    past = json.loads(shown.stdout)
    names = ("name", "replicas", "ready", "desired", "speed")
    assert [{name: one.get(name) for name in names} for one in past["targets"]] == [
        {name: one.get(name) for name in names} for one in told
    ]
    assert "not recorded" in recorder.ask(monkeypatch, "explain", "--at", iso(recorder.world.now)).output, (
        "the cold start"
    )
    refused = recorder.ask(monkeypatch, "compare", "--since", "10m")
    assert refused.exit_code == 3
    assert "has several targets, and compare takes pools of one." in refused.stderr, "an hour of each is another amount"


def test_work_with_deadlines_is_told_of_the_past_as_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    world = asleep()
    world.left = 100_000.0
    recorder = Recorder(world)
    recorder.run(10)
    told = world.status()["batch"]
    shown = recorder.ask(monkeypatch, "explain", "--at", iso(world.now), "-o", "json")
    assert json.loads(shown.stdout)["batch"] == {name: figure for name, figure in told.items() if name != "due"}
    text = recorder.ask(monkeypatch, "explain", "--at", iso(world.now)).output
    for said in (f"backlog {told['backlog']:,.0f} requests", f"due next {told['dueAt']}", "at 23.16 requests/s"):
        assert said in " ".join(text.split())
    assert "attainment" not in text, "it has no SLO"


def test_roles_of_the_past_are_told_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    world = RoleCluster()
    world.pool()
    recorder = Recorder(world)
    recorder.run(20)
    made = [(side.decision.replicas, side.decision.need) for side in world.plan().stages]
    shown = recorder.ask(monkeypatch, "explain", "--at", iso(world.now), "-o", "json")
    past = json.loads(shown.stdout)["roles"]
    assert [one["role"] for one in past] == ["prefill", "decode"]
    assert [(one["desiredReplicas"], one["lastDecision"]["need"]) for one in past] == made
    for one in past:
        now = world.side(one["role"])
        assert (one["replicas"], one["readyReplicas"]) == (now["replicas"], now["readyReplicas"])
        assert one["lastDecision"]["figures"]["workPerRequest"] > 0.0
    text = recorder.ask(monkeypatch, "explain", "--at", iso(world.now)).output
    assert "Unknown: replicas stay as they are" not in text


def test_the_answer_can_be_recomputed_from_prometheus_at_every_moment(
    past: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited = 0
    for at in list(past.scraped)[::4]:
        shown = past.ask(monkeypatch, "explain", "--at", iso(at), "-o", "json")
        told = LastDecision.read(json.loads(shown.stdout)["lastDecision"])
        sums = {one.replicas: one.replicas + told.figures["penalty"] * one.misses for one in told.candidates}
        needs = [told.figures[name] for name in ("forForecast", "forInitialFleet", "forPresentLoad")]
        assert told.figures["forForecast"] == min(sums, key=lambda size: sums[size])
        assert told.need == max(needs)
        answer = max(needs)
        for limit in told.limits:
            assert limit.before == answer
            answer = limit.after
            limited += 1
        assert answer == told.replicas
    assert limited > 5


def test_the_schedule_whose_bound_applied_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    night = {"name": "night", "timeZone": "UTC", "start": "22:00", "end": "23:00", "min": 4, "max": 5}
    recorder = Recorder(settled(schedules=[night]))
    recorder.run(1)
    at = recorder.world.now
    shown = recorder.ask(monkeypatch, "explain", "--at", iso(at)).output
    assert "min is 4 by schedule night" in shown
    assert "4 to 5  by schedule night" in shown
    for said in ("from the operator's metrics in Prometheus", f"decided {iso(at)}Z, ", "raw need", "objective 95%"):
        assert said in shown, shown
    recorder.run(40)
    shown = recorder.ask(monkeypatch, "explain", "--at", iso(recorder.world.now)).output
    assert "1 to 10" in shown
    assert "night" not in shown


@pytest.mark.parametrize("command", [("history",), ("compare",), ("explain", "--at", "2020-01-01")])
def test_a_namespace_that_is_a_guess_is_told(
    past: Recorder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """Without a kubeconfig "no record of default/pool" was told, and nobody had said default."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    guess = "No kubeconfig found, so the namespace is default. Give -n NAMESPACE for another."
    said = past.ask(monkeypatch, *command, pool="pool").stderr.splitlines()
    assert said[0] == guess
    assert "Prometheus has no record of ServingPool default/pool " in said[1]
    assert guess not in past.ask(monkeypatch, *command, "-n", "chat", pool="pool").stderr


def test_history_lists_what_the_status_lists(past: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = past.ask(monkeypatch, "history", "--since", "2h", "-o", "json")
    assert shown.exit_code == 0, shown.output
    told, kept = json.loads(shown.stdout), list(reversed(past.world.status()["history"]))
    assert len(told) == len(past.world.writes.scales) > 1
    alike = ("at", "from", "to", "by")
    assert [[one[name] for name in alike] for one in told[-len(kept) :]] == [
        [one[name] for name in alike] for one in kept
    ]
    assert [one["outcome"] for one in told[-len(kept) :]] == [one["outcome"] for one in kept]
    assert all(one["why"].startswith(f"scale {'up' if one['to'] > one['from'] else 'down'} ") for one in told)


@pytest.mark.parametrize(("every", "options"), [(2, ()), (8, ()), (1, ("--step", "5m"))])
def test_what_is_scraped_seldom_gives_no_other_outcome_than_the_status(
    monkeypatch: pytest.MonkeyPatch, every: int, options: tuple[str, ...]
) -> None:
    recorder = Recorder(settled())
    recorder.run(2, every)
    for rate in (18.0, 40.0, 3.0, 30.0):
        recorder.world.services["vllm"].rate = rate
        recorder.run(13, every)
    kept = {one["at"]: one.get("outcome") for one in recorder.world.status()["history"]}
    told = json.loads(recorder.ask(monkeypatch, "history", "--since", "2h", *options, "-o", "json").stdout)
    both = [(one.get("outcome"), kept[one["at"]]) for one in told if one["at"] in kept]
    known = [pair for pair in both if pair[0] not in {None, "not scraped"}]
    assert len(known) > 1
    assert [pair for pair in known if pair[0] != pair[1]] == []


def test_the_time_that_history_prints_explains_that_change(past: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scrapes come seconds after decisions: the one before the change was explained, or, of two between two looks, the
    decision of the first "was not scraped"."""
    past.scraped = {at + 7.0 * ((past.world.now - at) // 15.0 % 2.0): rows for at, rows in past.scraped.items()}
    told = json.loads(past.ask(monkeypatch, "history", "--since", "2h", "-o", "json").stdout)
    assert len(told) > 1
    for change in told:
        shown = past.ask(monkeypatch, "explain", "--at", change["at"], "-o", "json")
        decision = json.loads(shown.stdout)["lastDecision"]
        assert decision["at"] == change["at"]
        assert decision["reason"] == change["why"]
        assert decision["reason"].startswith(f"scale {'up' if change['to'] > change['from'] else 'down'} ")


def test_a_change_whose_decision_was_not_scraped_is_explained_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(settled())
    recorder.run(1, every=4)
    recorder.world.services["vllm"].rate = 40.0
    recorder.run(12, every=4)
    told = json.loads(recorder.ask(monkeypatch, "history", "-o", "json").stdout)
    late = [one for one in told if one["why"].startswith("Its decision was not scraped; ")]
    assert late
    for change in late:
        shown = recorder.ask(monkeypatch, "explain", "--at", change["at"], "-o", "json")
        assert change["why"].endswith(json.loads(shown.stdout)["lastDecision"]["reason"])


def test_a_change_by_an_hpa_is_told_with_the_operators_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(settled(mode="Recommend"))
    recorder.run(2)
    recorder.world.set_replicas("vllm", 5, by=HPA)
    recorder.run(10)
    (told,) = json.loads(recorder.ask(monkeypatch, "history", "-o", "json").stdout)
    assert (told["from"], told["to"], told["by"]) == (2, 5, HPA)
    assert told["why"].startswith("The operator's answer was ")
    assert told["outcome"].startswith("ready after 1m")


def test_a_scrape_without_honor_labels_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(settled())
    recorder.added = lambda labels: {
        **{("exported_namespace" if name == "namespace" else name): value for name, value in labels.items()},
        "namespace": "servingpool-system",
        "pod": "servingpool-operator-0",
    }
    recorder.run(2)
    assert recorder.ask(monkeypatch, "explain", "--at", iso(recorder.world.now)).exit_code == 0
    unchanged = recorder.ask(monkeypatch, "history", "--since", "1h")
    assert (unchanged.exit_code, unchanged.stderr) == (3, "No change of chat/pool in the last 1h.\n")


def test_two_clusters_are_not_mixed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(settled())
    recorder.run(1)
    (newest,) = [max(recorder.scraped)]
    rows = recorder.scraped[newest]
    recorder.scraped[newest] = [({**labels, "cluster": name}, value) for name in "ab" for labels, value in rows]
    shown = recorder.ask(monkeypatch, "explain", "--at", iso(newest))
    assert shown.exit_code == 6
    assert 'they differ by cluster="a", cluster="b". Choose one with --match LABEL=VALUE.' in shown.stderr
    recorder.ask(monkeypatch, "explain", "--at", iso(newest), "--match", "cluster=a")
    assert 'cluster="a"' in recorder.asked[-1]


def test_two_prometheus_replicas_tell_one_story(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each scrapes at its own time: limits of two decisions must not make one list."""
    recorder = Recorder(settled())
    recorder.run(2)
    before, newest = sorted(recorder.scraped)[-2:]
    recorder.scraped[newest] = [
        ({**labels, "prometheus_replica": name}, value)
        for name, at in (("a", before), ("b", newest))
        for labels, value in recorder.scraped[at]
    ]
    shown = json.loads(recorder.ask(monkeypatch, "explain", "--at", iso(newest), "-o", "json").stdout)
    assert datetime.fromisoformat(shown["lastDecision"]["at"]).timestamp() == newest
    sizes = [one["replicas"] for one in shown["lastDecision"]["candidates"]]
    assert sizes == sorted(set(sizes))


def test_a_week_is_asked_for_in_pieces_that_prometheus_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(settled())
    recorder.run(1)
    recorder.ask(monkeypatch, "history", "--since", "7d")
    assert len(recorder.asked) == 6, "and whether there is a record now"


def test_times_are_by_prometheus_clock_where_the_persons_is_wrong(
    past: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = past.ask(monkeypatch, "history", "--since", "2h", "-o", "json")
    for ahead, said in ((7200.0, "2h behind"), (-7200.0, "2h ahead of")):
        past.ahead = ahead
        shown = past.ask(monkeypatch, "history", "--since", "2h", "-o", "json")
        assert (shown.exit_code, shown.stdout) == (0, listed.stdout)
        assert shown.stderr == f"This machine's clock is {said} Prometheus': times are by Prometheus' clock.\n"


@pytest.mark.parametrize("command", ["history", "compare"])
def test_a_record_that_ends_before_now_is_told(past: Recorder, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    past.world.step(minutes=10)
    shown = past.ask(monkeypatch, command, "--since", "2h")
    assert shown.exit_code == 0
    assert shown.stderr == f"{ENDED}\n"


def test_every_metric_of_a_pool_is_asked_for(past: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    past.ask(monkeypatch, "explain", "--at", iso(past.world.now))
    names: Any = past.asked[-1]
    assert all(metric.value in names for metric in Metric if metric.labels[:2] == ("namespace", "pool"))
