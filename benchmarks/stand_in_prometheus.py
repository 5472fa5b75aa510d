"""Answers the operator's queries as Prometheus does, in a process of its own: its CPU is not the operator's.

It evaluates no PromQL. It reads from the expression what was asked for (namespaces, endings of pod names, buckets)
and writes rows of the form that `sum by`, `max by` and `label_replace` give them, compressed as Prometheus does.
Replies to queries already known are written when time is moved on, so the operator does not wait for them.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from aiohttp import web
from fleet import entries
from traffic import BOUNDS, Series, Traffic

LAYOUT = "topk by (__name__, "
STRING = r'("(?:[^"\\]|\\.)*")'
NAMESPACES = re.compile(rf"[{{,]namespace=~{STRING}")
MODELS = re.compile(rf"[{{,]model_name=~{STRING}")
ENDINGS = re.compile(r'pod=~"\.\*\[([^]]*)\]"')
BUCKETS = re.compile(rf'__name__=~"vllm:([a-z_]+)_bucket".*?le=~{STRING}')
PARTS = re.compile(r'__name__=~"vllm:([a-z_]+)_bucket".*?"part", "(histogram-\d+)"')
FASTEST_GZIP = 1


@dataclass(frozen=True, slots=True)
class Asked:
    """What an expression wants."""

    namespaces: frozenset[str]
    models: frozenset[str]
    endings: str
    buckets: Mapping[str, frozenset[str]]
    parts: Mapping[str, str]

    @classmethod
    def of(cls, query: str) -> Asked:
        namespaces, models, ending = (pattern.search(query) for pattern in (NAMESPACES, MODELS, ENDINGS))
        return cls(
            frozenset(_words(namespaces[1])) if namespaces else frozenset(),
            frozenset(_words(models[1])) if models else frozenset(),
            ending[1] if ending else "",
            {f"vllm:{name}_bucket": frozenset(_words(texts)) for name, texts in BUCKETS.findall(query)},
            {f"vllm:{name}_bucket": part for name, part in PARTS.findall(query)},
        )


@dataclass
class Fleet:
    """Which pod is at which place of the traffic."""

    traffic: Traffic
    pools: int
    slots: int
    per_namespace: int
    names: list[str] = field(init=False)
    middles: list[str] = field(init=False)
    namespaces: list[str] = field(init=False)
    models: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.names = [""] * (self.pools * self.slots)
        every = [entry for entry in entries(self.pools, self.per_namespace) for _ in range(self.slots)]
        self.middles = [f'"model_name":"{entry.model}","namespace":"{entry.namespace}"' for entry in every]
        self.namespaces = [entry.namespace for entry in every]
        self.models = [entry.model for entry in every]

    def place(self, pods: Sequence[Sequence[str]]) -> None:
        """The pods that serve, by pool."""
        for pool, serving in enumerate(pods):
            places = range(pool * self.slots, (pool + 1) * self.slots)
            for place in places:
                if self.names[place] not in serving:
                    self.names[place] = ""
            free = [place for place in places if not self.names[place]]
            first = len(free) == self.slots
            for name, place in zip(
                [name for name in serving if name not in self.names[places.start : places.stop]], free, strict=False
            ):
                self.names[place] = name
                if not first:
                    self.traffic.replace((pool, place - places.start))
        self.traffic.serving = np.array([bool(name) for name in self.names]).reshape(self.pools, self.slots)

    def chosen(self, asked: Asked) -> list[int]:
        return [
            place
            for place, name in enumerate(self.names)
            if name
            and (not asked.endings or name[-1] in asked.endings)
            and (not asked.namespaces or self.namespaces[place] in asked.namespaces)
            and (not asked.models or self.models[place] in asked.models)
        ]

    def columns(self, series: Sequence[Series], asked: Asked, places: Sequence[int]) -> Iterator[tuple[int, list[str]]]:
        """The labels of each series that is wanted, as JSON, by the series' index."""
        for index, one in enumerate(series):
            texts = asked.buckets.get(one.name)
            if one.le is not None and (texts is None or one.le not in texts):
                continue
            le = f'"le":"{one.le}",' if one.le is not None else ""
            part = asked.parts.get(one.name, "")
            tail = f',"part":"{part}"' if part else ""
            head = f'{{"metric":{{"__name__":"{one.name}",{le}'
            yield index, [f'{head}{self.middles[at]}{tail},"pod":"{self.names[at]}"}}' for at in places]

    def _clock(self, place: int) -> str:
        """The labels of a page's scrape time."""
        return f'{{"metric":{{{self.middles[place]},"part":"times","pod":"{self.names[place]}"}}'

    def vector(self, asked: Asked) -> bytes:
        places, now = self.chosen(asked), f"{self.traffic.now:.3f}".rstrip("0").rstrip(".")
        series, rows = self.traffic.series(), []
        for index, labels in self.columns(series, asked, places):
            values = _texts(series[index].values[places])
            rows += [f'{label},"value":[{now},"{value}"]}}' for label, value in zip(labels, values, strict=True)]
        for at in places:
            scraped = self.traffic.now - self.traffic.scrape_lag[at]
            rows.append(f'{self._clock(at)},"value":[{now},"{scraped:.3f}"]}}')
        return _reply("vector", ",".join(rows))

    def matrix(self, asked: Asked, start: float, end: float, step: float) -> bytes:
        places = self.chosen(asked)
        times = [start + index * step for index in range(int((end - start) / step + 1e-6) + 1)]
        past = [(at, self.traffic.at(at)) for at in times]
        past = [(at, series) for at, series in past if series]
        if not past or not places:
            return _reply("matrix", "")
        heads = [f'[{at:.3f},"' for at, _ in past]
        rows: list[str] = []
        for index, labels in self.columns(past[0][1], asked, places):
            table = np.stack([series[index].values[places] for _, series in past], axis=1)
            for label, values in zip(labels, table, strict=True):
                rows.append(f'{label},"values":[{_samples(heads, _texts(values))}]}}')
        for at in places:
            scraped = [f"{when - self.traffic.scrape_lag[at]:.3f}" for when, _ in past]
            rows.append(f'{self._clock(at)},"values":[{_samples(heads, scraped)}]}}')
        return _reply("matrix", ",".join(rows))

    def layout(self, asked: Asked) -> bytes:
        rows = [
            {
                "metric": {"__name__": f"vllm:{name}_bucket", "le": le, "namespace": namespace},
                "value": [self.traffic.now, str(count)],
            }
            for namespace, count in Counter(self.namespaces[at] for at in self.chosen(asked)).items()
            for name, found in BOUNDS.items()
            for le in (*map(repr, found.tolist()), "+Inf")
        ]
        rows.append({"metric": {"part": "targets"}, "value": [self.traffic.now, "1"]})
        return _reply("vector", ",".join(json.dumps(row) for row in rows))


class Server:
    """The query API, and `/control/...` to move time and pods."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._ready: dict[str, tuple[int, bytes]] = {}
        self._latest: set[str] = set()
        self._sent = {"queries": 0, "bytes": 0, "compressed_bytes": 0}

    def app(self) -> web.Application:
        app = web.Application(client_max_size=2**26)
        for path, handler in (("query", self.query), ("query_range", self.query_range)):
            app.router.add_route("*", f"/api/v1/{path}", handler)
        app.router.add_post("/control/place", self.place)
        app.router.add_post("/control/advance", self.advance)
        app.router.add_get("/control/sent", self.sent)
        return app

    async def query(self, request: web.Request) -> web.Response:
        query = (await _parameters(request))["query"]
        if query.startswith(LAYOUT):
            return self._send(_packed(self._fleet.layout(Asked.of(query))))
        if query not in self._ready:
            self._ready[query] = _packed(self._fleet.vector(Asked.of(query)))
        self._latest.add(query)
        return self._send(self._ready[query])

    async def query_range(self, request: web.Request) -> web.Response:
        asked = await _parameters(request)
        window = [float(asked[key]) for key in ("start", "end", "step")]
        return self._send(_packed(self._fleet.matrix(Asked.of(asked["query"]), *window)))

    async def place(self, request: web.Request) -> web.Response:
        self._fleet.place(await request.json())
        return web.json_response({})

    async def advance(self, request: web.Request) -> web.Response:
        """Time goes on, at this share of the usual traffic; what was asked in the last tick is answered ahead."""
        wanted = await request.json()
        self._fleet.traffic.share = wanted["share"]
        self._fleet.traffic.advance(wanted["to"])
        self._ready = {query: _packed(self._fleet.vector(Asked.of(query))) for query in self._latest}
        self._latest = set()
        return web.json_response({})

    async def sent(self, _: web.Request) -> web.Response:
        return web.json_response(self._sent)

    def _send(self, packed: tuple[int, bytes]) -> web.Response:
        size, body = packed
        self._sent["queries"] += 1
        self._sent["bytes"] += size
        self._sent["compressed_bytes"] += len(body)
        return web.Response(body=body, content_type="application/json", headers={"Content-Encoding": "gzip"})


async def _parameters(request: web.Request) -> Mapping[str, str]:
    form: Mapping[str, Any] = await request.post()
    return {**request.query, **form}


def _words(literal: str) -> list[str]:
    """The alternatives of a quoted regular expression of plain words."""
    text: str = json.loads(literal)
    return [word.replace("\\", "") for word in text.split("|")]


def _texts(values: Any) -> list[str]:
    """As Go writes floats: whole ones without a point."""
    return [str(int(value)) if value.is_integer() else repr(value) for value in values.tolist()]


def _samples(heads: Sequence[str], values: Sequence[str]) -> str:
    return ",".join([f'{head}{value}"]' for head, value in zip(heads, values, strict=True)])


def _reply(kind: str, rows: str) -> bytes:
    return f'{{"status":"success","data":{{"resultType":"{kind}","result":[{rows}]}}}}'.encode()


def _packed(body: bytes) -> tuple[int, bytes]:
    return len(body), gzip.compress(body, FASTEST_GZIP)


async def _serve(arguments: argparse.Namespace) -> None:
    traffic = Traffic(arguments.pools, arguments.replicas, arguments.slots, seed=arguments.seed, begin=arguments.begin)
    runner = web.AppRunner(
        Server(Fleet(traffic, arguments.pools, arguments.slots, arguments.per_namespace)).app(), access_log=None
    )
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", arguments.port).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name, kind in (
        ("pools", int),
        ("replicas", int),
        ("slots", int),
        ("per-namespace", int),
        ("seed", int),
        ("begin", float),
        ("port", int),
    ):
        parser.add_argument(f"--{name}", type=kind, required=True)
    asyncio.run(_serve(parser.parse_args()))
