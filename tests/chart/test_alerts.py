"""The chart's alerts on pools: a real Prometheus scrapes the exporter after a story, and fires what is expected."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import CollectorRegistry, start_http_server

from servingpool.adapters.cluster.errors import Forbidden
from servingpool.loop.metrics import LoopMetrics, PoolCollector
from servingpool_lab.binaries import ensure_binaries
from servingpool_lab.processes import open_local, wait_until

from ..integration.operators import PATIENCE  # noqa: TID252, tests are no package of an installed name
from ..integration.operators import prometheus as started  # noqa: TID252
from ..unit.gpubudget.test_budgets import two  # noqa: TID252
from ..unit.reconcile.fake_cluster import FakeCluster  # noqa: TID252, tests are no package of an installed name
from ..unit.reconcile.role_cluster import DECODE, PREFILL, RoleCluster  # noqa: TID252
from ..unit.reconcile.stories import several  # noqa: TID252
from ..unit.reconcile.test_batch import short_of_replicas  # noqa: TID252
from .conftest import Render

LATE = "Some users wait longer than promised for the first token, or between tokens."
Alerts = dict[tuple[str, str, str], dict[str, str]]
"""Annotations by alert, pool and reason."""


@contextmanager
def prometheus(directory: Path, page: int, groups: list[dict[str, Any]]) -> Iterator[str]:
    """The URL of one that scrapes this port every second. Alerts fire at once: that they wait is written beside them."""
    hasty = [{**group, "rules": [{**rule, "for": "0s"} for rule in group["rules"]]} for group in groups]
    (directory / "rules.yaml").write_text(yaml.safe_dump({"groups": hasty}))
    operator = {"job_name": "operator", "honor_labels": True, "static_configs": [{"targets": [f"127.0.0.1:{page}"]}]}
    every = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    config = {"global": every, "rule_files": ["rules.yaml"], "scrape_configs": [operator]}
    with started(ensure_binaries("prometheus")["prometheus"], config, directory) as url:
        yield url


def firing(url: str) -> Alerts:
    with open_local(f"{url}/api/v1/alerts", PATIENCE) as response:
        alerts = json.loads(response.read())["data"]["alerts"]
    return {
        (one["labels"]["alertname"], one["labels"].get("pool", ""), one["labels"].get("reason", "")): one["annotations"]
        for one in alerts
        if one["state"] == "firing"
    }


def fired(world: FakeCluster, expected: set[tuple[str, str, str]], render: Render, directory: Path) -> Alerts:
    """What fires, once it is what is expected; fails with what fires instead."""
    [rule] = [each for each in render("monitoring") if each["kind"] == "PrometheusRule"]
    groups = [group for group in rule["spec"]["groups"] if group["name"] == "servingpool-pools"]
    registry = CollectorRegistry()
    registry.register(PoolCollector(lambda: world.loop.snapshot, dict, dict, lambda: world.loop.shared))
    server, thread = start_http_server(0, addr="127.0.0.1", registry=registry)
    try:
        with prometheus(directory, server.server_port, groups) as url:
            try:
                wait_until(lambda: firing(url).keys() == expected, PATIENCE, "the alerts", 0.5)
            except TimeoutError:
                assert firing(url).keys() == expected
            return firing(url)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_pools_without_an_operator_alert_where_several_share_them(render: Render, tmp_path: Path) -> None:
    [rule] = [each for each in render("monitoring", "--set=shards.enabled=true") if each["kind"] == "PrometheusRule"]
    groups = [group for group in rule["spec"]["groups"] if group["name"] == "servingpool-operator"]
    for one in (one for group in groups for one in group["rules"]):
        one["expr"] = one["expr"].replace('namespace="servingpool-system"', 'job="operator"')
    registry = CollectorRegistry()
    loop = LoopMetrics(registry)
    loop.pools.set(3)
    loop.owned.set(2)
    loop.leading.set(1)
    server, thread = start_http_server(0, addr="127.0.0.1", registry=registry)
    try:
        with prometheus(tmp_path, server.server_port, groups) as url:
            wait_until(
                lambda: {name for name, *_ in firing(url)} == {"ServingPoolSharesWrong"}, PATIENCE, "the alert", 0.5
            )
            loop.owned.set(3)
            wait_until(lambda: not firing(url), PATIENCE, "no alert", 0.5)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_pool_that_is_not_ready_alerts_by_reason(render: Render, tmp_path: Path) -> None:
    world = FakeCluster()
    world.serve(rate=6.0)
    world.pool("well", targets=[{"name": "vllm", "min": 2, "max": 2}])
    world.pool("typo", target="typo", slo={})
    world.pool("astray", target="vlm")
    world.pool("thanos", target="thanos", metrics={"backend": "thanos"})
    world.serve("frozen", rate=6.0)
    world.pool("frozen", targets=[{"name": "frozen", "min": 3, "max": 10}])
    world.writes.refuse["scale"] = Forbidden("Cannot scale Deployment chat/frozen: 403 Forbidden")
    world.step(minutes=6)
    expected = {
        ("ServingPoolNotReady", "typo", "InvalidSpec"),
        ("ServingPoolNotReady", "astray", "TargetNotFound"),
        ("ServingPoolNotReady", "thanos", "UnknownBackend"),
        ("ServingPoolNotReady", "frozen", "FailedUpdateScale"),
    }
    found = fired(world, expected, render, tmp_path)
    words = found["ServingPoolNotReady", "typo", "InvalidSpec"]
    assert words["summary"] == "Pool chat/typo is not Ready: InvalidSpec."
    assert "kubectl describe sp typo -n chat" in words["runbook"]
    assert words["runbook"].endswith(" Correct the fields that the message names.")
    assert "do not follow the load" in words["description"]


def test_the_slo_is_missed_by_the_pools_own_objective(render: Render, tmp_path: Path) -> None:
    """90% was asked of every pool: one that asks for 99% missed it unheard, one that asks for 60% met it and alerted."""
    world = FakeCluster()
    for name, objective in (("strict", 99), ("modest", 60)):
        world.serve(name, rate=6.0)
        target = {"name": name, "min": 2, "max": 2}
        world.pool(name, targets=[target], slo={"timeToFirstToken": "2s", "attainment": objective})
    world.step(minutes=20)
    world.services["strict"].rate = world.services["modest"].rate = 40.0
    world.step(minutes=0.25)
    world.services["strict"].rate = 6.0
    world.step(minutes=0.75)
    world.services["modest"].rate = 6.0
    world.step(minutes=20)
    assert 90.0 < world.status("strict")["attainment"] < 99.0
    assert 60.0 < world.status("modest")["attainment"] < 90.0
    held = {("ServingPoolHeldBelowNeed", name, "") for name in ("strict", "modest")}
    found = fired(world, {("ServingPoolSloMissed", "strict", "")} | held, render, tmp_path)
    assert found["ServingPoolSloMissed", "strict", ""]["description"].endswith("The objective allows fewer. " + LATE)


def test_a_pool_without_metrics_alerts_with_the_reason_and_an_idle_one_does_not(render: Render, tmp_path: Path) -> None:
    """The need of a pool without a request so far is unknown too: it was said to have no metrics."""
    world = FakeCluster()
    world.serve(rate=6.0)
    world.serve("idle", rate=0.0)
    world.pool("misnamed", model="lama")
    world.pool("idle", target="idle")
    world.step(minutes=5)
    fired(world, {("ServingPoolBlind", "misnamed", "NoSeriesForModel")}, render, tmp_path)


def test_replicas_without_a_node_alert_once(render: Render, tmp_path: Path) -> None:
    """As a pool that is not Ready; not once more as replicas that are late and as a fleet below its need."""
    world = FakeCluster()
    world.serve(rate=30.0)
    world.pool()
    world.services["vllm"].unschedulable = True
    world.step(minutes=6)
    world.services["vllm"].rate = 60.0
    world.step(minutes=10)
    slow = ("ServingPoolSloMissed", "pool", "")
    pages = {("ServingPoolSloBurnsFast", "pool", ""), ("ServingPoolSloBurns", "pool", "")}
    found = fired(world, {("ServingPoolNotReady", "pool", "Unschedulable"), slow} | pages, render, tmp_path)
    assert found[slow]["summary"] == "Pool chat/pool misses its SLO."
    told = found["ServingPoolNotReady", "pool", "Unschedulable"]["description"]
    assert told.startswith("Replicas were ordered, and no node takes their pods.")


def test_a_target_without_nodes_alerts_once_and_its_probe_is_no_missing_replica(render: Render, tmp_path: Path) -> None:
    """Nor is a pool below its need where the need is counted in replicas of a slower target."""
    world = several()
    world.step(minutes=10)
    world.services["spot"].unschedulable = True
    world.services["on-demand"].rate = 20.0
    world.services["spot"].rate = 20.0
    world.step(minutes=12)
    assert world.condition("TargetsAvailable") == ("False", "TargetNotDelivering")
    slow = ("ServingPoolSloMissed", "pool", "")
    expected = {("ServingPoolTargetNotDelivering", "pool", ""), slow}
    found = fired(world, expected, render, tmp_path)
    summary = found["ServingPoolTargetNotDelivering", "pool", ""]["summary"]
    assert summary == "A target of pool chat/pool does not deliver replicas."


def test_a_role_that_is_held_below_its_need_alerts_and_one_that_has_what_it_needs_does_not(
    render: Render, tmp_path: Path
) -> None:
    world = RoleCluster(rate=4.0)
    world.pool(targets=[{**PREFILL, "max": 2}, DECODE])
    world.step(minutes=20)
    fired(world, set(), render, tmp_path)
    world.rate = 16.0
    world.step(minutes=20)
    missed = {(f"ServingPoolSlo{how}", "pool", "") for how in ("BurnsFast", "Burns", "Missed")}
    found = fired(world, {("ServingPoolHeldBelowNeed", "pool", "")} | missed, render, tmp_path)
    assert found["ServingPoolHeldBelowNeed", "pool", ""]["summary"] == "Pool chat/pool is held below its need."


def test_a_deadline_at_risk_alerts(render: Render, tmp_path: Path) -> None:
    late, held = ("ServingPoolDeadline", "pool", "DeadlineAtRisk"), ("ServingPoolHeldBelowNeed", "pool", "")
    fired(short_of_replicas(), {late, held}, render, tmp_path)


def test_a_pool_whose_gpus_others_still_hold_alerts(render: Render, tmp_path: Path) -> None:
    # One replica serves 1 request/s. At 6 requests/s `low` needs its two and would alert too.
    world = two(gpus=16, low=1.0)
    world.step(minutes=20)
    world.services["high"].rate = 30.0
    world.drain = True
    world.step(minutes=2)
    assert world.draining["low"]
    alert = ("ServingPoolWaitsForGpus", "high", "")
    effects = {(f"ServingPool{what}", "high", "") for what in ("HeldBelowNeed", "SloBurns", "SloMissed")}
    found = fired(world, {alert} | effects, render, tmp_path)
    assert found[alert]["summary"] == "Pool chat/high waits for GPUs of GPUBudget h100."
