"""Requests that wait before the engines."""

from __future__ import annotations

import pytest

from servingpool.decision.observation import Unknown

NOW = 1_790_000_000.0
EPP = {"metric": "llm_d_epp_flow_control_queue_size", "model_label": "target_model_name"}


async def test_every_pool_of_a_model_sees_its_gateways_queue(prometheus, open_backend):
    prometheus.rows = [{"metric": {"target_model_name": "llama"}, "value": [NOW, "7"]}]
    reading = await open_backend(gateway=EPP).gateway()
    assert reading.select("chat", "llama") == 7
    (query,) = prometheus.queries()
    assert query == (
        "sum by (target_model_name) (llm_d_epp_flow_control_queue_size{} "
        "and timestamp(llm_d_epp_flow_control_queue_size{}) > time() - 60)"
    )


async def test_where_the_series_have_a_namespace_only_its_pools_see_them(prometheus, open_backend):
    prometheus.rows = [{"metric": {"target_model_name": "llama", "ns": "chat"}, "value": [NOW, "7"]}]
    backend = open_backend(gateway=EPP | {"namespace_label": "ns", "match_labels": {"job": 'e"pp'}})
    reading = await backend.gateway()
    assert reading.select("chat", "llama") == 7
    assert isinstance(reading.select("other", "llama"), Unknown)
    assert r'{job="e\"pp"}' in prometheus.queries()[0]


async def test_a_queue_without_a_series_is_unknown_not_empty(prometheus, open_backend):
    reading = await open_backend(gateway=EPP).gateway()
    assert reading.select("chat", "llama") == Unknown("the gateway exports no queue for model 'llama'")


async def test_a_queue_that_is_nan_is_unknown(prometheus, open_backend):
    prometheus.rows = [{"metric": {"target_model_name": "llama"}, "value": [NOW, "NaN"]}]
    reading = await open_backend(gateway=EPP).gateway()
    assert isinstance(reading.select("chat", "llama"), Unknown)


@pytest.mark.parametrize("trouble", ["down", "partial", "unconfigured", "shape"])
async def test_a_gateway_that_cannot_be_read_is_unknown(prometheus, open_backend, raw, trouble):
    if trouble == "down":
        prometheus.raw = raw(503)
    if trouble == "partial":
        prometheus.warnings = ["a store is down"]
    if trouble == "shape":
        prometheus.rows = [{"value": [NOW, "1"]}]
    reading = await open_backend(**({} if trouble == "unconfigured" else {"gateway": EPP})).gateway()
    assert isinstance(reading, Unknown)
