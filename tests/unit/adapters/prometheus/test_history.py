"""The past hour, read once at first sight of a pool."""

from __future__ import annotations

import re
import threading
from dataclasses import replace

import pytest

from servingpool.adapters.prometheus import plan
from servingpool.adapters.prometheus.backend_config import SeriesLabels
from servingpool.adapters.prometheus.samples import TooLarge
from servingpool.decision.observation import Unknown

NOW = 1_790_000_000.0


async def test_history_has_the_same_shape_as_a_present_read(prometheus, backend, request_2s_100ms):
    prometheus.expose("llama-0")
    now = (await backend.read(request_2s_100ms, NOW)).samples
    past = await backend.history(request_2s_100ms, start=NOW - 30, end=NOW, step=15, namespaces=["chat"])
    assert [at for at, _ in past] == [NOW - 30, NOW - 15, NOW]
    assert past[-1][1] == now
    assert [pages["chat", "llama-0"]["llama"].scraped_at for _, pages in past] == [NOW - 35, NOW - 20, NOW - 5]


async def test_only_the_namespaces_asked_for_are_read_under_either_label(prometheus, open_backend, request_2s_100ms):
    backend = open_backend(labels=SeriesLabels(exported=True))
    await backend.history(request_2s_100ms, start=NOW - 30, end=NOW, step=15, namespaces=["team.a", "chat"])
    for query in prometheus.queries() + prometheus.queries(layout=True):
        selectors = re.findall(r"\{[^}]*\}", query)
        named = [re.findall(r'(\w*namespace)=~"chat\|team\\\\.a"', selector) for selector in selectors]
        assert named == [["namespace"], ["exported_namespace"]] * (len(selectors) // 2)


async def test_only_the_models_asked_for_are_read_under_either_label(prometheus, backend, request_2s_100ms):
    request = replace(request_2s_100ms, models=frozenset({"Qwen/Qwen3-8B", "llama"}))
    await backend.history(request, start=NOW - 30, end=NOW, step=15, namespaces=["chat"])
    for query in prometheus.queries() + prometheus.queries(layout=True):
        selectors = re.findall(r"(?<!up)\{[^}]*\}", query)
        named = [re.findall(r'(\w*model_name)=~"Qwen/Qwen3\\\\-8B\|llama"', selector) for selector in selectors]
        assert named == [["model_name"], ["exported_model_name"]] * (len(selectors) // 2)
        assert all('namespace=~"chat"' in selector for selector in selectors)


@pytest.mark.parametrize(("exported", "labels"), [(False, ["pod"]), (True, ["pod", "exported_pod"])])
async def test_only_pods_that_are_called_so_are_read(prometheus, open_backend, request_2s_100ms, exported, labels):
    request = replace(request_2s_100ms, pods=r"b\.c-.*|vllm-[a-z]{5}")
    backend = open_backend(labels={"exported": exported})
    await backend.history(request, start=NOW - 30, end=NOW, step=15, namespaces=["chat"])
    for query in prometheus.queries() + prometheus.queries(layout=True):
        selectors = query.split("{__name__")[1:]
        named = [re.findall(r'(\w*pod)=~"b\\\\.c-\.\*\|vllm-\[a-z\]\{5\}"', selector) for selector in selectors]
        assert {name for (name,) in named} == set(labels)


async def test_a_range_begins_and_ends_at_the_time_asked_for(prometheus, backend, request_2s_100ms):
    """The library would ask for whole seconds."""
    await backend.history(request_2s_100ms, start=NOW - 30.25, end=NOW - 0.25, step=15, namespaces=["chat"])
    [asked] = [asked.parameters for asked in prometheus.asked if asked.path.endswith("/query_range")]
    assert (float(asked["start"]), float(asked["end"])) == (NOW - 30.25, NOW - 0.25)


async def test_times_without_a_sample_are_empty_not_left_out(prometheus, backend, request_2s_100ms):
    past = await backend.history(request_2s_100ms, start=NOW - 60, end=NOW, step=15, namespaces=["chat"])
    assert past == [(NOW - 60 + 15 * index, {}) for index in range(5)]


async def test_no_namespace_is_not_all_of_them(prometheus, backend, request_2s_100ms):
    prometheus.expose("llama-0")
    past = await backend.history(request_2s_100ms, start=NOW - 15, end=NOW, step=15, namespaces=[])
    assert past == [(NOW - 15, {}), (NOW, {})]
    assert prometheus.asked == []


async def test_a_long_history_is_read_in_chunks_without_gaps(prometheus, backend, request_2s_100ms, monkeypatch):
    monkeypatch.setattr(plan, "SAMPLES_PER_CHUNK", 400)
    prometheus.expose("llama-0")
    past = await backend.history(request_2s_100ms, start=NOW - 3_600, end=NOW, step=15, namespaces=["chat"])
    assert len(prometheus.queries()) > 10
    assert len(past) == 241
    assert all(len(pages) == 1 for _, pages in past)
    ranges = [asked.parameters for asked in prometheus.asked if asked.path.endswith("query_range")]
    times = [float(text) for parameters in ranges for text in (parameters["start"], parameters["end"])]
    assert times == sorted(times)


async def test_all_chunks_of_a_history_share_one_deadline(prometheus, open_backend, request_2s_100ms, monkeypatch):
    """Each had as much: a day of slow parts would keep its backend's pools waiting for minutes."""
    monkeypatch.setattr(plan, "SAMPLES_PER_CHUNK", 400)
    answer = prometheus.answer

    def slowly(asked):
        threading.Event().wait(0.2)
        return answer(asked)

    monkeypatch.setattr(prometheus, "answer", slowly)
    backend = open_backend(patience=0.5)
    past = await backend.history(request_2s_100ms, start=NOW - 3_600, end=NOW, step=15, namespaces=["chat"])
    assert past == Unknown("Prometheus backend 'default' did not answer within 0.5 s")
    assert len(prometheus.asked) <= 3


async def test_a_history_with_too_many_samples_is_unknown(prometheus, backend, request_2s_100ms):
    """A fleet may have been a hundred times what it is now."""
    prometheus.expose("llama-0")
    prometheus.expose("llama-1")
    times = {"start": NOW - 30, "end": NOW, "step": 15, "namespaces": ["chat"]}
    past = await backend.history(request_2s_100ms, **times, most_samples=6)
    assert [len(pages) for _, pages in past] == [2, 2, 2]
    past = await backend.history(request_2s_100ms, **times, most_samples=5)
    assert past == TooLarge("Prometheus backend 'default' returned more than 5 samples")


async def test_no_series_has_more_points_than_prometheus_gives(prometheus, backend, request_2s_100ms):
    await backend.history(request_2s_100ms, start=NOW - 86_400, end=NOW, step=1, namespaces=["chat"])
    for asked in prometheus.asked:
        if asked.path.endswith("query_range"):
            assert float(asked.parameters["end"]) - float(asked.parameters["start"]) < 11_000


async def test_a_history_with_a_missing_part_is_unknown(prometheus, backend, request_2s_100ms):
    prometheus.expose("llama-0")
    prometheus.beside = {"warnings": ["store 10.4.5.6 is down"]}
    past = await backend.history(request_2s_100ms, start=NOW - 30, end=NOW, step=15, namespaces=["chat"])
    assert past == Unknown("Prometheus backend 'default' gave a partial answer; check the stores that it reads from")


async def test_a_pod_that_was_not_scraped_for_a_while_is_absent_then(prometheus, backend, request_2s_100ms):
    prometheus.expose("lost", scraped_at=NOW - 50)
    past = await backend.history(request_2s_100ms, start=NOW - 15, end=NOW + 15, step=15, namespaces=["chat"])
    assert [len(pages) for _, pages in past] == [1, 1, 0]
