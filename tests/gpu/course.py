"""The operator scales real vLLM processes behind a real router, under load by aiperf, on the local control plane."""

from __future__ import annotations

import asyncio
import math
import os
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from servingpool_lab.control_plane import ControlPlane, free_ports
from servingpool_lab.processes import SupervisedProcess, http_ready
from servingpool_simulation.page import FIRST_TOKEN, TOKEN_TIME

from ..e2e import real_course  # noqa: TID252, tests are no package of an installed name
from ..e2e.cluster import Cluster, seconds_since  # noqa: TID252
from ..e2e.engines import PORT  # noqa: TID252
from ..e2e.results import Results  # noqa: TID252
from ..integration.operators import OperatorProcess, install, prometheus  # noqa: TID252
from ..pods import Replica, limited  # noqa: TID252
from ..vllm.client import Answer, Ask, End, complete, replay_by  # noqa: TID252
from ..vllm.engine import write_model  # noqa: TID252
from ..vllm.run import words  # noqa: TID252
from .kubelet import KWOK_FLAGS, Kubelet, engine
from .scene import SEQUENCES, ProcessScene, machine

NAME = "real"
EVERY = 5
"""Seconds between two scrapes, and between two ticks, as in the end-to-end lanes."""
WAVES = 4
"""Requests that each sequence of the engine that is measured serves, one after another."""
ALONE = "127.1.255.1"
"""Address of that engine."""
WAIT = 0.6
"""TTFT bound as a part of an answer's time: a request may wait so long for a sequence that gets free."""
MARGIN = 3.0
"""A bound of the SLO as a multiple of what one engine alone measures. Several engines share this machine with the router,
the clients and the control plane, so each is slower."""
STEPS = os.environ.get("GPU_STEPS")


@dataclass(frozen=True)
class Programs:
    """What a course is made of."""

    vllm: Path
    """A Python that has vLLM."""
    aiperf: Path
    """A Python that has aiperf and the router."""
    binaries: dict[str, Path]
    """Paths of the control plane's programs and Prometheus', by name."""


@dataclass(frozen=True)
class Measured:
    """One engine alone, with all its sequences busy. Seconds."""

    start: float
    """Until it answers."""
    takes: float
    """Requests/s."""
    ttft: float
    """TTFT of a request that does not wait for another."""
    tpot: float


def play(programs: Programs, results: Results, directory: Path) -> real_course.Course:
    """Measure one engine, send load for several, and wait until one is left."""
    where = machine()
    scene = ProcessScene(
        NAME,
        maximum=where.most,
        patience=300.0,
        prompt=128,
        output=where.output,
        max_num_seqs=SEQUENCES,
        machine=where,
        model=directory / "model",
        router=f"http://127.0.0.1:{free_ports(1)[0]}",
    )
    write_model(scene.model)
    found = alone(scene, programs.vllm, directory)
    suit(scene, found)
    results.add(
        scenario=f"one engine alone on {where.name}, {SEQUENCES} sequences",
        seconds=found.start,
        requests_per_s=found.takes,
        ttft=found.ttft,
        tpot=found.tpot,
        ttft_bound=scene.ttft,
        tpot_bound=scene.tpot,
    )
    with ControlPlane(directory / "plane", binaries=programs.binaries, flags={"kwok": KWOK_FLAGS}) as plane:
        plane.add_gpu_node("gpu-0", gpus=8)
        install(plane, NAME)
        cluster = Cluster("local", plane.kubeconfig)
        kubelet = Kubelet(plane, NAME, scene.selector, programs.vllm, directory, where.cores)
        scraping = scrape_configuration(plane.viewer_kubeconfig("prometheus"))
        with prometheus(programs.binaries["prometheus"], scraping, directory) as url, kubelet:
            scene.create(cluster)
            with router(scene, plane, programs.aiperf, directory, kubelet), operator(plane, url, directory):
                course = real_course.run(cluster, results, scene, scene.model)
    return course


def alone(scene: ProcessScene, python: Path, directory: Path) -> Measured:
    """Start one engine, ask it for all that it can do, and end it."""
    url = f"http://{ALONE}:{PORT}"
    assert not http_ready(f"{url}/health")(), f"an engine answers at {url} already: end it first"
    began = time.monotonic()
    process = engine(scene.container, python, ALONE, directory / "alone.log").start()
    replica = Replica(process, PORT)
    try:
        process.wait_ready()
        start = seconds_since(began)
        with limited(lambda: [replica], scene.machine.cores):
            answers = asyncio.run(_served(scene, url, WAVES * scene.max_num_seqs))
    finally:
        replica.stop()
    for answer in answers:
        assert answer.end is End.WHOLE, answer.complaint
    took = max(one.ended for one in answers) - min(one.sent for one in answers)
    first = sorted(one.first_token for one in answers)[scene.max_num_seqs - 1]
    return Measured(start, len(answers) / took, first, sum(one.per_token for one in answers) / len(answers))


def suit(scene: ProcessScene, found: Measured) -> None:
    """Bounds, rates and times of the scene for an engine as fast as this one: machines differ by a hundred times."""
    answer = scene.output * found.tpot
    scene.ttft = at_least(FIRST_TOKEN, max(WAIT * answer, MARGIN * found.ttft))
    scene.tpot = at_least(TOKEN_TIME, MARGIN * found.tpot)
    scene.rates = STEPS or scene.machine.steps
    scene.rates = ",".join(f"{load * found.takes:.3g}x{seconds:g}" for load, seconds in scene.steps)
    cold_start = f"{math.ceil(found.start / 10) * 10}s"
    scene.behavior = {"calibration": "30s", "coldStart": cold_start, "scaleDownWindow": cold_start}


def at_least(bounds: Sequence[float], value: float) -> float:
    """A bound of vLLM's buckets, the first that is no less than a value: between two bounds a share on time is an estimate."""
    return next(bound for bound in bounds if bound >= value)


async def _served(scene: ProcessScene, url: str, number: int) -> list[Answer]:
    """All sent at once; the queue is the engine's. One before them: the first of an engine is slow."""
    luck = random.Random(scene.seed)

    async def one(session: aiohttp.ClientSession, ask: Ask) -> Answer:
        return await complete(session, url, ask, {"model": scene.name})

    asks = [Ask(0.0, words(luck, scene.prompt), scene.output) for _ in range(number + 1)]
    await replay_by(one, asks[:1])
    return await replay_by(one, asks[1:])


def scrape_configuration(kubeconfig: Path) -> dict[str, Any]:
    """Prometheus', with every running pod found at the API server, as a PodMonitor has it."""
    meta = "__meta_kubernetes"
    relabelings = [
        {"source_labels": [f"{meta}_pod_annotation_prometheus_io_scrape"], "regex": "true", "action": "keep"},
        {"source_labels": [f"{meta}_pod_phase"], "regex": "Running", "action": "keep"},
        {
            "source_labels": [f"{meta}_pod_ip", f"{meta}_pod_annotation_prometheus_io_port"],
            "regex": "(.+);(.+)",
            "replacement": "$1:$2",
            "target_label": "__address__",
        },
        {"source_labels": [f"{meta}_namespace"], "target_label": "namespace"},
        {"source_labels": [f"{meta}_pod_name"], "target_label": "pod"},
    ]
    job = {
        "job_name": "pods",
        "kubernetes_sd_configs": [{"role": "pod", "kubeconfig_file": str(kubeconfig)}],
        "relabel_configs": relabelings,
    }
    return {"global": {"scrape_interval": f"{EVERY}s", "scrape_timeout": f"{EVERY}s"}, "scrape_configs": [job]}


@contextmanager
def router(scene: ProcessScene, plane: ControlPlane, python: Path, directory: Path, kubelet: Kubelet) -> Iterator[None]:
    """vllm-router, which finds the engines' pods by the API server. It serves while the context lasts."""
    [own] = free_ports(1)
    serves = http_ready(f"{scene.router}/v1/models")
    process = SupervisedProcess(
        "router",
        [
            *(
                python,
                "-m",
                "vllm_router.launch_router",
                "--host=127.0.0.1",
                f"--port={scene.router.rpartition(':')[2]}",
            ),
            *(f"--policy={scene.policy}", "--service-discovery", "--selector", scene.selector),
            *(f"--service-discovery-port={PORT}", f"--service-discovery-namespace={scene.name}"),
            *("--prometheus-host=127.0.0.1", f"--prometheus-port={own}"),
        ],
        directory / "router.log",
        ready=lambda: kubelet.failure is not None or serves(),
        ready_timeout_seconds=600.0,
        environment={**os.environ, "KUBECONFIG": str(plane.kubeconfig)},
    )
    process.start()
    try:
        process.wait_ready()
        assert kubelet.failure is None, kubelet.failure
        yield
    finally:
        process.stop()


@contextmanager
def operator(plane: ControlPlane, url: str, directory: Path) -> Iterator[None]:
    """`servingpool run`, which reads this Prometheus."""
    settings = {
        "interval": f"{EVERY}s",
        "backends": [{"name": "default", "url": url, "timeout": f"{EVERY}s", "staleness": "30s"}],
        "leaderElection": {"enabled": False},
        "namespaces": [NAME],
    }
    with OperatorProcess(plane, directory, settings).running():
        yield
