"""The page of one pool, and the figures of its charts."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from servingpool.adapters.cluster.objects import FIELD_MANAGER
from servingpool.decision.observation import Histogram, ReplicaMetrics
from servingpool_dashboard import record
from servingpool_dashboard.pods import Load, load
from servingpool_dashboard.record import FRESH, RECOMMENDATION

from ..cli.recorder import Recorder  # noqa: TID252, tests are no package of an installed name
from ..reconcile.fake_cluster import CORDONED, stamp  # noqa: TID252
from ..reconcile.stories import several  # noqa: TID252
from ..reconcile.test_batch import short_of_replicas  # noqa: TID252
from .scene import Scene, raw_pod, stored

ONE, COURSE, PODS = "/pools/chat/pool", "/pools/chat/pool/course.json", "/pools/chat/pool/pods"


def flat(page: str) -> str:
    return " ".join(page.split())


def test_figures_of_prometheus_are_shown_where_it_has_some_of_now(scene: Scene) -> None:
    before = flat(scene.page(ONE))
    assert "Figures of the pool's status, decided" in before
    scene.browser.get(COURSE)
    page = flat(scene.page(ONE))
    assert "ago, from Prometheus." in page
    status = scene.world.status()
    assert f"<dt>Ready</dt><dd>{status['readyReplicas']} of {status['replicas']}</dd>" in page
    assert f"<dt>Cost per hour</dt><dd>${12.0 * status['readyReplicas']:.2f}</dd>" in page


def test_several_targets_have_a_table_and_one_has_none(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Targets</h2>" not in scene.page(ONE)
    recorder = Recorder(several())
    recorder.run(3)
    page = flat(Scene(recorder, monkeypatch).page(ONE))
    assert "on Deployment on-demand, Deployment spot;" in page
    assert "Targets</h2>" in page
    assert '<tr><th scope="row">spot</th><td class="figure">2</td>' in page


def test_each_role_has_its_replicas_its_load_and_its_limits(roles: Scene) -> None:
    """A pool that a budget held below its need was said to have no limit."""
    for live in (False, True):
        if live:
            roles.browser.get(COURSE)
        page = flat(roles.page(ONE))
        assert ("ago, from Prometheus." in page) == live
        for one in roles.world.status()["roles"]:
            counts = (one["readyReplicas"], one["replicas"], one["desiredReplicas"])
            row = "".join(f'<td class="figure">{count}</td>' for count in counts)
            load = r'<td class="figure">\d\.\d+</td>'
            assert re.search(f'<tr><th scope="row">{one["role"]}</th>{row}{load}{load}</tr>', page)
        assert '<th scope="row">prefill: GPUBudget</th>' in page
        assert "Raise spec.gpus of the GPUBudget if there are GPUs" in page
        assert "No limit changed the last decision." not in page
        assert "<dt>TTFT p97.47</dt>" in page, "each role has a part of the misses"
        assert "<dt>Load</dt>" not in page, "each role has its own"


def test_the_charts_have_what_the_operator_exported(scene: Scene) -> None:
    told = scene.browser.get(COURSE).json()
    assert told["failure"] == ""
    columns, times = told["columns"], told["times"]
    at = times.index(told["now"])
    status, decision = scene.world.status(), scene.world.decision()
    assert {len(column) for column in columns.values()} == {len(times)}
    assert columns["requested"][at] == status["replicas"]
    assert columns["recommended"][at] == decision.replicas
    assert columns["load"][at] == pytest.approx(decision.figures.load * columns["ready"][at], rel=1e-4)
    assert columns["ttft_slo"][at] == 2.0
    missed = 1.0 - decision.figures.attainment  # type: ignore[operator]
    assert columns["burn_hour"][at] == pytest.approx(missed / 0.05, rel=1e-4)
    assert columns["cost"][at] == 12.0 * columns["ready"][at]


def test_of_a_batch_the_finish_stands_beside_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    (recorder := Recorder(short_of_replicas())).run(1)
    scene = Scene(recorder, monkeypatch)
    for live in (False, True):
        page = flat(scene.page(ONE))
        assert ("ago, from Prometheus." in page) == live
        assert "batch: all work done within 20m of its coming</p>" in page
        late = r'>Deadline</span>.*<dt>Next deadline</dt><dd>22:33</dd>.*<div class="bad"><dt>Done at</dt><dd>22:4\d</dd>.*m\d+s late<'
        assert re.search(late, page)
        assert not re.search("Attainment|TTFT|SLO[^M]", page)
        columns = scene.browser.get(COURSE).json()["columns"]
    assert max(filter(None, columns["deadline"])) < min(filter(None, columns["finish"])), "as times of whole seconds"
    assert "due&nbsp;22:33" in scene.page("/")


def test_a_forecast_stands_at_the_time_that_it_is_for(scene: Scene) -> None:
    told, decision = scene.browser.get(COURSE).json(), scene.world.decision()
    columns, times = told["columns"], told["times"]
    ahead = times.index(told["now"]) + round(decision.figures.horizon / 15.0)
    assert times[ahead] > told["now"]
    assert columns["forecast"][ahead] == pytest.approx(decision.figures.forecast, rel=1e-4)
    assert columns["burst"][ahead] == pytest.approx(decision.figures.burst, rel=1e-4)
    assert columns["ready"][ahead] is None


def test_decisions_have_the_sentences_of_the_status(scene: Scene) -> None:
    changes = scene.browser.get(COURSE).json()["changes"]
    kept = scene.world.status()["history"]
    assert [one["why"] for one in changes[-len(kept) :]] == [one["why"] for one in reversed(kept)]
    page = scene.page(ONE)
    for one in kept:
        assert one["why"].split(";")[0].replace(">", "&gt;") in page
    assert {one["by"] for one in changes} == {FIELD_MANAGER}


def test_changes_that_the_status_no_longer_has_come_from_prometheus(scene: Scene) -> None:
    complete = scene.browser.get(COURSE).json()["changes"]
    (raw,) = stored(scene.world)
    raw["status"]["history"] = raw["status"]["history"][:1]
    scene.store(raw)
    scene.later = FRESH
    found = scene.browser.get(COURSE).json()["changes"]
    alike = ("at", "from", "to", "by")
    assert [[one[name] for name in alike] for one in found] == [[one[name] for name in alike] for one in complete]
    assert len(found) > 1
    assert all(one["why"].startswith(("scale up ", "scale down ")) for one in found)


def test_beside_an_hpa_both_answers_are_shown(beside: Scene) -> None:
    told = beside.browser.get(COURSE).json()
    at = told["times"].index(told["now"])
    assert told["columns"]["hpa"][at] == 5.0
    assert told["columns"]["requested"][at] == 5.0
    assert told["columns"]["recommended"][0 if at < 20 else at - 20] < 5.0 < told["columns"]["recommended"][at]
    page = flat(beside.page(ONE))
    assert "<dt>HPA&#39;s</dt><dd>5</dd>" in page
    assert "set by kube-controller-manager" in page


def test_a_recommendation_is_a_decision_with_its_sentence(beside: Scene) -> None:
    changes = beside.browser.get(COURSE).json()["changes"]
    recommended = [one for one in changes if one["by"] == RECOMMENDATION]
    assert recommended
    assert recommended[-1]["to"] == beside.world.status()["desiredReplicas"] > 5
    assert recommended[-1]["why"].startswith(f"scale up 5 -> {recommended[-1]['to']}: ")
    assert recommended[-1]["why"] in beside.page(ONE).replace("&gt;", ">")
    assert [one["at"] for one in changes] == sorted(one["at"] for one in changes)


def test_charts_end_where_prometheus_last_answered(scene: Scene) -> None:
    scene.silence.prometheus = "cannot be reached"
    told = scene.browser.get(f"{COURSE}?since=6h").json()
    assert (told["failure"], told["times"]) == ("Prometheus backend 'default' cannot be reached.", [])
    assert [one["to"] for one in told["changes"]] == [one["to"] for one in reversed(scene.world.status()["history"])]
    scene.silence.prometheus = ""
    before = scene.browser.get(COURSE).json()
    scene.silence.prometheus = "did not answer within 10 s"
    scene.later = 600.0
    after = scene.browser.get(COURSE).json()
    assert after["failure"] == "Prometheus backend 'default' did not answer within 10 s."
    assert after["times"] == before["times"]
    assert "Figures of the pool's status, decided" in flat(scene.page(ONE)), "old figures are not called live"
    scene.later += FRESH
    scene.browser.get(COURSE)
    assert scene.told[2:] == ["The charts cannot be read: Prometheus backend 'default' did not answer within 10 s."]
    scene.silence.prometheus = ""
    scene.later += FRESH
    scene.browser.get(COURSE)
    assert scene.told[3:] == ["The charts can be read again."]


def test_the_next_commands_can_be_copied_and_grafana_is_linked_where_it_is_named(scene: Scene) -> None:
    page = scene.page(ONE)
    assert 'data-copy="servingpool explain pool -n chat"' in page
    assert 'data-copy="servingpool pause pool -n chat"' in page
    assert "Grafana" not in page
    scene.grafana = "https://g.example/d/sp?var-namespace={namespace}&var-pool={pool}"
    scene.where = ("--context", "west", "--as", "ann lee")
    (raw,) = stored(scene.world)
    raw["spec"]["mode"] = "Paused"
    scene.store(raw)
    page = scene.page(ONE)
    assert 'href="https://g.example/d/sp?var-namespace=chat&amp;var-pool=pool"' in page
    assert 'data-copy="servingpool explain pool -n chat --context west --as &#39;ann lee&#39;"' in page
    assert 'data-copy="servingpool resume pool -n chat --context west --as &#39;ann lee&#39;"' in page
    raw["spec"]["mode"] = "Recommend"
    scene.store(raw)
    assert re.findall(r"servingpool (\w+) pool -n chat", scene.page(ONE)).count("explain") == 3
    assert "servingpool pause" not in scene.page(ONE)


def test_a_page_waits_neither_for_prometheus_nor_for_the_api_server(scene: Scene) -> None:
    for path in ("/", ONE, f"{ONE}/now"):
        scene.page(path)
    assert (scene.prometheus.asked, scene.api.asked_scalers, scene.api.lists) == (0, 0, 1)


def test_many_who_look_ask_prometheus_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "MOST", 2)
    past = f"{COURSE}?at={stamp(scene.clock() - 60.0)}"
    # At last a third question takes the place of the one that nobody asked for longest.
    rounds = [(0.0, (COURSE, PODS) * 5, 2), (FRESH, (PODS, COURSE, PODS), 4), (FRESH, (past, PODS, COURSE), 6)]
    for later, paths, asked in rounds:
        scene.later = later
        for path in paths:
            scene.browser.get(path)
        assert scene.prometheus.asked == asked


def test_an_operator_that_stopped_is_not_called_live_and_is_told(scene: Scene) -> None:
    """A page opened an hour later showed that hour's figures as those of now, while Prometheus was asked."""
    scene.browser.get(COURSE)
    scene.later = 240.0
    for _ in range(2):
        page = flat(scene.page(ONE))
        assert "ago, from Prometheus." not in page
        assert 'class="tiles old"' in page, "grey, with its age"
        scene.browser.get(COURSE)
    scene.silence.operator = "Nobody decides since 23:46."
    scene.board.probe()
    assert all("Nobody decides since 23:46." in scene.page(path) for path in ("/", ONE))


def test_what_is_bad_comes_first_and_says_what_to_do(scene: Scene) -> None:
    (raw,) = stored(scene.world)
    bad = next(one for one in raw["status"]["conditions"] if one["type"] == "DrainReady")
    bad |= {"status": "False", "reason": "NoShutdownTimeout", "message": "Scale-down aborts running requests."}
    raw["status"]["conditions"].append(raw["status"]["conditions"].pop(raw["status"]["conditions"].index(bad)))
    limit = {"name": "TooManyReplicas", "before": 9, "after": 4, "reason": "max is 4"}
    raw["status"]["lastDecision"]["limits"] = [limit]
    scene.store(raw)
    page = flat(scene.page(ONE))
    assert "False: NoShutdownTimeout" in page
    assert "Add --shutdown-timeout (since vLLM 0.18) with the longest request&#39;s seconds to" in page
    assert page.index(">DrainReady<") < page.index(">MetricsAvailable<")
    assert page.index("<b>DrainReady.</b> Scale-down aborts running requests. <b>What to do:</b>") < page.index("tiles")
    assert '<th scope="row">TooManyReplicas</th><td>9 → 4</td><td class="why">max is 4</td>' in page
    assert "Raise max if there are GPUs, or relax the objective." in page


def test_the_bounds_in_force_are_told_with_their_schedule(scene: Scene) -> None:
    (raw,) = stored(scene.world)
    raw["status"]["bounds"] = {"min": 3, "max": 7, "schedule": "office"}
    scene.store(raw)
    assert "3 to 7, schedule office" in scene.page(ONE)
    assert '<td class="figure">7</td>' in scene.page("/")


@pytest.mark.parametrize("span", ["15m", "6h", "1d", "7d"])
def test_other_times_are_drawn_with_no_more_points(scene: Scene, span: str) -> None:
    told = scene.browser.get(f"{COURSE}?since={span}").json()
    assert 2 < len([one for one in told["times"] if one <= told["now"]]) <= 361
    assert told["changes"]
    assert span[1] == "d" or None not in told["columns"]["ready"][1:10], "a new pool's begin where its figures do"
    assert f'aria-current="true">{span}</a>' in scene.page(f"{ONE}?since={span}")


def test_a_time_that_is_none_and_a_pool_that_is_not_there_are_said(scene: Scene) -> None:
    wrong = scene.browser.get(f"{ONE}?since=2y")
    assert (wrong.status_code, "one of 15m, 1h, 6h, 1d, 7d" in wrong.text) == (400, True)
    missing = scene.browser.get("/pools/chat/nobody")
    assert (missing.status_code, "There is no ServingPool chat/nobody." in missing.text) == (404, True)


def test_each_pod_tells_its_state_its_load_and_why_it_does_not_serve(scene: Scene) -> None:
    at, loading = scene.clock() - 600.0, {"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]}
    pods = [raw_pod("a", at), raw_pod("b", at), raw_pod("c", at, conditions=[CORDONED]), raw_pod("d", at, **loading)]
    scene.api.pods, scene.loads = pods, {"a": Load(0.0, 0.0, 0.0, None), "b": Load(3.0, 1.0, 120.0, 12.5)}
    event = {"type": "Warning", "reason": "ScaledUp", "message": "2 -> 4", "lastTimestamp": stamp(at)}
    scene.api.told = [{**event, "reason": "Older", "lastTimestamp": stamp(at - 60.0)}, event]
    page = flat(scene.page(PODS))
    assert "4 pods, 6 GPUs held: 2 by pods that are not Ready, 2 by Ready pods without a request." in page
    assert re.findall(r'<th scope="row">(\w)</th>', page) == ["c", "d", "b", "a"]
    assert f'Pending</span> {CORDONED["message"]}</td><td class="figure">10 min</td>' in page
    assert "Starting</span> ImagePullBackOff. </td>" in page
    assert '<td class="figure">120</td><td class="figure bad">12.5%</td>' in page
    assert page.index("ScaledUp") < page.index("Older")
    scene.silence.api = "Cannot list pods: 403 Forbidden"
    assert "The pods cannot be read: Cannot list pods: 403 Forbidden." in scene.page(PODS)


def test_what_a_pod_counted_lies_between_its_first_and_last_sample() -> None:
    def sample(at: float, tokens: float, *counts: Any) -> ReplicaMetrics:
        ttft = Histogram((2.0,), *counts)
        return ReplicaMetrics("a", at, 3.0, 1.0, generation_tokens=tokens, time_to_first_token=ttft)

    first, last = sample(0.0, 100.0, (10.0,), 9.0, 10.0), sample(60.0, 700.0, (40.0,), 90.0, 50.0)
    assert load((first, last), 2.0) == Load(3.0, 1.0, 10.0, 25.0)
    assert load((last, first), 2.0).tokens is None, "its engine began anew"


def test_a_link_leads_to_the_page_of_that_time(scene: Scene) -> None:
    change = scene.browser.get(COURSE).json()["changes"][-1]
    (then,) = [one for one in re.findall(r'href="([^"]*)&amp;at=([^"]*)"', scene.page(ONE)) if one[1] == change["at"]]
    page = flat(scene.page(f"{then[0]}&at={then[1]}"))
    assert f"State at {change['at']}" in page
    assert f"<dt>Recommended</dt><dd>{change['to']}</dd>" in page
    assert "/now?" not in page, "it stands still"
    told = scene.browser.get(f"{COURSE}?at={change['at']}").json()
    assert (told["now"], told["changes"][-1]["at"]) == (math.floor(change["unix"]), change["at"])
    assert scene.browser.get(f"{ONE}?at=soon").status_code == 400
    assert scene.browser.get(f"{ONE}?at=2020-01-01").status_code == 404
