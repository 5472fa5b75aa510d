from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from servingpool.decision.pool import Slo
from servingpool_lab.emulator.fleet import EmulatedFleet
from servingpool_lab.emulator.pods import Pod, Standing, pod_of
from servingpool_lab.emulator.replay import replay
from servingpool_lab.emulator.world import World
from servingpool_simulation.hardware import engine_profile
from servingpool_simulation.traces import poisson

TRAFFIC = poisson("steady", [2.0], 600.0, prompt=600, output=100, seed=1)


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Case:
    open_with: int = 1
    clock: Clock = field(default_factory=Clock)
    world: World = field(init=False)

    def __post_init__(self) -> None:
        slo = Slo(time_to_first_token=2.0, time_per_output_token=0.15)
        self.world = World(
            EmulatedFleet(engine_profile("a100-70b-tp4"), slo),
            "llama",
            lambda begin: replay(TRAFFIC, begin),
            open_with=self.open_with,
            clock=self.clock,
            unix=lambda: 1.7e9 + self.clock.now,
        )

    def see(self, name: str, standing: Standing, pre_stop: float = 0.0) -> None:
        self.world.see(Pod("default", name, standing, pre_stop))

    def after(self, seconds: float) -> dict[str, Any]:
        self.clock.now += seconds
        return self.world.truth()


def test_doors_open_when_the_replicas_of_the_beginning_are_ready() -> None:
    case = Case(open_with=2)
    case.see("a", Standing.LOADING)
    case.see("b", Standing.LOADING)
    assert case.after(60.0)["open"] is False
    case.see("a", Standing.READY)
    assert case.after(5.0)["arrived"] == 0
    case.see("b", Standing.READY)
    truth = case.after(100.0)
    assert truth["open"] is True
    assert truth["arrived"] == pytest.approx(200, abs=40)
    assert truth["seconds"] == pytest.approx(100.0)
    assert truth["attainment"] > 0.9
    assert truth["replicas"]["ready"] == 2


def test_doors_can_be_opened_from_outside() -> None:
    case = Case(open_with=9)
    case.see("a", Standing.READY)
    assert case.after(5.0)["open"] is False
    case.world.open()
    assert case.after(100.0)["arrived"] == pytest.approx(200, abs=40)
    ended = case.world.fleet.ledger.requests
    assert len(ended) == case.world.fleet.ledger.ended > 100


def test_costs_count_from_the_opening_as_a_static_fleets_do() -> None:
    case = Case()
    case.see("a", Standing.LOADING)
    case.after(60.0)
    case.see("a", Standing.READY)
    assert case.after(900.0)["gpu_hours"] == pytest.approx(900 * 4 / 3600)


def test_a_page_exists_only_while_its_server_listens() -> None:
    case = Case()
    case.see("a", Standing.LOADING)
    case.after(5.0)
    assert case.world.page("default/a") is None
    case.see("a", Standing.READY)
    case.after(20.0)
    page = case.world.page("default/a")
    assert page is not None
    assert b'vllm:num_requests_running{engine="0",model_name="llama"}' in page
    assert b'vllm:num_preemptions_created{engine="0",model_name="llama"} 1.700001005e+09' in page
    case.see("a", Standing.TERMINATING, pre_stop=15.0)
    assert case.world.page("default/a") is not None
    case.see("a", Standing.GONE)
    assert case.world.page("default/a") is None
    assert case.world.page("default/never-was") is None


def test_a_pod_that_vanished_while_the_api_server_was_away_is_gone() -> None:
    case = Case()
    for name in ("a", "b"):
        case.see(name, Standing.READY)
    case.after(10.0)
    case.world.see_all([Pod("default", "a", Standing.READY), Pod("default", "c", Standing.LOADING)])
    truth = case.after(1.0)
    assert (truth["replicas"]["ready"], truth["replicas"]["loading"]) == (1, 1)
    assert set(case.world.pods) == {"default/a", "default/c"}


def test_a_pod_without_a_node_costs_nothing_yet() -> None:
    case = Case()
    case.see("a", Standing.READY)
    case.see("b", Standing.PENDING)
    truth = case.after(100.0)
    assert truth["replicas"]["loading"] == 0
    assert truth["replica_seconds"] == pytest.approx(100.0)


def test_the_series_has_a_row_every_15_seconds_however_rarely_anybody_looks() -> None:
    case = Case()
    case.see("a", Standing.READY)
    case.after(61.0)
    case.see("b", Standing.READY)
    case.after(40.0)
    series = case.world.series()
    assert series["time"] == [15.0, 30.0, 45.0, 60.0, 75.0, 90.0]
    assert series["ready"] == [1, 1, 1, 1, 2, 2]
    assert sum(series["arrivals"]) * 15 == pytest.approx(2.0 * 90, rel=0.2)
    assert {len(column) for column in series.values()} == {6}
    assert set(series) >= {"requested", "loading", "draining", "queue", "ttft", "tpot", "attainment", "output_tokens"}


def manifest(**changes: Any) -> dict[str, Any]:
    body: dict[str, Any] = {
        "metadata": {"namespace": "default", "name": "a"},
        "spec": {"nodeName": "gpu-0", "containers": [{"name": "vllm"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]},
    }
    for path, value in changes.items():
        part, _, key = path.partition("__")
        body[part][key] = value
    return body


READY = [{"type": "Ready", "status": "True"}]


@pytest.mark.parametrize(
    ("pod", "standing"),
    [
        (manifest(spec__nodeName=None, status__conditions=None), Standing.PENDING),
        (manifest(), Standing.LOADING),
        (manifest(status__conditions=READY), Standing.READY),
        # kwok keeps a pod's Ready condition until it is gone.
        (manifest(status__conditions=READY, metadata__deletionTimestamp="2026-01-01T00:00:00Z"), Standing.TERMINATING),
        (manifest(status__phase="Failed"), Standing.GONE),
    ],
)
def test_reads_where_a_pod_stands(pod: dict[str, Any], standing: Standing) -> None:
    assert pod_of(pod).standing is standing


@pytest.mark.parametrize(
    ("lifecycle", "seconds"),
    [
        (None, 0.0),
        ({"preStop": {"sleep": {"seconds": 5}}}, 5.0),
        ({"preStop": {"exec": {"command": ["sleep", "15"]}}}, 15.0),
        ({"preStop": {"exec": {"command": ["/bin/sh", "-c", "drain"]}}}, 0.0),
        ({"postStart": {"exec": {"command": ["sleep", "15"]}}}, 0.0),
    ],
)
def test_reads_how_long_the_pre_stop_hook_sleeps(lifecycle: dict[str, Any] | None, seconds: float) -> None:
    assert pod_of(manifest(spec__containers=[{"name": "vllm", "lifecycle": lifecycle}])).pre_stop == seconds
