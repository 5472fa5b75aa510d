"""The table of all pools."""

from __future__ import annotations

import html
import re
from types import SimpleNamespace
from typing import Any

import pytest

from servingpool.adapters.cluster.errors import Forbidden
from servingpool.adapters.cluster.pools import Pools
from servingpool_dashboard.app import LINES
from servingpool_dashboard.board import PAUSE, RETRY, Board
from servingpool_dashboard.rows import Trouble, counted, row_of

from .scene import Scene

SPEC = {"model": "m", "slo": {"timeToFirstToken": "2s"}, "targets": [{"name": "d", "max": 4}]}
BAD = {
    Trouble.NOT_READY: ("Ready", "False", "TargetNotFound"),
    Trouble.SLO_MISSED: ("SLOMet", "False", "ObjectiveMissed"),
    Trouble.NO_METRICS: ("MetricsAvailable", "False", "NotScraped"),
    Trouble.LIMITED: ("ScalingLimited", "True", "TooManyReplicas"),
    Trouble.OVER_BOUND: ("Ready", "True", "SucceededGetScale"),
    Trouble.UNJUDGED: ("Ready", "Unknown", "ReadingHistory"),
    Trouble.CALM: ("Ready", "True", "SucceededGetScale"),
}


KINDS = [trouble for trouble in Trouble if trouble is not Trouble.OVER_BOUND]
"""Each is a condition."""


def pool(name: str, trouble: Trouble = Trouble.CALM, namespace: str = "chat", **status: Any) -> dict[str, Any]:
    type_, truth, reason = BAD[trouble]
    condition = {"type": type_, "status": truth, "reason": reason, "message": f"Said of {name}."}
    condition["lastTransitionTime"] = "2026-11-20T00:00:00Z"
    meta = {"namespace": namespace, "name": name, "resourceVersion": "8"}
    return {"metadata": meta, "spec": SPEC, "status": {"conditions": [condition], **status}}


def names(page: str) -> list[str]:
    """In the order of the table."""
    return re.findall(r'href="/pools/chat/([^"]+)"', page)


def test_who_is_in_trouble_comes_first(scene: Scene) -> None:
    scene.store(
        pool("calm"),
        pool("unjudged", Trouble.UNJUDGED),
        pool("limited", Trouble.LIMITED),
        pool("blind", Trouble.NO_METRICS),
        pool("slow", Trouble.SLO_MISSED, attainment=90.0),
        pool("slower", Trouble.SLO_MISSED, attainment=60.0),
        pool("broken", Trouble.NOT_READY, attainment=10.0),
    )
    order = [row.key[1] for row in scene.board.sight.rows]
    assert order == ["slower", "slow", "broken", "blind", "limited", "unjudged", "calm"]


def test_a_pool_that_is_only_advised_on_comes_after_those_that_are_scaled(scene: Scene) -> None:
    """A typo in a pool of mode Recommend stood above a pool whose users waited."""
    scene.store(
        {**pool("typo", Trouble.NOT_READY), "spec": {"mode": "Recommend"}},
        {**pool("watched", Trouble.SLO_MISSED), "spec": {**SPEC, "mode": "Recommend"}},
        pool("limited", Trouble.LIMITED),
        pool("calm"),
    )
    assert [row.key[1] for row in scene.board.sight.rows] == ["limited", "watched", "typo", "calm"]
    assert names(scene.page("/?q=recommend")) == ["watched", "typo"]


def test_a_pool_that_is_not_ready_and_misses_its_slo_has_both_and_says_the_cause(scene: Scene) -> None:
    both = pool("both", Trouble.SLO_MISSED)
    [missed] = both["status"]["conditions"]
    [unready] = pool("no node", Trouble.NOT_READY)["status"]["conditions"]
    both["status"]["conditions"] = [{**missed, "message": "Late."}, unready]
    row = row_of(both)
    assert (row.troubles, row.said) == ((Trouble.SLO_MISSED, Trouble.NOT_READY), "Said of no node.")
    scene.store(both, pool("calm"))
    for trouble in row.troubles:
        assert names(scene.page(f"/?trouble={trouble}")) == ["both"]


def test_a_pool_whose_figures_are_red_is_not_called_calm(scene: Scene) -> None:
    decision = {"at": "2026-11-20T00:00:00Z", "replicas": 2, "verdict": "Hold", "reason": "hold 2"}
    slow = pool("slow", attainment=96.0, lastDecision={**decision, "figures": {"timeToFirstToken": 2.5}})
    scene.store(pool("well", attainment=96.0), pool("missing", attainment=94.0), slow)
    found = {row.key[1]: (row.trouble, row.said) for row in scene.board.sight.rows}
    assert found == {
        "missing": (Trouble.OVER_BOUND, "94.0% of the last hour's requests met the SLO, 95% must."),
        "slow": (Trouble.OVER_BOUND, "TTFT is 2.5s, 2s is the bound."),
        "well": (Trouble.CALM, "No decision yet."),
    }
    assert '<td class="figure bad">94.0% <br><span class="quiet">of&nbsp;95%</span></td>' in scene.page("/")
    assert "TTFT is 2.5s, 2s is the bound." in scene.page("/pools/chat/slow")
    assert ">Calm<" not in scene.page("/pools/chat/slow")


def test_pools_that_nobody_looked_at_and_that_are_not_valid_are_listed_too(scene: Scene) -> None:
    new = pool("new")
    del new["status"]
    wrong = {**pool("wrong"), "spec": {**SPEC, "targets": []}, "status": {}}
    scene.api.events = [{"type": "ADDED", "object": new}, {"type": "ADDED", "object": wrong}]
    scene.board.read()
    page = scene.page("/")
    assert "The operator has not looked at this pool yet." in page
    assert "targets: must hold 1 to 8 targets, got 0" in page
    assert counted(scene.board.sight.rows)[Trouble.NOT_READY] == 1
    assert scene.browser.get("/pools/chat/wrong").status_code == 200


def test_a_change_is_seen_without_another_list(scene: Scene) -> None:
    before = scene.api.lists
    assert names(scene.page("/")) == ["pool"]
    scene.api.events = [{"type": "ADDED", "object": pool("late", Trouble.NOT_READY)}]
    scene.board.read()
    assert names(scene.page("/")) == ["pool", "late"], "it misses its SLO"
    scene.api.events = [{"type": "DELETED", "object": pool("late")}]
    scene.board.read()
    assert names(scene.page("/")) == ["pool"]
    assert scene.api.lists == before


def test_a_watch_that_is_too_old_leads_to_a_list(scene: Scene) -> None:
    before = scene.api.lists
    scene.api.events = [{"type": "ERROR", "object": {"code": 410}}]
    scene.board.read()
    scene.api.pools.append(pool("missed"))
    scene.board.read()
    assert scene.api.lists == before + 1
    assert "missed" in names(scene.page("/"))


@pytest.fixture
def crowd(scene: Scene) -> Scene:
    """More pools than a page holds."""
    many = [pool(f"pool-{number:03}", KINDS[number % 6]) for number in range(LINES)]
    scene.api.events = [{"type": "ADDED", "object": one} for one in (*many, pool("elsewhere", namespace="<b>"))]
    scene.board.read()
    return scene


def test_a_page_holds_so_many_and_leads_to_the_next(crowd: Scene) -> None:
    first = crowd.page("/")
    assert first.count('<th scope="row">') == LINES
    assert f"Page 1 of 2, {LINES + 2} pools" in first
    assert 'href="/?page=2" rel="next"' in first
    assert crowd.page("/?page=2").count('<th scope="row">') == 2
    assert "Page 2 of 2" in crowd.page("/?page=99")
    assert "Page 1 of 2" in crowd.page("/?page=-1")


def test_all_pools_are_searched_and_not_this_page_alone(crowd: Scene) -> None:
    assert names(crowd.page("/?q=POOL-09 limited")) == ["pool-093", "pool-099"]
    assert names(crowd.page("/?q=targetnotfound pool-00")) == ["pool-001", "pool-007"]
    assert "No pool matches." in crowd.page("/?q=nobody")
    assert len(names(crowd.page("/?trouble=slo_missed"))) == counted(crowd.board.sight.rows)[Trouble.SLO_MISSED]
    assert names(crowd.page("/?namespace=chat&q=elsewhere")) == []
    assert 'href="/?q=pool-0&amp;namespace=chat&amp;trouble=limited"' in crowd.page("/?q=pool-0&namespace=chat&page=2")


def test_what_stands_in_the_cluster_is_text_and_never_a_tag(crowd: Scene) -> None:
    evil = "<script>alert(1)</script>"
    crowd.api.events = [{"type": "ADDED", "object": pool("evil", Trouble.NOT_READY)}]
    crowd.api.events[0]["object"]["status"]["conditions"][0]["message"] = evil
    crowd.board.read()
    for path in ("/", "/pools/chat/evil", f"/?q={evil}", "/?namespace=<b>"):
        page = crowd.page(path)
        assert "<script>alert" not in page
        assert "<b>/" not in page
    assert "&lt;script&gt;alert(1)" in crowd.page("/pools/chat/evil")


def test_nothing_is_sent_while_nothing_changes(scene: Scene) -> None:
    (seen,) = re.findall(r"/rows\?(?:&amp;)?([^\"]*seen=\d+)", scene.page("/"))
    assert scene.browser.get(f"/rows?{seen}").status_code == 204
    scene.api.events = [{"type": "ADDED", "object": pool("late")}]
    scene.board.read()
    changed = scene.browser.get(f"/rows?{seen}")
    assert names(changed.text) == ["pool", "late"] or names(changed.text) == ["late", "pool"]
    assert "<html" not in changed.text


def test_without_the_api_server_the_last_state_is_shown_with_its_age(scene: Scene) -> None:
    scene.silence.api = "Cannot list servingpools: the API server did not answer (MaxRetryError)"
    scene.later = 200.0
    scene.board.probe()
    for path in ("/", "/rows?seen=2", "/pools/chat/pool"):
        page = scene.page(path)
        assert "The pools cannot be read now." in page
        assert "This is the state of 3 min ago." in page
        assert "pool" in page
    scene.silence.api = ""
    scene.board.probe()
    assert "cannot be read" not in scene.page("/")


def test_one_answer_does_not_hide_that_the_watch_is_refused(scene: Scene) -> None:
    scene.silence.watch = "Cannot watch servingpools: 403 forbidden"
    scene.board.read()
    scene.board.probe()
    assert "403 forbidden" in scene.page("/")
    scene.silence.watch = ""
    scene.api.events = [{"type": "ADDED", "object": pool("late")}]
    scene.board.read()
    assert "403 forbidden" not in scene.page("/")


def test_before_anything_was_read_the_reason_is_said(scene: Scene) -> None:
    scene.silence.api = "Cannot list servingpools: 403 forbidden"
    scene.start()
    assert "The pools are being read." in scene.page("/")
    assert scene.browser.get("/pools/chat/pool").status_code == 503
    scene.board.read()
    assert "403 forbidden. Nothing was read yet." in " ".join(scene.page("/").split())
    assert "The pools are being read." not in scene.page("/")
    assert "403 forbidden" in scene.browser.get("/pools/chat/pool").text
    assert scene.told == ["The pools cannot be read: Cannot list servingpools: 403 forbidden."]
    scene.silence.api = ""
    scene.board.read()
    assert scene.told[1:] == ["The pools can be read again."]


def test_who_may_not_list_all_namespaces_is_told_of_the_option(scene: Scene) -> None:
    def connect() -> Pools:
        raise Forbidden("Cannot list servingpools: 403 Forbidden")

    told: list[str] = []
    board = Board(connect, None, scene.clock, told.append)
    board.read()
    board.read()
    said = "Cannot list servingpools: 403 Forbidden. Give -n NAMESPACE if you may read the pools of one namespace only"
    assert (board.sight.failure, told) == (said, [f"The pools cannot be read: {said}."])


def test_a_defect_of_ours_is_said_and_not_hidden_behind_an_old_table(scene: Scene) -> None:
    scene.api.events = [{"type": "ADDED", "object": {"metadata": {"resourceVersion": "9"}}}]
    scene.board.read()
    assert "Internal error while the pools were read (KeyError)" in scene.page("/")


@pytest.mark.parametrize(("silence", "waits"), [("", PAUSE), ("the API server did not answer", RETRY)])
def test_a_watch_that_ends_at_once_is_not_opened_again_at_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, silence: str, waits: float
) -> None:
    waited: list[float] = []
    stopped = SimpleNamespace(is_set=lambda: len(waited) == 3, wait=waited.append)
    monkeypatch.setattr(scene.board, "_stopped", stopped)
    scene.api.silence.watch = silence
    scene.board._follow()
    assert waited == [waits] * 3


def test_the_table_begins_with_the_cause_of_a_missed_slo(scene: Scene) -> None:
    """It showed "44.6% of the last hour's requests met the SLO, of the last 5 minutes 4.5%, of..." and cut the rest."""
    figures = "44.6% of the last hour's requests met the SLO, of the last 5 minutes 4.5%; the objective is 99.9%."
    missed = pool("slow", Trouble.SLO_MISSED, attainment=44.6)
    missed["status"]["conditions"][0]["message"] = f"{figures} The traffic needs 9 replicas; max allows 4."
    scene.store(missed)
    page = scene.page("/")
    assert '<span class="said">The traffic needs 9 replicas; max allows 4.</span>' in page
    assert figures in html.unescape(scene.page("/pools/chat/slow"))


def test_the_first_page_has_what_servingpool_fleet_shows(scene: Scene) -> None:
    assert 'hx-get="/fleet" hx-trigger="load"' in scene.page("/")
    shown = re.sub(r"(\s|<[^>]+>)+", " ", page := scene.page("/fleet"))
    assert f"chat llama 1 {scene.world.status()['readyReplicas']} " in shown, "namespace, model, pools, ready"
    scene.silence.prometheus = "cannot be reached"
    assert scene.page("/fleet") == page, "many who look ask Prometheus once"
    scene.later = 60.0
    assert "The fleet cannot be read: Prometheus backend &#39;default&#39; cannot be reached." in scene.page("/fleet")
