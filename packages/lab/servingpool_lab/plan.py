"""What a lab is about to do, in words, before it does it."""

from __future__ import annotations

from collections.abc import Sequence

from servingpool_lab.scenario import Scenario
from servingpool_lab.view import words


def plan(scenario: Scenario, *, build: Sequence[str]) -> list[str]:
    """One line a step. `build`: the programs that are missing, and are built first."""
    workload, slo = scenario.workload, scenario.workload.slo
    bounds = {"TTFT": slo.time_to_first_token, "TPOT": slo.time_per_output_token}
    objective = ", ".join(f"{name} within {words.seconds(bound)}" for name, bound in bounds.items() if bound)
    end = "when you press Ctrl-C" + (f", or after {scenario.minutes:g} minutes" if scenario.minutes else "")
    steps = [
        "start etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok on loopback, in about 8 s",
        (
            f"run {workload.initial} emulated vLLM pods ({workload.model}, {workload.hardware}) that load for "
            f"{scenario.load_seconds:g} s, and a Prometheus that scrapes them every 5 s"
        ),
        f"send them the {workload.title} at its own pace, from {words.seconds(scenario.start_at)} on",
        (
            f"run the operator in mode {scenario.mode.value}: {words.percent(slo.attainment)} of requests with "
            f"{objective}, at 1 to {workload.maximum} replicas; {workload.expect}"
        ),
        f"stop all of it {end}; it takes about 1.3 GB of memory and a tenth of a core",
    ]
    if build:
        steps.insert(
            0, f"build {', '.join(build)} from Go packages: once, for all of them about 7 minutes on 2 idle cores"
        )
    return steps
