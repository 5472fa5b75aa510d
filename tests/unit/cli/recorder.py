"""A Prometheus of a few lines that scrapes the operator of a fake cluster, on virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from typer.testing import CliRunner, Result

from servingpool.adapters.prometheus import own_record
from servingpool.cli import source
from servingpool.cli.main import app
from servingpool.loop.metrics import PoolCollector

from ..reconcile.fake_cluster import TICK, FakeCluster  # noqa: TID252, tests are no package of an installed name
from ..reconcile.kept import copied  # noqa: TID252

Row = dict[str, Any]
LOOKBACK = 300.0


@dataclass
class Answer:
    found: list[Row]

    def rows(self) -> Iterator[Row]:
        yield from self.found


@dataclass
class Recorder:
    """What it scraped, by time."""

    world: FakeCluster
    scraped: dict[float, list[tuple[dict[str, str], float]]] = field(default_factory=dict)
    added: Callable[[dict[str, str]], dict[str, str]] = lambda labels: {**labels, "instance": "10.0.0.1:9090"}
    """Labels that scraping adds."""
    asked: list[str] = field(default_factory=list)
    ahead: float = 0.0
    """Seconds by which Prometheus' clock is ahead of the person's."""

    def copy(self) -> Recorder:
        """One that a test may go on with. What was scraped is only read, so both have it."""
        return replace(self, world=copied(self.world), scraped=dict(self.scraped), asked=[])

    def run(self, minutes: float, every: int = 1) -> None:
        """So many minutes, with a scrape at every so many ticks."""
        for tick in range(round(minutes * 60.0 / TICK)):
            self.world.step()
            if tick % every == 0:
                self.scrape()

    def scrape(self) -> None:
        registry = CollectorRegistry()
        loop = self.world.loop
        registry.register(PoolCollector(lambda: loop.snapshot, dict, dict, lambda: loop.shared))
        self.scraped[self.world.now] = [
            (self.added({**sample.labels, "__name__": sample.name}), sample.value)
            for family in registry.collect()
            for sample in family.samples
        ]

    def at(self, time: float) -> list[tuple[dict[str, str], float]]:
        before = [at for at in self.scraped if time - LOOKBACK < at <= time]
        return self.scraped[max(before)] if before else []

    def query(self, query: str, _: float, at: float = 0.0) -> Answer:
        if query == "vector(time())":
            return Answer([{"metric": {}, "value": [self.world.now, str(self.world.now)]}])
        self.asked.append(query)
        found = self.at(at or self.world.now)
        return Answer([{"metric": labels, "value": [at, str(value)]} for labels, value in found])

    def query_range(self, query: str, times: tuple[float, float, float], _: float) -> Answer:
        self.asked.append(query)
        start, end, step = times
        assert (end - start) / step < 11_000, "Prometheus refuses more points"
        rows: dict[frozenset[tuple[str, str]], list[list[Any]]] = {}
        for number in range(int((end - start) / step) + 1):
            time = start + number * step
            for labels, value in self.at(time):
                rows.setdefault(frozenset(labels.items()), []).append([time, str(value)])
        return Answer([{"metric": dict(labels), "values": values} for labels, values in rows.items()])

    def close(self) -> None:
        """Nothing is open."""

    def ask(self, monkeypatch: pytest.MonkeyPatch, *arguments: str, pool: str = "chat/pool") -> Result:
        """A command about the pool, at the present time."""
        for module in (own_record, source):
            monkeypatch.setattr(module, "PrometheusClient", lambda _: self)
        monkeypatch.setattr("time.time", lambda: self.world.now - self.ahead)
        monkeypatch.setenv("COLUMNS", "200")
        command, *more = arguments
        named = [pool] if pool else []
        return CliRunner().invoke(app, [command, *named, "--prometheus", "http://prometheus:9090", *more])
