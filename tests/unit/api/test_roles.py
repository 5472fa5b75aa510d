from typing import Any

from servingpool.api.role import Role
from servingpool.api.spec import Spec
from servingpool.api.status import Status

PREFILL, DECODE = {"name": "prefill", "role": "prefill", "max": 4}, {"name": "decode", "role": "decode", "max": 8}
SLO = {"timeToFirstToken": "1s", "timePerOutputToken": "50ms"}


def spec(*targets: dict[str, Any], **more: Any) -> Spec:
    return Spec.read({"model": "llama", "slo": SLO, "targets": targets, **more})


def test_the_first_target_of_each_role_stays_and_the_others_may_go() -> None:
    spot = {"name": "decode-spot", "role": "decode", "max": 8}
    second = {"name": "prefill-l40s", "role": "prefill", "max": 4}
    pool = spec(spot, DECODE, PREFILL, second)
    assert {one.name: one.min for one in pool.targets} == {
        "decode-spot": 1,
        "decode": 0,
        "prefill": 1,
        "prefill-l40s": 0,
    }
    assert (pool.min, pool.max) == (2, 24)


def test_the_first_of_a_role_may_be_zero_where_another_of_the_role_stays() -> None:
    pool = spec(PREFILL, {**DECODE, "min": 0}, {"name": "decode-base", "role": "decode", "min": 2, "max": 2})
    assert [one.min for one in pool.targets] == [1, 0, 2]


def test_without_roles_nothing_changes() -> None:
    pool = spec({"name": "h100", "max": 4}, {"name": "l40s", "max": 4})
    assert not pool.has_roles
    assert [one.min for one in pool.targets] == [1, 0]
    assert not {"role", "prefillPerDecode"} & (pool.to_dict().keys() | pool.to_dict()["targets"][0].keys())


def test_the_status_of_each_role_survives_the_round_trip() -> None:
    decision = {
        "at": "2026-01-02T03:04:05Z",
        "replicas": 3,
        "verdict": "Hold",
        "limits": [],
        "reason": "because",
        "figures": {},
        "candidates": [],
        "warnings": [],
    }
    decode = {"role": "decode", "replicas": 3, "readyReplicas": 2, "desiredReplicas": 3, "lastDecision": decision}
    prefill = {"role": "prefill", "replicas": 1, "readyReplicas": 1, "desiredReplicas": 1}
    status = Status.read({"roles": [prefill, decode]})
    assert status.roles is not None
    assert status.roles[1].role is Role.DECODE
    assert status.to_dict()["roles"] == [prefill, decode]
