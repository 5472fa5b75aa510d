from __future__ import annotations

import pytest

from servingpool.decision.pool import Pool
from servingpool_lab import workload
from servingpool_lab.emulator.__main__ import TRACES
from servingpool_lab.emulator.pods import Standing, pod_of
from servingpool_lab.emulator.static import best_static
from servingpool_lab.plan import plan
from servingpool_lab.scenario import WORKLOADS, Scenario
from servingpool_simulation.hardware import engine_profile

CONV = WORKLOADS["conv"]


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_matches_its_trace_and_its_hardware(name: str) -> None:
    each = WORKLOADS[name]
    assert 0 <= TRACES[name]().duration - each.duration < 1
    assert engine_profile(each.profile).gpus == each.gpus_per_replica
    assert each.start_at < each.duration


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_needs_a_fleet_that_moves(name: str) -> None:
    each = WORKLOADS[name]
    static = best_static(TRACES[name](), engine_profile(each.profile), Pool(each.slo, 1, each.maximum))
    assert each.initial < static.replicas < each.maximum
    assert static.attainment >= each.slo.attainment


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"load_seconds": -1.0}, "load-seconds must be 0 or more, got -1"),
        ({"minutes": 0.0}, "minutes must be above 0, got 0"),
        ({"start_at": 4000.0}, "start-at must be 0 to below 3501 s, the trace's length, got 4000 s"),
    ],
)
def test_says_which_option_is_wrong(changes: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Scenario(CONV, **changes)  # type: ignore[arg-type]


def test_the_deployment_is_the_sample_under_another_name() -> None:
    deployment = workload.deployment(Scenario(CONV, load_seconds=42.0))
    template = deployment["spec"]["template"]
    container = template["spec"]["containers"][0]
    assert deployment["metadata"]["name"] == CONV.name
    assert deployment["spec"]["replicas"] == CONV.initial
    assert deployment["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert f"--served-model-name={CONV.model}" in container["args"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 4
    assert template["metadata"]["annotations"]["servingpool.dev/load-seconds"] == "42"
    # What makes the sample safe is kept: the emulator honours the hook and the grace period.
    manifest = {"metadata": {"namespace": "default", "name": "a"}, "spec": template["spec"], "status": {}}
    assert pod_of(manifest).standing is Standing.PENDING
    assert 0 < pod_of(manifest).pre_stop < template["spec"]["terminationGracePeriodSeconds"]


def test_the_nodes_hold_the_largest_fleet() -> None:
    nodes = workload.nodes(Scenario(CONV))
    gpus = sum(int(node["status"]["allocatable"]["nvidia.com/gpu"]) for node in nodes)
    assert gpus >= CONV.maximum * CONV.gpus_per_replica
    assert workload.NODE_GPUS % CONV.gpus_per_replica == 0


def test_says_where_the_manifests_are_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("SERVINGPOOL_DEPLOY", str(tmp_path))
    with pytest.raises(workload.ManifestsError, match="SERVINGPOOL_DEPLOY"):
        workload.operator_manifests()


def test_the_plan_names_the_build_only_when_there_is_one() -> None:
    scenario = Scenario(CONV, minutes=20.0, start_at=600.0)
    assert plan(scenario, build=["etcd", "kubectl"])[0].startswith("build etcd, kubectl from Go packages: once, ")
    later = "\n".join(plan(scenario, build=[]))
    assert "once" not in later
    for wanted in ("TTFT within 2s", "TPOT within 150ms", "1 to 8 replicas", "from 10m on", "after 20 minutes"):
        assert wanted in later, wanted
