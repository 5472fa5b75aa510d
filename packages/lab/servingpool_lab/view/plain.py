"""One line for a snapshot, for logs and pipes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from servingpool_lab.scenario import Scenario
from servingpool_lab.snapshot import Snapshot
from servingpool_lab.view import words
from servingpool_lab.view.chart import clock


def line(snapshot: Snapshot, scenario: Scenario) -> str:
    """Replicas, load, latency, attainment, cost, and the decision in force."""
    truth: Mapping[str, Any] = snapshot.truth or {}
    counts: Mapping[str, int] = truth.get("replicas", {})
    status = snapshot.pool.status if snapshot.pool else None
    told = None if status is None or status.attainment is None else status.attainment / 100
    decision = status.last_decision if status else None
    moving = "".join(f" +{counts[phase]} {phase}" for phase in ("loading", "draining") if counts.get(phase))
    desired = words.UNKNOWN if status is None or status.desired_replicas is None else status.desired_replicas
    slo = scenario.workload.slo
    at = words.percentile(slo.attainment)
    return "  ".join(
        (
            clock(snapshot.elapsed),
            f"ready {counts.get('ready', 0)}{moving} desired {desired} max {scenario.workload.maximum}",
            words.rate(truth.get("arrivals"), "req/s"),
            words.rate(truth.get("output_tokens"), "tok/s"),
            f"queue {truth.get('queue', 0)}",
            f"TTFT {at} {words.seconds(truth.get('ttft'))}",
            f"TPOT {at} {words.seconds(truth.get('tpot'))}",
            f"attained {words.percent(truth.get('attainment'))} (operator: {words.percent(told)})",
            f"{truth.get('gpu_hours', 0.0):.2f} GPU-h",
            f"{decision.verdict}: {decision.reason}" if decision else "no decision yet",
        )
    )
