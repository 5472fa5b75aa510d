"""How Prometheus is asked: few queries, quoted, authenticated."""

from __future__ import annotations

import asyncio
import re
import string
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from servingpool.adapters.prometheus.diagnosis import LONGEST_QUERY, Cause, causes, explained, question
from servingpool.adapters.prometheus.engines import EngineMetrics, profile_of, shipped
from servingpool.adapters.prometheus.plan import MOST_SLICES, ROWS_PER_SLICE, Plan
from servingpool.adapters.prometheus.promql import Queries, Scope, quote
from servingpool.adapters.prometheus.samples import BucketCount, Layout, ReadRequest
from servingpool.decision.observation import Unknown

from .conftest import Raw

RECORDED = Path(__file__).parents[3] / "fixtures" / "vllm-0.32.0-metrics.txt"
NOW = 1_790_000_000.0
TTFT = "vllm:time_to_first_token_seconds"


async def test_the_number_of_queries_grows_neither_with_pods_nor_with_pools(prometheus, backend):
    for index in range(500):
        prometheus.expose(f"llama-{index}", namespace=f"team-{index}")
    bounds = frozenset(index / 100 for index in range(1, 400))
    reading = await backend.read(ReadRequest(ttft_bounds=bounds), NOW)
    assert len(reading.samples) == 500
    assert reading.queries == len(prometheus.asked) == 2
    reading = await backend.read(ReadRequest(ttft_bounds=bounds), NOW + 15)
    assert reading.queries == 1


async def test_twenty_thousand_pods_are_read_in_slices(prometheus, backend, request_2s_100ms):
    prometheus.layout[TTFT] = dict.fromkeys(prometheus.layout[TTFT], 20_000)
    reading = await backend.read(request_2s_100ms, NOW)
    assert reading.queries == 7
    endings = [re.findall(r'pod=~"\.\*\[(\w+)\]"', query)[0] for query in prometheus.queries()]
    assert sorted("".join(endings)) == sorted(string.ascii_lowercase + string.digits)


def test_a_reply_stays_small_where_the_slos_of_many_pools_ask_for_every_bucket():
    queries, bounds = Queries(profile_of("vllm")), frozenset(index / 1000 for index in range(1, 9_999))
    page = text_string_to_metric_families(RECORDED.read_text())
    every = [
        BucketCount(family.name, sample.labels["le"], 20_000.0)
        for family in page
        if family.name in queries.histograms
        for sample in family.samples
        if sample.name.endswith("_bucket")
    ]
    plan = Plan.of(queries, Layout.read(every), ReadRequest(ttft_bounds=bounds, tpot_bounds=bounds))
    assert plan.slices <= MOST_SLICES
    assert plan.rows / plan.slices <= ROWS_PER_SLICE


@given(number=st.integers(2, MOST_SLICES))
def test_slices_hold_every_pod_once(number):
    slices = Scope((("a", "b"),)).slices(number)
    assert len(slices) == number
    assert sorted("".join(part.endings for part in slices)) == sorted(string.ascii_lowercase + string.digits)
    assert all(part.match_labels == (("a", "b"),) for part in slices)


async def test_buckets_are_looked_up_again_every_ten_minutes(prometheus, backend, request_2s_100ms):
    prometheus.expose("llama-0")
    for age in (0, 15, 599, 601, 615):
        await backend.read(request_2s_100ms, NOW + age)
    assert len(prometheus.queries(layout=True)) == 2


async def test_a_pod_with_new_buckets_is_read_after_the_next_lookup(prometheus, backend, request_2s_100ms, page):
    page[f"{TTFT}_bucket"] = {"1.9": 30, "2.1": 45}
    prometheus.expose("llama-0", page)
    await backend.read(request_2s_100ms, NOW)
    prometheus.layout[TTFT] |= {"1.9": 1, "2.1": 1}
    reading = await backend.read(request_2s_100ms, NOW + 15)
    assert reading.samples["chat", "llama-0"]["llama"].time_to_first_token.bounds == (1.9, 2.1)


async def test_while_there_is_no_engine_every_read_looks_for_one(prometheus, backend, request_2s_100ms):
    layout, prometheus.layout = prometheus.layout, {}
    assert (await backend.read(request_2s_100ms, NOW)).samples == {}
    prometheus.layout = layout
    prometheus.expose("llama-0")
    reading = await backend.read(request_2s_100ms, NOW + 15)
    assert reading.samples["chat", "llama-0"]["llama"].time_to_first_token.bounds == (1.0, 2.5)


@pytest.mark.parametrize("text", ["1", "1.0"])
async def test_le_is_understood_as_any_prometheus_writes_it(prometheus, backend, request_2s_100ms, page, text):
    prometheus.layout[TTFT] = {text: 1, "2.5": 1, "+Inf": 1}
    prometheus.expose("llama-0", page | {f"{TTFT}_bucket": {text: 30, "2.5": 45}})
    await backend.read(request_2s_100ms, NOW)
    reading = await backend.read(request_2s_100ms, NOW + 15)
    assert reading.samples["chat", "llama-0"]["llama"].time_to_first_token.bounds == (1.0, 2.5)
    assert r'le=~"1|1\\.0|2\\.5"' in prometheus.queries()[0]


async def test_an_upgrade_of_prometheus_rewrites_le_and_no_bucket_is_lost(prometheus, backend, request_2s_100ms, page):
    prometheus.expose("llama-0")
    await backend.read(request_2s_100ms, NOW)
    prometheus.rows.clear()
    prometheus.expose("llama-0", page | {f"{TTFT}_bucket": {"1": 31, "2.5": 46}})
    reading = await backend.read(request_2s_100ms, NOW + 15)
    assert reading.samples["chat", "llama-0"]["llama"].time_to_first_token.counts == (31, 46)


HOSTILE = 'a"} or {__name__=~".+"} #\\\n\u202eü'


async def test_a_label_value_cannot_leave_its_quotes(prometheus, backend, request_2s_100ms):
    await backend.read(replace(request_2s_100ms, match_labels=(("team", HOSTILE),)), NOW)
    for query in prometheus.queries() + prometheus.queries(layout=True):
        strings = re.findall(r'"(?:[^"\\]|\\.)*"', query)
        assert any('a\\"} or {__name__=~\\".+\\"} #\\\\\\n' in text for text in strings)
        assert "or {__name__" not in re.sub(r'"(?:[^"\\]|\\.)*"', "", query)
        assert "\n" not in query


def test_go_reads_what_is_quoted():
    assert quote('say "hi"\t\\ ü') == r'"say \"hi\"\t\\ ü"'


@pytest.mark.parametrize("name", ["", "1a", "a-b", 'a="b",c', "ü"])
def test_a_label_name_that_is_none_is_refused(name):
    with pytest.raises(ValueError, match="is no Prometheus label name"):
        ReadRequest(match_labels=((name, "x"),))


async def test_requests_with_different_matchers_keep_their_own_buckets(prometheus, backend, request_2s_100ms):
    prometheus.expose("llama-0")
    for _ in range(2):
        for team in ("a", "b"):
            await backend.read(replace(request_2s_100ms, match_labels=(("team", team),)), NOW)
    assert len(prometheus.queries(layout=True)) == 2
    assert all('team="' in query for query in prometheus.queries())


async def test_never_fills_in_zero_nor_takes_a_rate(prometheus, backend, request_2s_100ms):
    await backend.read(request_2s_100ms, NOW)
    for query in prometheus.queries():
        assert "vector(" not in query
        assert "rate(" not in query
        assert "increase(" not in query


async def test_series_of_the_router_are_not_the_engines(prometheus, backend, request_2s_100ms):
    await backend.read(request_2s_100ms, NOW)
    (query,) = prometheus.queries()
    selectors = re.findall(r"\{[^}]*\}", query)
    assert selectors
    assert all('model_name!=""' in selector for selector in selectors)


def test_a_label_by_which_figures_choose_is_kept_whatever_is_added_up():
    """Else the greatest of a pod's series would stand for all of them, without the label."""
    series = [{"name": "acme_tokens_total", "labels": {"kind": ["input", "cached"]}}]
    acme = EngineMetrics.model_validate({"figures": {"running": ["acme_busy"], "promptTokens": series}})
    [term] = [term for term in Queries(acme).samples({}, Scope()).split(" or ") if "acme_tokens_total" in term]
    assert re.findall(r"(sum|max) by \(([^)]*)\)", term) == [
        ("sum", "__name__, kind, exported_kind, namespace, pod"),
        ("max", "__name__, kind, exported_kind, namespace, pod"),
        ("sum", "__name__, kind, exported_kind, job, instance, namespace, pod"),
    ]


async def test_a_tenant_with_many_broken_pods_leaves_those_of_others_explained(prometheus, backend):
    broken = {("busy", f"pod-{number:03d}") for number in range(2_000)}
    await backend.read(ReadRequest(explain=frozenset(broken | {("quiet", "alone")})), NOW)
    [question] = [query for query in prometheus.queries() if "up{" in query]
    assert 'namespace=~"busy|quiet"' in question
    assert 'pod=~"alone|' in question
    assert LONGEST_QUERY - 100 < len(question) <= LONGEST_QUERY


def test_as_many_pods_are_explained_as_a_query_has_room_for_however_long_their_names():
    queries = Queries(profile_of("sglang"))
    for length in (20, 200):
        pods = [("chat", f"{number:03d}".ljust(length, "x")) for number in range(1_000)]
        asked = explained(queries, shipped(), pods)
        assert asked == pods[: len(asked)]
        assert LONGEST_QUERY - 2 * length - 10 < len(question(queries, shipped(), asked)) <= LONGEST_QUERY


def why(engine: str, *series: dict[str, str]) -> Cause | None:
    """The cause for the pod chat/a, which is scraped and has these series without a sample."""
    pod = {"namespace": "chat", "pod": "a"}
    rows: list[dict[str, Any]] = [{"metric": {"part": "series", **pod, **one}, "value": [0, "1"]} for one in series]
    rows.append({"metric": {"part": "up", **pod}, "value": [0, "1"]})
    found = causes(Queries(profile_of(engine)), engine, shipped(), [("chat", "a")], rows)
    return found["chat", "a"].cause if found else None


def test_a_prometheus_without_any_target_may_be_another_tenants():
    rows = [{"metric": {"part": "nobody"}, "value": [0, "1"]}]
    told = causes(Queries(profile_of("vllm")), "vllm", shipped(), [("chat", "a")], rows)["chat", "a"]
    assert (told.cause, "which may name another tenant" in told.reason) == (Cause.NOT_SCRAPED, True)


def test_a_pod_whose_series_came_meanwhile_has_no_wrong_labels():
    series = {"__name__": "sglang:num_running_reqs", "model_name": "org/model"}
    assert why("sglang", series) is None
    assert why("sglang", {**series, "priority": "high"}) is None
    assert why("vllm", {"__name__": "vllm:num_requests_running", "model_name": "org/model"}) is None


def test_a_routers_series_of_its_engines_are_told_from_an_engines_without_a_model():
    running = {"__name__": "vllm:num_requests_running"}
    assert why("vllm", {**running, "server": "http://10.0.0.1:8000"}) is Cause.ROUTER
    assert why("vllm", running) is Cause.WRONG_LABELS


async def test_long_queries_are_posted_and_short_ones_are_not(prometheus, backend, request_2s_100ms):
    await backend.number("queue")
    await backend.read(request_2s_100ms, NOW)
    short, _, pages = prometheus.asked
    assert (short.method, pages.method) == ("GET", "POST")
    assert len(pages.parameters["query"]) > 2_000


async def test_prometheus_is_told_how_long_we_wait(prometheus, open_backend, request_2s_100ms):
    await open_backend(timeout="4s").read(request_2s_100ms, NOW)
    milliseconds = [int(asked.parameters["timeout"].removesuffix("ms")) for asked in prometheus.asked]
    assert all(0 < later <= earlier <= 4_000 for earlier, later in pairwise(milliseconds))


async def test_a_server_that_delays_its_answers_is_asked_not_to_and_no_other(
    prometheus, open_backend, request_2s_100ms
):
    """VictoriaMetrics answers as of 30 s ago without these; some servers refuse parameters that they do not know.

    A client's first query, which cannot have them, is asked again. `nocache` is of ranges alone: with it an instant
    query is of now, and of some series VictoriaMetrics has the newest scrape before it has that of others.
    """

    def asked() -> list[tuple[str | None, str | None]]:
        found = [(one.parameters.get("latency_offset"), one.parameters.get("nocache")) for one in prometheus.asked]
        prometheus.asked.clear()
        return found

    backend = open_backend(concurrency=1)
    prometheus.expose("a")
    await backend.read(request_2s_100ms, NOW)
    assert asked() == [(None, None)] * 2
    prometheus.beside = {"stats": {"seriesFetched": "7", "executionTimeMsec": 2}}
    await backend.read(request_2s_100ms, NOW + 15)
    assert asked() == [(None, None), ("5s", None)]
    await backend.history(request_2s_100ms, start=NOW - 30, end=NOW, step=15, namespaces=["chat"])
    assert asked() == [("5s", None), ("5s", "1")]
    prometheus.beside = {}
    await backend.read(request_2s_100ms, NOW + 30)
    await backend.read(request_2s_100ms, NOW + 45)
    assert asked() == [("5s", None), (None, None)]
    prometheus.beside = {"stats": {"seriesFetched": "7"}}
    await backend.read(request_2s_100ms, NOW + 60)
    prometheus.raw = Raw(status=400, body=b'{"status":"error","errorType":"bad_data","error":"unknown parameter"}')
    assert isinstance(await backend.read(request_2s_100ms, NOW + 75), Unknown)
    asked()
    prometheus.raw, prometheus.beside = None, {}
    await backend.read(request_2s_100ms, NOW + 90)
    assert asked() == [(None, None)], "a server that refuses them has come: it is asked without"


async def test_a_rotated_token_is_used_at_once(prometheus, open_backend, request_2s_100ms, tmp_path):
    token = tmp_path / "token"
    token.write_text("first\n")
    backend = open_backend(bearer_token_file=token, headers={"X-Scope-OrgID": "tenant-1"})
    await backend.read(request_2s_100ms, NOW)
    token.write_text("second\n")
    await backend.read(request_2s_100ms, NOW + 15)
    assert prometheus.asked[0].headers["Authorization"] == "Bearer first"
    assert prometheus.asked[-1].headers["Authorization"] == "Bearer second"
    assert {asked.headers["X-Scope-OrgID"] for asked in prometheus.asked} == {"tenant-1"}


async def test_a_password_is_read_from_its_file(prometheus, open_backend, request_2s_100ms, tmp_path):
    (tmp_path / "password").write_text("pa:ss\n")
    backend = open_backend(basic_auth={"username": "me", "password_file": tmp_path / "password"})
    await backend.read(request_2s_100ms, NOW)
    assert prometheus.asked[0].headers["Authorization"] == "Basic bWU6cGE6c3M="


async def test_both_ends_show_certificates(secure_prometheus, open_backend, request_2s_100ms, certificates):
    tls = {"ca_file": certificates["ca"], "cert_file": certificates["cert"], "key_file": certificates["key"]}
    secure_prometheus.expose("llama-0")
    reading = await open_backend(url=secure_prometheus.url, tls=tls).read(request_2s_100ms, NOW)
    assert ("chat", "llama-0") in reading.samples


async def test_the_environment_redirects_nothing(prometheus, backend, request_2s_100ms, monkeypatch, tmp_path):
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login evil password evil\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    prometheus.expose("llama-0")
    assert (await backend.read(request_2s_100ms, NOW)).samples
    assert "Authorization" not in prometheus.asked[0].headers


async def test_one_connection_serves_many_reads(prometheus, open_backend, request_2s_100ms):
    backend = open_backend(concurrency=1)
    for age in range(5):
        await backend.read(request_2s_100ms, NOW + age)
    assert len({asked.connection for asked in prometheus.asked}) == 1


async def test_a_path_prefix_and_own_label_names_are_kept(prometheus, open_backend, request_2s_100ms):
    backend = open_backend(
        url=f"{prometheus.url}/prometheus/", labels={"namespace": "kubernetes_namespace", "pod": "kubernetes_pod_name"}
    )
    prometheus.expose("x", kubernetes_namespace="chat", kubernetes_pod_name="llama-0")
    reading = await backend.read(request_2s_100ms, NOW)
    assert ("chat", "llama-0") in reading.samples
    assert prometheus.asked[0].path == "/prometheus/api/v1/query"
    assert "kubernetes_pod_name" in prometheus.queries()[0]


async def test_every_query_of_the_present_names_the_namespaces_of_its_pools(prometheus, backend, request_2s_100ms):
    """Else the page of any pod in the cluster would be read with them."""
    prometheus.expose("llama-0")
    request = replace(request_2s_100ms, namespaces=frozenset({"chat", "code"}), explain=frozenset({("chat", "a")}))
    await backend.read(request, NOW)
    for query in prometheus.queries() + prometheus.queries(layout=True):
        for selector in re.findall(r"\{[^}]*\}", query):
            lost = "sglang" in selector or 'pod=""' in selector or 'namespace=""' in selector
            assert lost or 'namespace=~"chat|code"' in selector or 'namespace=~"chat"' in selector, selector


async def test_each_read_follows_its_own_look_up(prometheus, open_backend, request_2s_100ms):
    """Look-ups of five hundred label sets would else come before the second query of the first one."""
    backend = open_backend(concurrency=1)
    prometheus.expose("llama-0")
    others = [replace(request_2s_100ms, match_labels=(("tenant", name),)) for name in "abc"]
    await asyncio.gather(*(backend.read(other, NOW) for other in others))
    asked = [re.findall(r'tenant="(.)"', asked.parameters["query"])[0] for asked in prometheus.asked]
    assert asked == ["a", "a", "b", "b", "c", "c"]
