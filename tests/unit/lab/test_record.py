from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from servingpool.api.serving_pool import ServingPool
from servingpool_lab.record import Recorder
from servingpool_lab.scenario import WORKLOADS, Scenario
from servingpool_lab.snapshot import Snapshot
from servingpool_lab.workload import serving_pool

SCENARIO = Scenario(WORKLOADS["conv"])
OPENED = 1.76e9


def pool(desired: int, reason: str) -> ServingPool:
    raw = serving_pool(SCENARIO)
    at = datetime.fromtimestamp(OPENED, UTC).isoformat().replace("+00:00", "Z")
    decision = {"at": at, "replicas": desired, "verdict": "Hold", "reason": reason}
    raw["status"] = {"desiredReplicas": desired, "attainment": 98.0, "lastDecision": decision}
    return ServingPool.read(raw)


def look(at: float, told: ServingPool | None, **changes: Any) -> Snapshot:
    truth = {
        "seconds": at,
        "arrived": 100,
        "attained": 90,
        "attainment": 0.95,
        "gpus_per_replica": 4,
        "gpu_hours": 0.2,
        "static": {"replicas": 3, "attainment": 0.97},
    }
    known: dict[str, Any] = {"elapsed": at + 70, "unix": OPENED + at, "parts": {}, "truth": truth, "pool": told}
    return Snapshot(**(known | changes))


def test_each_tick_carries_what_the_operator_had_said_by_then() -> None:
    recorder = Recorder(SCENARIO)
    recorder.note(look(-30.0, None))
    recorder.note(look(20.0, pool(2, "hold 2")))
    recorder.note(look(21.0, pool(2, "hold 2")))
    recorder.note(look(40.0, pool(3, "scale up")))
    series = {"time": [15.0, 30.0, 45.0, 60.0], "ready": [2, 2, 2, 3]}
    document = recorder.document(look(60.0, pool(3, "scale up"), series=series))
    assert document["series"]["ready"] == [2, 2, 2, 3]
    assert document["series"]["desired"] == [None, 2, 3, 3]
    assert document["series"]["reason"] == [None, "hold 2", "scale up", "scale up"]
    assert document["series"]["operator_attainment"] == [None, 0.98, 0.98, 0.98]


def test_a_run_that_never_began_still_leaves_a_record(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    Recorder(SCENARIO).write(path, Snapshot(elapsed=5.0, unix=OPENED, parts={}))
    document = json.loads(path.read_text())
    assert document["best_static"] is None
    assert document["score"]["arrived"] is None
