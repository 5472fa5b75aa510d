"""`-A`: what is found in a cluster, whatever happens meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from servingpool.adapters.cluster import survey
from servingpool.adapters.cluster.errors import ClusterError, Forbidden, NotFound
from servingpool.adapters.cluster.survey import Named, Survey, scalables, surveyed

LWS = "leaderworkerset.x-k8s.io"


def listed(kind: str, plural: str) -> list[dict[str, Any]]:
    scale = {"kind": "Scale", "name": f"{plural}/scale", "namespaced": True}
    return [{"kind": kind, "name": plural, "namespaced": True}, scale]


def named(name: str, owner: tuple[str, str] | None = None, ready: int = 1) -> dict[str, Any]:
    owners = [{"controller": True, "apiVersion": owner[0], "kind": owner[1], "name": "x"}] if owner else []
    meta = {"namespace": "chat", "name": name, "ownerReferences": owners}
    return {"metadata": meta, "status": {"readyReplicas": ready} if ready else {}}


class Api:
    """A cluster with Deployments, StatefulSets and LeaderWorkerSets."""

    def __init__(self) -> None:
        groups = [{"preferredVersion": {"groupVersion": version}} for version in ("apps/v1", f"{LWS}/v1", "broken/v1")]
        self.found: dict[str, dict[str, Any]] = {
            "/apis": {"groups": groups},
            "/apis/apps/v1": {
                "resources": [
                    *listed("Deployment", "deployments"),
                    *listed("StatefulSet", "statefulsets"),
                    *listed("ReplicaSet", "replicasets"),
                    {"kind": "DaemonSet", "name": "daemonsets", "namespaced": True},
                ]
            },
            f"/apis/{LWS}/v1": {"resources": listed("LeaderWorkerSet", "leaderworkersets")},
            "/apis/apps/v1/deployments": {"items": [named("llama"), named("idle", ready=0)]},
            "/apis/apps/v1/statefulsets": {
                "items": [
                    named("llama"),
                    named("group", (f"{LWS}/v1", "LeaderWorkerSet")),
                    named("db", ("db/v1", "Db")),
                ]
            },
            f"/apis/{LWS}/v1/leaderworkersets": {"items": [named("group", ready=0)]},
        }
        self.said: list[str] = []

    async def get(self, path: str, **_: str) -> dict[str, Any]:
        if path == "/apis/broken/v1":
            raise ClusterError("503")
        if path not in self.found:
            raise Forbidden(f"Cannot read {path}")
        return self.found[path]

    async def scalables(self) -> list[Named]:
        return await scalables(self, self.said.append)  # type: ignore[arg-type]


async def test_every_kind_that_can_be_scaled_is_found_but_not_what_another_of_them_sets() -> None:
    assert [(one.kind, one.name) for one in await Api().scalables()] == [
        ("deployment", "llama"),
        (f"leaderworkerset.{LWS}", "group"),
        ("statefulset", "db"),
        ("statefulset", "llama"),
    ]


async def test_a_kind_that_may_not_be_listed_is_left_out_which_is_said() -> None:
    api = Api()
    del api.found[f"/apis/{LWS}/v1/leaderworkersets"]
    assert all(one.kind != f"leaderworkerset.{LWS}" for one in await api.scalables())
    assert api.said == [f"Cannot read /apis/{LWS}/v1/leaderworkersets: left out."]


async def test_without_the_right_to_list_deployments_it_ends() -> None:
    api = Api()
    del api.found["/apis/apps/v1/deployments"]
    with pytest.raises(Forbidden):
        await api.scalables()


async def test_one_that_is_deleted_meanwhile_does_not_end_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def found(_: object, _namespace: str, kind: str, name: str) -> str:
        if name == "gone":
            raise NotFound("Cannot read chat/gone: 404 Not Found")
        return name

    monkeypatch.setattr(survey, "survey", found)
    api, targets = Api(), [Named("chat", "deployment", name) for name in ("first", "gone", "last")]
    seen: list[tuple[Named, Survey]] = [each async for each in surveyed(api, targets, api.said.append)]  # type: ignore[arg-type]
    assert [one for _, one in seen] == ["first", "last"]
    assert api.said == ["Cannot read chat/gone: 404 Not Found: left out."]
