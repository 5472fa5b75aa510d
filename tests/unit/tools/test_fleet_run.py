"""The recorded run of three pools under a budget: what its audit log and its record prove, and its page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fleet_run.course import DEPLOYMENTS, PODS, FleetRun
from fleet_run.emulated import Town, town
from fleet_run.evidence import at_zero, bound, faults, misses, results
from fleet_run.page import page, remarks_of
from fleet_run.picture import picture
from fleet_run.record import ClusterObservation, PoolObservation, Record, Said, TargetObservation
from fleet_run.scale_writes import ScaleWrite, over, scale_writes
from fleet_run.scene import GPUS, POOLS, ROUTER, TARGETS, Pace, Traffic, budget, deployments, nodes, serving_pool
from servingpool.api.gpu_budget import GPUBudget
from servingpool.api.serving_pool import ServingPool
from servingpool_lab import kwok
from servingpool_lab.audit import Write
from servingpool_lab.emulator.pods import Pod, Standing
from servingpool_simulation.traces import azure2023_conv

OPERATOR = "system:serviceaccount:servingpool-system:servingpool-operator"


class Log:
    """An audit log, a second between two answers."""

    def __init__(self) -> None:
        self.writes: list[Write] = []

    def add(self, verb: str, resource: str, name: str, body: Any = None, answer: Any = None) -> None:
        at = f"2026-11-25T10:00:{len(self.writes):02}.000000Z"
        self.writes.append(Write(at, OPERATOR, verb, resource, name, body, answer))

    def deploy(self, name: str, replicas: int) -> None:
        self.add("patch", "deployments", name, {"spec": {"replicas": replicas}})
        for number in range(replicas):
            self.pod(name, number)

    def scale(self, name: str, replicas: int) -> None:
        self.add("patch", "deployments/scale", name, {"spec": {"replicas": replicas}})

    def pod(self, name: str, number: int) -> None:
        metadata = {"name": f"{name}-{number}", "labels": {kwok.APP_LABEL: name}}
        # As a ReplicaSet asks for it: the name is in the answer alone.
        self.add("create", "pods", "", {"metadata": {"generateName": f"{name}-"}}, {"metadata": metadata})

    def delete(self, name: str, number: int, grace: int) -> None:
        answer = {"metadata": {"name": f"{name}-{number}", "deletionGracePeriodSeconds": grace}}
        self.add("delete", "pods", f"{name}-{number}", None, answer)

    def gpus(self, **gpus: int) -> list[int]:
        return [one.gpus for one in scale_writes(self.writes, gpus)]


def test_a_log_that_goes_over_the_budget_is_found() -> None:
    log = Log()
    log.deploy("a", 3)
    log.deploy("b", 2)
    log.scale("b", 4)
    log.scale("a", 4)
    found = scale_writes(log.writes, {"a": 2, "b": 1})
    assert [(one.target, one.before, one.after, one.gpus) for one in found] == [("b", 2, 4, 10), ("a", 3, 4, 12)]
    assert over(found, 12) == []
    assert over(found, 11) == [found[1]]


def test_a_pod_that_drains_holds_its_gpu_until_the_log_shows_it_gone() -> None:
    log = Log()
    log.deploy("a", 3)
    log.deploy("b", 1)
    log.scale("a", 1)  # 4: two pods are still there
    log.delete("a", 0, grace=150)
    log.delete("a", 1, grace=150)
    log.scale("b", 2)  # 5: both drain
    log.delete("a", 0, grace=0)
    log.scale("b", 3)  # 5: one of them is gone
    log.delete("a", 1, grace=0)
    log.scale("b", 4)  # 5
    assert log.gpus(a=1, b=1) == [4, 5, 5, 5]
    assert [one.draining for one in scale_writes(log.writes, {"a": 1, "b": 1})] == [2, 2, 1, 0]


def test_an_order_counts_before_its_pods_are_there_and_only_once() -> None:
    log = Log()
    log.deploy("a", 1)
    log.scale("a", 3)
    log.pod("a", 1)
    log.pod("a", 2)
    log.scale("a", 4)
    assert log.gpus(a=1) == [3, 4]


def test_what_takes_too_many_while_others_drain_is_over() -> None:
    log = Log()
    log.deploy("a", 4)
    log.scale("a", 2)
    log.delete("a", 0, grace=150)
    log.scale("a", 4)  # one drains, three are left, and one more is ordered
    assert [one.gpus for one in over(scale_writes(log.writes, {"a": 1}), 4)] == [5]


def test_other_deployments_and_refused_or_other_writes_are_left_out() -> None:
    log = Log()
    log.deploy("router", 1)
    log.add("patch", "servingpools", "a", {"spec": {"replicas": 9}})
    assert log.gpus(a=1) == []


def target(ordered: int, *, without_node: int = 0, draining: int = 0) -> TargetObservation:
    return TargetObservation(ordered, ordered - without_node, ordered + draining, draining, without_node)


def pool(ended: int, met: int, *, lost: int = 0, limited: bool = False) -> PoolObservation:
    return PoolObservation(ended + 2, met, ended - lost, 0, lost, 2, 0, limited)


def observation(minute: int, **other: Any) -> ClusterObservation:
    """Each pool ends 100 requests a minute, 99 in time; code 90 in time while the budget binds, minutes 10 to 20."""
    late = 10 * (min(20, max(10, minute)) - 10)
    binds = 10 <= minute < 20
    given: dict[str, Any] = {
        "at": 60.0 * minute,
        "load": 1.5,
        "targets": {
            "chat-h100": target(5, without_node=1),
            "chat-a100": target(3, draining=1),
            "code-a100": target(4),
            "batch-a100": target(0 if minute >= 25 else 2),
        },
        "pools": {
            "chat": pool(100 * minute, 99 * minute),
            "code": pool(100 * minute, 99 * minute - late, limited=binds),
            "batch": pool(100 * minute, 99 * minute),
        },
        "wanted": 20 if binds else 12,
    }
    return ClusterObservation(**given | other)


def record(*observations: ClusterObservation, writes: tuple[ScaleWrite, ...] = ()) -> Record:
    return Record(
        minutes=60.0,
        cores=2,
        begin=0.0,
        end=1800.0,
        observations=[observation(minute) for minute in range(31)] if not observations else list(observations),
        said=[
            Said(5.0, "code", "ScalingLimited False, DesiredWithinRange", "Within."),
            Said(600.0, "code", "ScalingLimited True, GPUBudget", "GPUBudget inference allows 4 | no more."),
            Said(1200.0, "code", "ScalingLimited False, DesiredWithinRange", "Within again."),
            Said(1500.0, "batch", "2 -> 0", "scale down 2 -> 0: idle for 300 s"),
        ],
        writes=list(writes) or [ScaleWrite(1500.2, OPERATOR, "batch-a100", 2, 0, 16, 2)],
    )


def test_attainment_is_told_of_all_and_of_the_time_in_which_the_budget_bound() -> None:
    chat, code, batch = results(record())
    assert (code.sent, code.ended, code.lost) == (3000, 3000, 0)
    assert code.attainment == pytest.approx((99 * 30 - 100) / 3000)
    assert code.bound_attainment == pytest.approx(0.89)
    assert chat.bound_attainment == pytest.approx(0.99)
    assert (code.limited_minutes, chat.limited_minutes) == (10.0, 0.0)
    assert (chat.gpu_hours, chat.most_gpus) == (pytest.approx(9 * 0.5), 9)
    assert batch.gpu_hours == pytest.approx(2 * 25 / 60)
    assert code.worst == (10.0, pytest.approx(0.89))
    assert bound(record()) == [(600.0, 1200.0)]
    assert at_zero(record()) == [(1500.0, 1800.0)]
    assert list(misses(record())) == []


def test_a_write_over_the_budget_lost_requests_and_what_did_not_happen_are_faults() -> None:
    assert list(faults(record())) == []
    bad = ScaleWrite(90.0, OPERATOR, "code-a100", 4, 6, GPUS + 1, 0)
    assert "set code-a100 from 4 to 6 replicas, and 17 GPUs were ordered" in next(faults(record(writes=(bad,))))
    lost = observation(1, pools={**observation(1).pools, "chat": pool(100, 90, lost=3)})
    found = list(faults(record(observation(0), lost)))
    assert found == ["3 requests of chat were lost.", "No pool went to zero.", "The budget never bound."]
    many = observation(1, targets={**observation(1).targets, "code-a100": target(9)})
    assert "20 GPUs were held in one observation." in list(faults(record(observation(0), many)))
    assert "chat attained 90.0%, and its objective is 95%." in list(misses(record(observation(0), lost)))


def test_the_page_tells_figures_sentences_and_every_write() -> None:
    text = page(record())
    assert "| attainment while the budget bound | 99.0% | 89.0% | 99.0% |" in text
    assert "1 writes to a scale, by servingpool-operator" in text
    assert "## No write over the budget" in text
    assert "no node for a pod of `chat-h100` in minutes 0.0 to 30.0." in text
    assert "wanted 20 GPUs together, by the budget's status in minute 10.0." in text
    assert "| 10.0 | `code` | ScalingLimited True, GPUBudget | GPUBudget inference allows 4 \\| no more. |" in text
    assert "| 20.0 | `code` | ScalingLimited False, DesiredWithinRange | Within again. |" in text
    assert "Within. |" not in text, "a condition that was never bad is no news"
    assert "| 25.00 | `batch-a100` | 2 -> 0 | 16 | 2 | scale down 2 -> 0: idle for 300 s |" in text
    bad = ScaleWrite(90.0, OPERATOR, "code-a100", 4, 6, GPUS + 1, 0)
    assert "## Writes over the budget" in page(record(writes=(bad,)))


def test_the_page_of_a_trial_says_which_fields_of_its_pools_are_not_as_by_default() -> None:
    assert "as by default, but for `idleAfter` of `batch`, 5m, and what its gateway" in page(record())
    assert "coldStart" not in page(record())
    trial = record()
    trial.minutes = 6.0
    text = page(trial)
    assert "as by default, but for `idleAfter` of `batch`, 1m, and what its gateway" in text
    behavior = serving_pool(POOLS[0], Pace(6.0))["spec"]["behavior"]
    assert behavior == {"calibration": "30s", "scaleDownWindow": "12s", "coldStart": "12s"}
    assert "Times are shorter too in this trial: `calibration` 30s, `scaleDownWindow` 12s, `coldStart` 12s." in text


def test_what_a_person_added_to_the_page_of_a_run_is_kept() -> None:
    remarks = "## Remarks, by hand\n\nThe probe held a GPU.\n"
    written = page(record(), remarks)
    assert remarks in written
    assert page(record(), remarks_of(written)) == written
    assert remarks_of(page(record())) == ""


def test_the_picture_names_every_target_and_the_budget() -> None:
    drawn = picture(record())
    assert all(name in drawn for name in TARGETS)
    assert "budget of 16" in drawn


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    record().write(tmp_path / "record.json")
    assert asdict(Record.read(tmp_path / "record.json")) == asdict(record())


def test_what_is_created_is_valid_and_needs_more_gpus_than_the_budget_has() -> None:
    for pace in (Pace(), Pace(6.0)):
        for one in POOLS:
            found = ServingPool.model_validate(serving_pool(one, pace))
            assert found.spec.priority == one.priority
            assert found.spec.goes_to_zero == (one.idle_after is not None)
    assert GPUBudget.model_validate(budget()).spec.gpus == GPUS
    there = {node["metadata"]["name"]: int(node["status"]["capacity"][kwok.GPU_RESOURCE]) for node in nodes()}
    chat = next(one for one in POOLS[0].targets if one.gpu == "h100")
    assert there["h100-0"] < chat.most, "it runs out"
    assert sum(there.values()) > GPUS, "the budget binds before the nodes do"
    placed = {
        one["metadata"]["name"]: one["spec"]["template"]["spec"].get("nodeSelector") for one in deployments(Pace())
    }
    assert placed["chat-a100"] == {kwok.PRODUCT_LABEL: "NVIDIA-A100-SXM4-80GB"}
    assert placed[ROUTER] is None


class Client:
    """An API server in which `change` happens after the first list was answered; then nothing changes any more."""

    def __init__(self, ordered: dict[str, int], pods: dict[str, tuple[int, int]], change: Callable[[Client], None]):
        self.ordered, self.pods, self._change = ordered, pods, change
        """Ordered replicas by Deployment; pods that stand and that drain."""
        self.lists: list[str] = []

    def items(self, path: str) -> list[dict[str, Any]]:
        answer = self._pods() if path == PODS else self._deployments() if path == DEPLOYMENTS else []
        if not self.lists:
            self._change(self)
        self.lists.append(path)
        return answer

    def get(self, _: str) -> dict[str, Any]:
        return {}

    def _deployments(self) -> list[dict[str, Any]]:
        return [{"metadata": {"name": name}, "spec": {"replicas": count}} for name, count in self.ordered.items()]

    def _pods(self) -> list[dict[str, Any]]:
        def pod(app: str, **metadata: str) -> dict[str, Any]:
            return {"metadata": {"labels": {kwok.APP_LABEL: app}, **metadata}, "spec": {"nodeName": "node"}}

        found = []
        for app, (standing, draining) in self.pods.items():
            found += [pod(app) for _ in range(standing)]
            found += [pod(app, deletionTimestamp="2026-11-25T10:00:00Z") for _ in range(draining)]
        return found


def handed_over(client: Client) -> None:
    """A replica of code goes, its pod drains; then it is gone and batch gets its GPU."""
    client.ordered |= {"code-a100": 4, "batch-a100": 3}
    client.pods |= {"code-a100": (4, 0), "batch-a100": (3, 0)}


def scaled_down(client: Client) -> None:
    client.ordered["code-a100"] = 4
    client.pods["code-a100"] = (4, 1)


@pytest.mark.parametrize("change", [scaled_down, handed_over])
def test_a_scale_while_the_cluster_is_observed_is_no_breach_of_the_budget(
    change: Callable[[Client], None], tmp_path: Path
) -> None:
    ordered = {"chat-h100": 4, "chat-a100": 5, "code-a100": 5, "batch-a100": 2}
    client = Client(ordered, {name: (count, 0) for name, count in ordered.items()}, change)
    truth = dict.fromkeys(("arrived", "attained", "in_flight", "front_door"), 0)
    truth |= {"ended": dict.fromkeys(("finished", "rejected", "lost"), 0)}  # type: ignore[dict-item]
    run = FleetRun(tmp_path, {}, Pace())
    run._stack = SimpleNamespace(  # type: ignore[assignment]
        plane=SimpleNamespace(client=client), truth=lambda: {pool.name: truth for pool in POOLS}
    )
    assert run._observe().gpus == GPUS


def test_traffic_is_the_trace_several_times_over_in_its_windows() -> None:
    trace = azure2023_conv()
    drawn = Traffic(azure2023_conv, 3).drawn()
    assert drawn.duration == 3600.0
    assert len(drawn) / drawn.duration == pytest.approx(3 * len(trace) / trace.duration, rel=0.02)
    assert drawn.output.mean() == pytest.approx(trace.output.mean(), rel=0.01)
    part = Traffic(azure2023_conv, 3, windows=((5.0, 10.0),)).drawn()
    assert 300.0 <= part.arrival.min() <= part.arrival.max() < 600.0
    fast = Traffic(azure2023_conv, 3).drawn(pace=4.0)
    assert len(fast) / fast.duration == pytest.approx(len(drawn) / drawn.duration, rel=0.03), "as many per second"


def shown(made: Town, key: str) -> dict[str, float]:
    page = made.page(key)
    assert page is not None
    lines = [line.rpartition(" ") for line in page.decode().splitlines() if not line.startswith("#")]
    return {name.partition("{")[0]: float(value) for name, _, value in lines}


def test_each_pod_is_of_its_pool_and_has_the_speed_of_its_gpu() -> None:
    made = town(Pace(6.0))
    for name, app in (("fast", "chat-h100"), ("slow", "chat-a100"), ("other", "code-a100")):
        made.see(Pod("default", name, Standing.READY, app=app))
    made.see(Pod("default", "router", Standing.READY, app=ROUTER))
    chat = made.worlds["chat"].fleet
    profiles = {name: found.profile.name for name in chat.names() if (found := chat.replica(name))}
    assert profiles == {"default/fast": "h100-8b-tp1", "default/slow": "a100-8b-tp1"}
    assert made.worlds["code"].fleet.names() == ["default/other"]
    assert b'model_name="code"' in (made.page("default/other") or b"")
    assert made.page("default/unknown") is None
    made.see_all([Pod("default", "fast", Standing.READY, app="chat-h100")])
    assert (chat.names(), made.worlds["code"].fleet.names()) == (["default/fast"], [])


def test_the_gateway_counts_requests_and_tries_at_no_replica() -> None:
    made = town(Pace(6.0))
    world = made.worlds["batch"]
    now = 0.0
    world.clock = lambda: now
    world._zero = 0.0
    made.see(Pod("default", "router", Standing.READY, app=ROUTER))
    names = [f"batch-{number}" for number in range(world.open_with)]
    for name in names:
        made.see(Pod("default", name, Standing.READY, app="batch-a100"))
    now = 10.0
    sent = shown(made, "default/router")
    assert sent["vllm_router_processed_requests_total"] == world.fleet.ledger.arrived > 0
    assert sent["vllm_router_request_errors_total"] == 0
    for name in names:
        made.see(Pod("default", name, Standing.GONE, app="batch-a100"))
    for second in range(11, 31):
        now = float(second)
        made.leavers()
    held = shown(made, "default/router")
    assert held["vllm_router_active_workers"] == 0
    assert held["vllm_router_processed_requests_total"] == sent["vllm_router_processed_requests_total"]
    assert held["vllm_router_request_errors_total"] > world.fleet.front_door > 0, "each is tried again"
