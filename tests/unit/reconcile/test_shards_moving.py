"""Several operators, whose watches are late and whose ticks are long, while pools, budgets and namespaces change."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from functools import partial
from typing import Any

import pytest

from servingpool.adapters.cluster.cache import ClusterCache
from servingpool.adapters.cluster.objects import Raw
from servingpool.gpubudget.members import Membership
from servingpool.loop.shards import Shards

from ..adapters.cluster.fake_shards import LATE, Api, Process, overlaps  # noqa: TID252, one API server for all areas
from ..adapters.cluster.virtual_time import now, run  # noqa: TID252
from .fake_cluster import stamp

LATEST = 3.0
"""Seconds after which a watch has shown a change at the latest."""
TICK, LONGEST_TICK = 15.0, 25.0
TEAMS = ("red", "blue", "green")


class Cluster:
    """The objects as the API server has them, and the watches that show each change to each operator, late."""

    def __init__(self, seed: int) -> None:
        self.chance, self.api = random.Random(seed), Api()
        self.operators: list[Operator] = []
        self.pools: dict[str, Raw] = {}
        self.budgets: dict[str, Raw] = {}
        self.shown: defaultdict[tuple[str, str], float] = defaultdict(float)
        """When the last event of a kind is shown to an operator: events of one watch stay in their order."""
        self.count = 0

    def next(self) -> int:
        self.count += 1
        return self.count

    def show(self, kind: str, raw: Raw, *, gone: bool = False) -> None:
        for operator in self.operators:
            at = max(self.shown[operator.process.name, kind] + 0.001, now() + self.chance.choice([0.0, 1.0, LATEST]))
            self.shown[operator.process.name, kind] = at
            see = getattr(operator.cache, f"see_{kind}")
            asyncio.get_running_loop().call_at(at, partial(see, raw, gone=gone))

    def set_pool(self, name: str, *, team: str | None = None, target: str | None = None) -> None:
        """Create it, or change its label or its target."""
        before = self.pools.get(name)
        meta: Raw = {"namespace": "chat", "name": name, "uid": f"{name}-{self.next()}", "generation": 1}
        meta = {**meta, "creationTimestamp": stamp(now())} if before is None else {**before["metadata"]}
        meta["labels"] = {"team": team} if team else (meta.get("labels") or {})
        spec = {"targets": [{"name": target or name}]} if before is None or target else before["spec"]
        meta["generation"] += before is not None and target is not None
        self.pools[name] = {"metadata": meta, "spec": spec}
        self.show("pool", self.pools[name])

    def delete_pool(self, name: str) -> None:
        self.show("pool", self.pools.pop(name), gone=True)

    def set_budget(self, name: str, spec: Raw) -> None:
        meta = {"name": name, "uid": name, "generation": self.next(), "creationTimestamp": stamp(0.0)}
        self.budgets[name] = {"metadata": meta, "spec": spec}
        self.show("budget", self.budgets[name])

    def set_namespace(self, env: str) -> None:
        self.show("namespace", {"metadata": {"name": "chat", "labels": {"env": env}}})

    def change(self) -> None:
        """One of what people do."""
        chance, name = self.chance, self.chance.choice(sorted(self.pools))
        match chance.choice(["label", "label", "label", "target", "rename", "again", "new", "delete", "rule", "space"]):
            case "label":
                self.set_pool(name, team=chance.choice(TEAMS))
            case "target":
                self.set_pool(name, target=chance.choice([name, *sorted(self.pools)]))
            case "rename":
                [target] = self.pools[name]["spec"]["targets"]
                self.delete_pool(name)
                self.set_pool(f"pool-{self.next()}", team=chance.choice(TEAMS), target=target["name"])
            case "again":
                self.delete_pool(name)
                self.set_pool(name, team=chance.choice(TEAMS))
            case "new":
                self.set_pool(f"pool-{self.next()}", team=chance.choice((*TEAMS, None)))
            case "delete" if len(self.pools) > 8:
                self.delete_pool(name)
            case "rule":
                team = chance.choice(TEAMS)
                wrong = {"floors": [{"namespace": "chat", "pool": "x", "gpus": 9}]} if chance.random() < 0.3 else {}
                labels = {"team": chance.choice((team, team, *TEAMS))}
                self.set_budget(team, {"gpus": 8, "poolSelector": {"matchLabels": labels}, **wrong})
            case "space":
                self.set_namespace(chance.choice(["test", "prod"]))


class Operator:
    """A member with caches of its own. Its ticks write for up to 25 s, each time for what was its own at the start."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.cache = cluster, ClusterCache()
        rate = cluster.chance.choice([0.95, 1.0, 1.05])
        self.process = Process(cluster.api, name, rate=rate)
        self.shards = Shards(self.process.membership, name, lambda: now() * rate)
        holdings: Any = None
        self.groups = Membership(self.cache, holdings).groups
        self.tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self.process.start(writes=False)
        self.tasks = [asyncio.create_task(self._tick()), asyncio.create_task(self._look())]

    async def _look(self) -> None:
        while True:
            self.shards.look(self.groups)
            await asyncio.sleep(1.0)

    async def _tick(self) -> None:
        chance = self.cluster.chance
        while True:
            self.shards.look(self.groups)
            scales, lasts = self.groups().targets, chance.choice([0.1, LONGEST_TICK])
            ours = [(key, self.cache.pools[key]["metadata"]) for key in self.cache.pools if self.shards.owns(key)]
            for key, meta in ours:
                wait = lasts * chance.choice([0.2, 1.0])
                self.tasks.append(asyncio.create_task(self._write(key, meta, scales.get(key, ()), wait)))
            await asyncio.sleep(max(TICK, lasts))

    async def _write(self, key: tuple[str, str], decided: Raw, targets: tuple[Any, ...], wait: float) -> None:
        await asyncio.sleep(wait)
        raw = self.cache.pools.get(key)
        same = raw is not None and all(raw["metadata"][each] == decided[each] for each in ("uid", "generation"))
        if not same or not self.shards.owns(key):
            return
        begun, chance = now(), self.cluster.chance
        await asyncio.sleep(chance.choice([0.01, LATE]))
        for written in (f"status of {key[1]}", *(f"scale of {target.name}" for target in targets)):
            self.cluster.api.written.append((begun, now(), self.process.name, written))


@pytest.mark.parametrize("seed", range(10))
def test_never_two_operators_write_for_one_pool_or_target(seed: int) -> None:
    async def story() -> None:
        cluster = Cluster(seed)
        cluster.operators = [Operator(cluster, name) for name in "abc"]
        cluster.set_namespace("prod")
        for team in TEAMS:
            cluster.set_budget(team, {"gpus": 8, "poolSelector": {"matchLabels": {"team": team}}})
        for number in range(12):
            cluster.set_pool(f"pool-{number}", team=cluster.chance.choice((*TEAMS, None)))
        await asyncio.sleep(LATEST)
        for operator in cluster.operators:
            operator.start()
        while now() < 900.0:
            await asyncio.sleep(cluster.chance.choice([0.5, 2.0, 5.0, 10.0, 30.0]))
            cluster.change()
        assert not overlaps(cluster.api)
        writers: defaultdict[str, set[str]] = defaultdict(set)
        for _, _, member, written in cluster.api.written:
            writers[written].add(member)
        assert sum(len(each) > 1 for each in writers.values()) > 5, "pools moved"

    run(story)
