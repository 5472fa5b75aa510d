from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client.parser import text_string_to_metric_families

from servingpool.decision.pool import Slo
from servingpool_lab.emulator import server
from servingpool_lab.emulator.fleet import EmulatedFleet
from servingpool_lab.emulator.pods import Pod, Standing
from servingpool_lab.emulator.replay import replay
from servingpool_lab.emulator.world import World
from servingpool_simulation.hardware import engine_profile
from servingpool_simulation.traces import poisson


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def world(clock: Clock) -> World:
    traffic = poisson("steady", [2.0], 600.0, prompt=600, output=100, seed=1)
    fleet = EmulatedFleet(engine_profile("a100-70b-tp4"), Slo(time_to_first_token=2.0))
    return World(fleet, "llama", lambda begin: replay(traffic, begin), clock=clock, unix=lambda: 1.7e9 + clock.now)


@pytest.fixture
async def client(world: World) -> AsyncIterator[TestClient[Any, Any]]:
    async with TestClient(TestServer(server.application(world))) as made:
        yield made


async def test_serves_each_pods_page_as_prometheus_text(
    client: TestClient[Any, Any], world: World, clock: Clock
) -> None:
    world.see(Pod("default", "a", Standing.READY))
    clock.now = 30.0
    answer = await client.get("/pods/default/a/metrics")
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    families = {family.name: family for family in text_string_to_metric_families(await answer.text())}
    (sample,) = [s for s in families["vllm:generation_tokens"].samples if s.name.endswith("_total")]
    assert sample.labels == {"engine": "0", "model_name": "llama"}
    assert sample.value > 0


@pytest.mark.parametrize("pod", ["loading", "never-was"])
async def test_a_pod_that_does_not_listen_has_no_page(client: TestClient[Any, Any], world: World, pod: str) -> None:
    world.see(Pod("default", "loading", Standing.LOADING))
    assert (await client.get(f"/pods/default/{pod}/metrics")).status == 503


async def test_the_truth_is_json_from_the_first_moment_on(
    client: TestClient[Any, Any], world: World, clock: Clock
) -> None:
    before = await (await client.get("/truth")).json()
    assert (before["open"], before["attainment"], before["ttft"]) == (False, None, None)
    assert await (await client.get("/truth/series")).json() == {}
    world.see(Pod("default", "a", Standing.READY))
    clock.now = 60.0
    after = await (await client.get("/truth")).json()
    assert after["arrived"] > 60
    assert after["attainment"] > 0.9
    assert (await (await client.get("/truth/series")).json())["time"] == [15.0, 30.0, 45.0, 60.0]


async def test_a_drained_server_is_removed_once(world: World, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[str] = []

    class Kubelet:
        async def exit(self, _namespace: str, name: str) -> None:
            removed.append(name)

    monkeypatch.setattr(server, "_STEP_SECONDS", 0.0)
    world.see(Pod("default", "a", Standing.READY))
    world.see(Pod("default", "b", Standing.READY))
    world.see(Pod("default", "b", Standing.TERMINATING))
    clock.now = 300.0
    task = asyncio.create_task(server.pass_time(world, Kubelet()))  # type: ignore[arg-type]
    for _ in range(20):
        await asyncio.sleep(0)
    task.cancel()
    assert removed == ["b"]
