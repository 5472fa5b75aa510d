"""Engines that are not as the model has them: eight requests at a time, and a TTFT histogram without the queue."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from . import foreign
from .cluster import Cluster
from .images import build_foreign
from .load import LoadGenerator
from .pools import status
from .prometheus import PrometheusRelease
from .results import Results
from .scenes import Scene, percent, row
from .slow import in_time, too_slow
from .timeline import Recorder, Sample, answers, attained, false_claim, over_ordered
from .waiting import eventually

PUBLIC = foreign.ForeignScene(
    "foreign",
    os.environ.get("E2E_FOREIGN_RATES", "0.5x120,1.5x120,3x210,1x150,0.4x120"),
    maximum=8,
    initial=3,
    ttft=1.0,
    tpot=0.1,
    attainment=95.0,
    floor=0.90,
    load_seconds=30.0,
    patience=180.0,
    prompt=200,
    output=97,
    max_num_seqs=8,
    arguments=("--time-to-first-token=250ms", "--inter-token-latency=40ms", "--time-factor-under-load=2"),
    behavior={},
)
"""Both latencies double between one request and eight, so an answer takes 4.2 to 8.2 s and a full replica serves 0.98
requests/s. Four replicas could serve 3 requests/s at 77% of what they can at most; five hold the SLO behind a Service that
picks replicas at random. The pool is found with three, and has the operator's own defaults."""
WIDE = replace(
    PUBLIC,
    name="foreign-wide",
    rates="2x150,9x240,2x150",
    initial=2,
    ttft=2.5,
    prompt=1_000,
    max_num_seqs=64,
    arguments=(
        "--prefill-overhead=100ms",
        "--prefill-time-per-token=1ms",
        "--inter-token-latency=30ms",
        "--inter-token-latency-std-dev=5ms",
        "--time-factor-under-load=4",
        "--max-model-len=2048",
    ),
)
"""Limited by TPOT and not by a queue: a token takes 30 ms alone and 120 ms with 64 requests, of 100 ms that it may. A full
replica serves 4.9 requests/s, and about four hold 9."""
FLAT = replace(
    PUBLIC,
    name="foreign-flat",
    rates="1x150,6x300,1x120",
    initial=2,
    load_seconds=45.0,
    output=60,
    max_num_seqs=4,
    arguments=(
        "--time-to-first-token=500ms",
        "--time-to-first-token-std-dev=100ms",
        "--inter-token-latency=20ms",
        "--time-factor-under-load=1",
    ),
)
"""Latency that does not depend on the batch: 1.7 s an answer, four at a time, so a full replica serves 2.4 requests/s. The
step multiplies the load by six within a cold start of 45 s. It finds one replica, before which 3.6 requests a second queue
until others are ready."""
PUBLICS = (PUBLIC, WIDE, FLAT)
OURS = Scene(
    "capped",
    "1x60,5x150,1x90",
    maximum=8,
    ttft=1.0,
    tpot=0.1,
    attainment=95.0,
    floor=0.90,
    load_seconds=10.0,
    patience=120.0,
    prompt=200,
    output=80,
    max_num_seqs=8,
    arguments=("--ttft-from-admission", "--page-quirks", "--flat-step=0.05"),
)
"""The emulated engine in the same way: an answer takes 4 s whatever the batch, so a full replica serves 2 requests/s. Two
and a half are busy with 5 requests/s; four hold the SLO behind a Service that picks replicas at random."""
SETTLED = {PUBLIC.name: 100.0, WIDE.name: 100.0, FLAT.name: 190.0, OURS.name: 105.0}
"""Seconds from the highest step on: for a cold start of 13 to 47 s, and for the queue of meanwhile. Of ours one replica
works off 90 requests, two each second, while the Service sends it a share of the new ones; nobody can move them. In the
flat scene, ordered at once and ready after 55 s, 200 requests queue before one replica; seven take turns, so 1.5 of them
leave the queue a second: 185 s."""
CLAIM_BELOW = 5.0
CLAIM_SECONDS = {**{scene.name: 300.0 for scene in PUBLICS}, OURS.name: 90.0}
"""SLOMet must not be True for so long while clients are below the SLO by more than `CLAIM_BELOW` points."""
APART = {**{scene.name: 5.0 for scene in PUBLICS}, OURS.name: 3.0}
"""Points between the attainment in the status and that of the clients. The public simulator's TTFT lacks the queue and its
replicas are unequal, so a wait is estimated: 0.8 to 3.6 points too low were seen."""
GIVEN_BACK = 300.0
"""Seconds from the last answer until half of what was ordered beyond the first fleet is given back. The rest stays for
longer: a surge of some minutes ago may come again, and 20 minutes without a request end that."""
RECORDERS: dict[str, Recorder] = {}
NAMESPACES = (*(scene.name for scene in PUBLICS), OURS.name)


def prepare(cluster: Cluster, load: LoadGenerator) -> None:
    scenes: list[Scene] = [OURS]
    if not foreign.missing():
        build_foreign(foreign.IMAGE, Path(foreign.BINARY))
        cluster.load([foreign.IMAGE])
        scenes += PUBLICS
    for scene in scenes:
        scene.create(cluster)
    for scene in scenes:
        scene.begin(cluster, load)
        RECORDERS[scene.name] = Recorder(cluster, scene.name)


def test_an_engine_with_a_cap_keeps_the_slo_of_its_clients(
    cluster: Cluster, load: LoadGenerator, prometheus: PrometheusRelease, results: Results
) -> None:
    judge(OURS, cluster, load, prometheus, results)


@pytest.mark.timeout(sum(seconds for _, seconds in PUBLIC.steps) + PUBLIC.patience + GIVEN_BACK + 120.0)
@pytest.mark.skipif(bool(foreign.missing()), reason=foreign.missing())
@pytest.mark.parametrize("scene", PUBLICS, ids=lambda scene: scene.name)
def test_the_public_simulator_keeps_the_slo_of_its_clients(
    scene: Scene, cluster: Cluster, load: LoadGenerator, prometheus: PrometheusRelease, results: Results
) -> None:
    judge(scene, cluster, load, prometheus, results)


def judge(scene: Scene, cluster: Cluster, load: LoadGenerator, prometheus: PrometheusRelease, results: Results) -> None:
    """All that is asked of either engine. The table and the timeline are written before anything is asserted."""
    recorder, figures = RECORDERS[scene.name], scene.over(load)
    settled = scene.figures(load, begin=highest_begin(scene) + SETTLED[scene.name])
    course = scene.running()
    known = answers(load.requests(course), course.begun_at, scene.ttft, scene.tpot)
    ended = max(answer.known_at for answer in known)
    given_back = _given_back(scene, cluster, max(sample.replicas for sample in recorder.samples))
    samples = recorder.stop()
    results.write(f"{scene.name}-timeline.jsonl", recorder.lines())
    results.write(f"{scene.name}-requests.jsonl", "".join(json.dumps(one) + "\n" for one in load.requests(course)))
    claim = false_claim(samples, known, scene.attainment - CLAIM_BELOW)
    over = over_ordered(samples, scene.load_seconds)
    told, clients = attainment_told(samples, ended), attained(known, ended)
    results.add(
        scenario=f"{scene.name}: {scene.rates}",
        outcome=f"{percent(settled['attainment'])}% once settled; fleet {'' if given_back else 'not '}given back",
        **row(scene, figures),
        **scene.spent(prometheus),
        most_ordered=max(sample.replicas for sample in samples),
        operator_attainment=told,
        slo_met_wrongly_s=claim,
    )
    assert figures["outcomes"] == {"ok": figures["requests"]}
    floor = f"{scene.floor:.0%} once settled, {percent(settled['attainment'])}%"
    slow = too_slow(figures, status(cluster, scene.name, scene.name), scene.load_seconds)
    in_time({floor: settled["attainment"] >= scene.floor}, slow)
    assert claim < CLAIM_SECONDS[scene.name]
    assert told is not None
    assert clients is not None
    assert abs(told - clients) <= APART[scene.name]
    assert not over
    assert given_back


def highest_begin(scene: Scene) -> float:
    """Seconds into the course at which its highest step begins."""
    highest = max(range(len(scene.steps)), key=lambda number: scene.steps[number][0])
    return sum(seconds for _, seconds in scene.steps[:highest])


def attainment_told(samples: list[Sample], at: float) -> float | None:
    """The last figure of the status before then."""
    told = [sample.status["attainment"] for sample in samples if sample.at <= at and "attainment" in sample.status]
    return told[-1] if told else None


def _given_back(scene: Scene, cluster: Cluster, most: int) -> bool:
    enough = (most + scene.found) // 2
    try:
        return eventually(
            lambda: cluster.replicas(scene.name, scene.name) <= enough, GIVEN_BACK, "the fleet", every=2.0
        )
    except AssertionError:
        return False
