"""Objects that cannot be read are left out and named; every pool that they do not concern decides as without them."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from ..fuzzing import SEED, counted, number  # noqa: TID252, tests are no package of an installed name
from .fake_cluster import FakeCluster, stamp
from .test_other_kinds import LWS
from .test_other_kinds import world as of_kind

VALUES: tuple[Any, ...] = (None, 7, -1, 1.5, True, "x", "", [], {}, [None], {"a": None}, "9" * 5_000, 10**30, [[]])
"""What stands in the place of a field, which may be missing, too."""
MISSING = object()
IDENTITY = {("kind",), ("metadata",), ("metadata", "name"), ("metadata", "namespace"), ("metadata", "uid")}
"""What the API server itself makes sure of."""
MUTATIONS = number(1.05)
Path = tuple[str | int, ...]
CREATED = stamp(1_700_000_000.0)


def paths(raw: Any, above: Path = ()) -> Iterator[Path]:
    """Of all fields and elements."""
    for key, value in raw.items() if isinstance(raw, dict) else enumerate(raw) if isinstance(raw, list) else ():
        yield (*above, key)
        yield from paths(value, (*above, key))


def mutated(raw: Mapping[str, Any], path: Path, value: Any) -> dict[str, Any]:
    found: Any = copy.deepcopy(raw)
    place = found
    try:
        for key in path[:-1]:
            place = place[key]
        if value is MISSING:
            del place[path[-1]]
        else:
            place[path[-1]] = value
    except (KeyError, IndexError, TypeError):  # an object of the kind without that field
        return dict(raw)
    return dict(found)


class Mutating(FakeCluster):
    """One field of one object of the service `bad`, or of its pool, is another one at each step."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.random = random.Random(seed)
        self.kind = ""
        self.path: Path = ()
        self.value: Any = None
        self.seen: dict[str, dict[str, Any]] = {}
        """An object of each kind, as it should be."""
        for name in ("workload", "replica_set", "pod", "autoscaler", "pool", "budget"):
            self._wrap(name)

    def _wrap(self, kind: str) -> None:
        see = getattr(self.cache, f"see_{kind}")

        def seen(raw: dict[str, Any], *, gone: bool) -> None:
            if raw["metadata"]["name"].startswith("bad") and not gone and "managedBy" not in raw:
                self.seen[kind] = raw
                raw = mutated(raw, self.path, self.value) if kind == self.kind else raw
                if kind == "workload":  # the API server counts each change of a spec
                    raw = {**raw, "metadata": {**raw["metadata"], "generation": self.random.getrandbits(30)}}
            see(raw, gone=gone)

        setattr(self.cache, f"see_{kind}", seen)

    def turn(self, kinds: tuple[str, ...]) -> str:
        """Another mutation, and what it is."""
        self.kind = self.random.choice(kinds)
        fields = [path for path in paths(self.seen[self.kind]) if path not in IDENTITY]
        self.path = self.random.choice(fields)
        self.value = self.random.choice((*VALUES, MISSING))
        return f"{self.kind} {self.path} = {str(self.value)[:20]}"


def two(seed: int = 0) -> Mutating:
    world = Mutating(seed)
    world.serve(rate=6.0)
    world.serve("bad", rate=6.0, model="bad-model")
    world.pool("good")
    world.pool("bad", target="bad", model="bad-model", priority=3)
    world.services["bad"].costs[world.services["bad"].engines[0].name] = ("-1", True)
    world.show("bad")
    return world


def decided(world: Mutating) -> tuple[int, str, object]:
    """What was decided for the other pool, and why."""
    shown = world.loop.snapshot["chat", "good"].decided
    assert shown is not None
    return shown.decision.replicas, shown.decision.reason, shown.decision.need


def hpa(world: Mutating) -> None:
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "bad"}
    meta = {"namespace": "chat", "name": "bad", "uid": "hpa", "annotations": {"autoscaling.keda.sh/paused": "true"}}
    status = {"conditions": [{"type": "Paused", "status": "True"}]}
    raw = {"kind": "ScaledObject", "metadata": meta, "spec": {"scaleTargetRef": reference}, "status": status}
    world.cache.see_autoscaler(raw, gone=False)


def replica_set(world: Mutating) -> None:
    owner = [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "bad", "uid": "d-bad", "controller": True}]
    meta = {"namespace": "chat", "name": "bad-68fc6d8f95", "uid": "rs-bad", "ownerReferences": owner}
    world.cache.see_replica_set({"kind": "ReplicaSet", "metadata": meta}, gone=False)


def test_for_any_mutated_object_every_other_pool_decides_as_without_it(caplog: pytest.LogCaptureFixture) -> None:
    world, quiet = two(SEED), two(SEED)
    for one in (world, quiet):
        one.step(minutes=10)
        hpa(one)
        replica_set(one)
    clean = copy.deepcopy(quiet.cache.pools["chat", "bad"])
    for _ in range(MUTATIONS):
        counted["test_for_any_mutated_object_every_other_pool_decides_as_without_it"] += 1
        told = world.turn(("workload", "replica_set", "pod", "autoscaler", "pool"))
        hpa(world)
        replica_set(world)
        world.cache.see_pool(clean, gone=False)
        for one in (world, quiet):
            one.services["vllm"].rate = 6.0 + 20.0 * (int(one.now) // 600 % 2)
            assert one.step().failed == 0, told
        assert decided(world) == decided(quiet), told
        assert [each for each in world.writes.scales if each[0][1] == "vllm"] == [
            each for each in quiet.writes.scales if each[0][1] == "vllm"
        ], told
    assert "Traceback" not in caplog.text
    world.kind = ""
    hpa(world)
    replica_set(world)
    world.cache.see_pool(clean, gone=False)
    world.step()
    assert world.condition("Ready", "bad") == ("True", "SucceededGetScale"), "it comes back"
    assert not world.cache.left_out.kinds()


def test_a_budget_in_any_form_ends_no_tick() -> None:
    world = two(SEED)
    meta = {"name": "bad", "uid": "b", "generation": 1, "creationTimestamp": CREATED}
    selector = {"matchLabels": {"team": "bad"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
    spec = {"gpus": 100, "poolSelector": selector, "floors": [{"namespace": "chat", "pool": "bad", "gpus": 4}]}
    raw = {"kind": "GPUBudget", "metadata": meta, "spec": spec}
    world.cache.see_budget(raw, gone=False)
    world.step(minutes=5)
    for generation in range(2, MUTATIONS):
        counted["test_a_budget_in_any_form_ends_no_tick"] += 1
        told = world.turn(("budget",))
        world.cache.see_budget({**raw, "metadata": {**meta, "generation": generation}}, gone=False)
        assert world.step().failed == 0, told
        assert world.condition("Ready", "good") == ("True", "SucceededGetScale"), told


def test_a_profile_in_any_form_costs_itself_alone() -> None:
    world = two()
    world.step(minutes=20)
    kept = copy.deepcopy(world.cache.pools["chat", "bad"])
    assert kept["status"]["profile"]
    fields = [path for path in paths(kept) if path[0] == "status"]
    for seed in range(SEED, SEED + MUTATIONS):
        counted["test_a_profile_in_any_form_costs_itself_alone"] += 1
        random_ = random.Random(seed)
        path, value = random_.choice(fields), random_.choice((*VALUES, MISSING))
        world.cache.see_pool(mutated(kept, path, value), gone=False)
        world.restart()
        done = world.step()
        assert (done.decided, done.failed) == (2, 0), (path, value)


def test_what_cannot_be_read_is_named_at_the_pools_around_it_until_it_can() -> None:
    world = two()
    world.kind, world.path, world.value = "pod", ("metadata", "creationTimestamp"), "yesterday"
    world.step(minutes=1)
    assert world.condition("ObjectsRead", "good") == ("False", "UnreadableObjects")
    assert world.message("ObjectsRead", "good").startswith("Left out, because not readable: Pod bad-")
    assert "Invalid isoformat string: 'yesterday'" in world.message("ObjectsRead", "good")
    assert world.cache.left_out.kinds() == {"Pod": 2}
    world.kind = ""
    world.step(minutes=1)
    assert not world.cache.left_out.kinds()
    assert world.condition("ObjectsRead", "good") == ("True", "AllObjectsRead")


def test_nothing_is_removed_because_a_pod_cannot_be_read() -> None:
    """Its share of the load is not seen where its samples are not, and would be missed."""
    world = two()
    world.services["bad"].rate = 24.0
    world.step(minutes=20)
    before = len(world.services["bad"].engines)
    assert before > 2
    world.kind, world.path, world.value = "pod", ("status", "conditions"), 7
    world.hidden |= {engine.name for engine in world.services["bad"].engines[1:]}
    world.step(minutes=15)
    assert len(world.services["bad"].engines) >= before


@pytest.mark.parametrize(("value", "said"), [("many", "invalid literal for int"), (-1, "-1 replicas")])
def test_a_deployment_that_cannot_be_read_does_not_count_as_missing(value: object, said: str) -> None:
    world = two()
    world.step(minutes=1)
    world.kind, world.path, world.value = "workload", ("spec", "replicas"), value
    assert world.step(minutes=1).failed == 0
    assert world.condition("Ready", "bad") == ("False", "FailedGetScale")
    assert said in world.message("Ready", "bad")


def test_a_pool_with_more_labels_than_are_kept_is_refused() -> None:
    """60 pools with a megabyte of labels each filled the memory; and no budget could tell whether it selects one."""
    world = two()
    raw = copy.deepcopy(world.cache.pools["chat", "bad"])
    raw["metadata"]["labels"] = {f"label-{number}": "x" * 63 for number in range(1_000)}
    world.cache.see_pool(raw, gone=False)
    world.step()
    assert world.cache.pools["chat", "bad"]["metadata"]["labels"] == {}
    assert world.condition("Ready", "bad") == ("False", "InvalidSpec")
    assert "labels: longer than 8192 characters" in world.message("Ready", "bad")
    assert world.condition("Ready", "good") == ("True", "SucceededGetScale")


def test_pods_of_others_that_count_as_replicas_are_named() -> None:
    world = of_kind(LWS, pods=1, label="")
    owner = [{"kind": "ReplicaSet", "name": "router-1", "uid": "rs-router", "controller": True}]
    router = {"namespace": "chat", "name": "router-x", "uid": "r", "creationTimestamp": CREATED}
    raw = {"metadata": {**router, "labels": {"app": "vllm", "leader": "yes"}, "ownerReferences": owner}}
    world.cache.see_pod(raw, gone=False)
    world.step(minutes=1)
    assert world.condition("ObjectsRead") == ("False", "PodsOfOthers")
    assert "Pod router-x of ReplicaSet router-1" in world.message("ObjectsRead")
