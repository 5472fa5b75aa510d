"""A pool under traffic of its own: set up at the start of a run, judged when its course is over."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from servingpool.api import duration

from .cluster import Cluster
from .engines import Engine, Manifest, engine_manifests
from .load import Course, LoadGenerator
from .pools import BEHAVIOR, path, serving_pool
from .prometheus import PrometheusRelease
from .waiting import eventually

SCRAPE_SECONDS = 5
PROMPT, OUTPUT = 1500, 40
"""Tokens of every request: about 0.2 s of work for an engine at twice an L40S' step times, so 4.9 requests/s fill one."""


@dataclass
class Scene:
    """One namespace with an engine Deployment, a pool in Auto mode and a course of traffic, all of one name."""

    name: str
    rates: str | None = None
    """Requests/s x seconds, in turn."""
    trace: Mapping[str, Any] = field(default_factory=dict)
    """Instead, which part of a shipped trace is replayed: `trace`, `begin`, `seconds`, `share`, `token_scale`."""
    minimum: int = 1
    """Of the pool, and what it begins with unless `initial` is given."""
    maximum: int = 6
    initial: int | None = None
    """Replicas that the pool finds."""
    ttft: float = 2.5
    tpot: float = 0.3
    """Bounds that vLLM's buckets have too: what lies between two is only estimated by whoever reads them."""
    attainment: float = 90.0
    """Percent."""
    floor: float = 0.0
    """Share of its requests that must meet the bounds; each scene that is judged by it has its own, with the reason."""
    load_seconds: float = 5.0
    patience: float = 60.0
    """Seconds after which its clients give a request up."""
    seed: int = 0
    prompt: int = PROMPT
    """Tokens of every request."""
    output: int = OUTPUT
    """Tokens of every answer."""
    max_num_seqs: int = 256
    arguments: tuple[str, ...] = ()
    """Further options of the engine."""
    behavior: Mapping[str, str] = field(default_factory=lambda: BEHAVIOR)
    """Of the pool; empty for the operator's defaults."""
    spec: Mapping[str, Any] = field(default_factory=dict)
    """Further parts of the pool's spec."""
    course: Course | None = field(default=None, init=False)

    @property
    def engine(self) -> Engine:
        """Its Deployment and Service."""
        return Engine(
            name=self.name,
            namespace=self.name,
            model=self.name,
            replicas=self.found,
            load_seconds=self.load_seconds,
            max_num_seqs=self.max_num_seqs,
            arguments=self.arguments,
        )

    @property
    def steps(self) -> list[tuple[float, float]]:
        """Requests/s and seconds of each part of `rates`."""
        return [
            (float(rate), float(seconds))
            for rate, seconds in (step.split("x") for step in (self.rates or "").split(","))
        ]

    @property
    def found(self) -> int:
        """Replicas of its Deployment before the operator sees it."""
        return self.minimum if self.initial is None else self.initial

    def manifests(self) -> list[Manifest]:
        """Deployment and Service."""
        return engine_manifests(self.engine)

    @property
    def targets(self) -> list[dict[str, Any]]:
        """Of the pool."""
        return [{"name": self.name, "min": self.minimum, "max": self.maximum, "gpusPerReplica": 1}]

    def ready(self, cluster: Cluster) -> int:
        """Replicas that serve."""
        return cluster.ready(self.name, self.name)

    def create(self, cluster: Cluster) -> None:
        """Engines and pool. A pool that an earlier run has left would know the traffic already."""
        fresh_namespace(cluster, self.name)
        cluster.gone(path(self.name, self.name))
        cluster.apply(self.manifests())
        cluster.apply(
            serving_pool(
                self.name,
                self.name,
                slo={
                    "timeToFirstToken": duration.write(self.ttft),
                    "timePerOutputToken": duration.write(self.tpot),
                    "attainment": self.attainment,
                },
                targets=self.targets,
                behavior=dict(self.behavior),
                **self.spec,
            )
        )

    def begin(self, cluster: Cluster, load: LoadGenerator) -> None:
        """Starts the traffic, as soon as the first replicas serve."""
        eventually(lambda: self.ready(cluster) >= self.found, 240, f"the engines of {self.name}")
        self.course = load.start(
            self.engine.url,
            self.name,
            self.rates,
            prompt=self.prompt,
            output=self.output,
            seed=self.seed,
            timeout=self.patience,
            **self.trace,
        )

    def running(self) -> Course:
        """Its course. Raises AssertionError before `begin`."""
        assert self.course is not None, f"{self.name} has no traffic"
        return self.course

    def figures(self, load: LoadGenerator, begin: float | None = None, end: float | None = None) -> dict[str, Any]:
        """As `LoadGenerator.summary`, judged by the pool's bounds."""
        return load.summary(self.running(), ttft=self.ttft, tpot=self.tpot, begin=begin, end=end)

    def over(self, load: LoadGenerator) -> dict[str, Any]:
        """The figures, once the last answer is there."""
        left = self.running().duration + self.patience + 30
        return eventually(
            lambda: found if (found := self.figures(load))["finished"] else {},
            left,
            f"the end of {self.name}'s traffic",
            every=2.0,
        )

    def end(self, load: LoadGenerator) -> dict[str, Any]:
        """Ends its traffic; the figures, once the last answer is there."""
        course = self.running()
        self.course = replace(course, duration=time.time() - course.begun_at)
        return load.end(course, ttft=self.ttft, tpot=self.tpot)

    def spent(self, prometheus: PrometheusRelease) -> dict[str, Any]:
        """Columns of a result: replica-seconds from container start to exit, drains included, and the most at once."""
        course = self.running()
        window = f"{math.ceil(course.duration)}s"
        end = course.begun_at + course.duration
        up = f'up{{namespace="{self.name}",job="pods"}}'
        seconds = prometheus.value(f"sum(count_over_time({up}[{window}] @ {end:.0f})) * {SCRAPE_SECONDS}")
        most = prometheus.value(f"max_over_time(count({up})[{window}:{SCRAPE_SECONDS}s] @ {end:.0f})")
        assert seconds is not None, f"no scrape of {self.name}"
        assert most is not None, f"no scrape of {self.name}"
        return {"seconds": round(course.duration, 1), "gpu_seconds": round(seconds), "most_pods": int(most)}


def fresh_namespace(cluster: Cluster, name: str) -> None:
    """A namespace that may still be going, in a cluster that an earlier run has left."""
    where = f"/api/v1/namespaces/{name}"
    going = (cluster.found(where) or {}).get("status", {}).get("phase") == "Terminating"
    if going:
        eventually(lambda: cluster.found(where) is None, 300, f"the end of the earlier namespace {name}")
    cluster.namespace(name)


def percent(share: float | None) -> float | None:
    """For the table."""
    return None if share is None else round(100.0 * share, 1)


def row(scene: Scene, figures: dict[str, Any]) -> dict[str, Any]:
    """What the client saw, beside what it was promised, as columns of a result. TTFT and TPOT in seconds."""
    return {
        "attainment": percent(figures["attainment"]),
        "slo": f"{scene.attainment:g}",
        "requests": figures["requests"],
        "lost": figures["lost"],
        "ttft_p95": round(figures["ttft"]["p95"], 3),
        "tpot_p95": round(figures["tpot"]["p95"], 4),
        "lag_p99": round(figures["lag"]["p99"], 3),
    }
