"""Attacks of a tenant on the operator, on a real control plane and a real Prometheus: what a victim notices.

`PYTHONPATH=. python benchmarks/attacks.py` plays all, in about an hour; with names of attacks, those. README.md beside
it says what is measured, and how.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from attacks_played import ATTACKS, Attack
from attacks_stage import INTERVAL, VICTIM, Operator, Stage, Tenant, stage

from servingpool.adapters.cluster import quantity

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "build" / "benchmarks" / "attacks.json"
PAGE, HEADING = ROOT / "docs" / "records" / "gates.md", "## Attacks by size, as measured"
"""What stands below the heading is written once every attack was played."""
PROBE_EVERY, PROBE_PATIENCE = 0.05, 300.0
LOOP, ROUNDS = 0.2, 2.5
"""Bars: seconds, and intervals between two readings of the victim."""
WARM = 600.0
"""Seconds of load before the first attack, in which the victim's fleet finds its size."""
logging.getLogger("urllib3").setLevel(logging.ERROR)


@dataclass
class Watch:
    """Looks at the operator and at the victim while an attack is played. Three threads do."""

    stage: Stage
    operator: Operator
    since: float = field(default_factory=time.monotonic)
    probe: float = 0.0
    """Seconds: the slowest answer of /healthz."""
    gap: float = 0.0
    """Seconds: the longest time between two decisions of the victim on metrics of then."""
    fewest: int = 10**6
    most: int = 0
    lost: int = 0
    """Replicas that the victim had at some time of the attack, and then not."""
    unknown: int = 0
    """Looks at which the victim's metrics were not known."""
    _good: float = 0.0
    _over: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        self._good = time.time()
        for look, pause in ((self._probe, PROBE_EVERY), (self._victim, INTERVAL / 5), (self._replicas, 1.0)):
            thread = threading.Thread(target=self._repeat, args=(look, pause), daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        self.gap = max(self.gap, time.time() - self._good - INTERVAL)

    def _repeat(self, look: Callable[[], None], pause: float) -> None:
        while not self._over.wait(pause):
            try:
                look()
            except (OSError, RuntimeError) as error:
                if self.operator.process.running:
                    print(f"  {look.__name__}: {error}", flush=True)

    def _probe(self) -> None:
        began = time.monotonic()
        try:
            with socket.create_connection(("127.0.0.1", self.operator.health), PROBE_PATIENCE) as one:
                one.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                while one.recv(4096):
                    pass
        except ConnectionRefusedError:  # it starts
            return
        self.probe = max(self.probe, time.monotonic() - began)

    def _victim(self) -> None:
        seen = self.operator.samples(VICTIM, VICTIM)
        decided = seen.get("servingpool_decision_timestamp_seconds", 0.0)
        if seen.get("servingpool_condition MetricsAvailable True") != 1.0:
            self.unknown += 1
        elif decided > self._good:
            self.gap, self._good = max(self.gap, decided - self._good), decided

    def _replicas(self) -> None:
        now = self.stage.replicas()
        self.fewest, self.most = min(self.fewest, now), max(self.most, now)
        self.lost = max(self.lost, self.most - now)

    def steps(self) -> tuple[list[Any], list[Any]]:
        """The longest steps of the event loop since the attack began: by CPU and by wall time."""
        lines = [json.loads(line) for line in self.operator.steps.read_text().splitlines()]
        own = [line for line in lines if line[0] >= self.since] or [[0.0, 0.0, 0.0, ""]]
        return max(own, key=lambda one: one[1]), max(own, key=lambda one: one[2])


def limit() -> float:
    """MiB that the chart gives the operator."""
    values = yaml.safe_load((ROOT / "charts/servingpool-operator/values.yaml").read_text())
    return (quantity.whole(values["resources"]["limits"]["memory"]) or math.nan) / 2**20


def decided(operator: Operator) -> bool:
    """Whether the victim is, on its metrics."""
    try:
        return operator.samples(VICTIM, VICTIM).get("servingpool_condition MetricsAvailable True") == 1.0
    except OSError:
        return False


def until(seconds: float, done: Callable[[], bool]) -> None:
    """Wait until it is so, or that long."""
    end = time.monotonic() + seconds
    while not done() and time.monotonic() < end:
        time.sleep(0.5)


def play(attack: Attack, scene: Stage, tenant: Tenant) -> dict[str, Any]:
    """One attack, and what was seen."""
    course = attack.play(scene, tenant)
    pending = [next(course)] if attack.first else []
    with scene.operator(attack.name) as operator:
        if not attack.first:
            until(120, lambda: decided(operator))
            time.sleep(INTERVAL)
        before = scene.replicas()
        watch, said = Watch(scene, operator), ""
        watch.start()
        try:
            while True:
                time.sleep(pending.pop() if pending else next(course))
        except StopIteration as end:
            said = str(end.value)
        except (TimeoutError, KeyError) as error:
            said = f"FAILED: {error}"
        watch.stop()
        memory, (by_cpu, by_wall) = operator.memory(), watch.steps()
    found = {
        "memory": round(memory),
        "step_cpu": round(by_cpu[1], 3),
        "step_wall": round(by_wall[2], 3),
        "probe": round(watch.probe, 2),
        "rounds": round(watch.gap / INTERVAL, 1),
        "unknown": watch.unknown,
        "before": before,
        "fewest": watch.fewest,
        "most": watch.most,
        "lost": watch.lost,
        "said": said,
        "slowest": [by_cpu, by_wall],
    }
    bars = {
        "memory": found["memory"] < limit(),
        "loop": found["step_cpu"] <= LOOP,
        "victim": found["rounds"] <= ROUNDS,
        "lost": watch.lost == 0 and watch.fewest >= before and watch.most <= before,
        "seen": not said.startswith("FAILED"),
    }
    return found | {"missed": [name for name, held in bars.items() if not held]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="attacks; default: all")
    parser.add_argument("--directory", type=Path, help="keeps logs here")
    parser.add_argument("--warm", type=float, default=WARM, help="seconds before the first one; default: %(default)s")
    options = parser.parse_args()
    chosen = [one for one in ATTACKS if not options.names or one.name in options.names]
    with TemporaryDirectory() as temporary:
        directory = (options.directory or Path(temporary)).absolute()
        directory.mkdir(parents=True, exist_ok=True)
        with stage(directory) as scene:
            with scene.operator("warm") as operator:
                until(120, lambda: decided(operator))
                time.sleep(options.warm)
            print(f"limit {limit():.0f} MiB, interval {INTERVAL:g} s, {os.cpu_count()} CPUs", flush=True)
            missed = []
            for attack in chosen:
                tenant = scene.tenant(f"{attack.name}-{os.getpid()}")
                began = time.monotonic()
                found = play(attack, scene, tenant) | {"what": attack.what}
                scene.leave(tenant)
                keep(attack.name, found)
                missed += found["missed"]
                print(line(attack, found), f"({time.monotonic() - began:.0f} s)", flush=True)
    if missed:
        raise SystemExit(1)


def keep(name: str, found: dict[str, Any]) -> None:
    """Beside those of earlier runs."""
    FIGURES.parent.mkdir(parents=True, exist_ok=True)
    earlier = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    every = {**earlier, name: found}
    FIGURES.write_text(json.dumps(every, indent=1))
    if every.keys() >= {attack.name for attack in ATTACKS}:  # else rows of earlier runs would go from the page
        PAGE.write_text(PAGE.read_text().partition(HEADING)[0] + table(every))


def table(every: dict[str, Any]) -> str:
    """The page's section."""
    head = ("attack", "what", "memory, MiB", "longest step, s CPU (wall)", "/healthz, s", "read within, ticks")
    rows = [(*head, "replicas", "besides"), ("---",) * 8]
    for attack in ATTACKS:
        if found := every.get(attack.name):
            step = f"{found['step_cpu']:.3f} ({found['step_wall']:.3f})"
            replicas = f"{found['before']}, then {found['fewest']} to {found['most']}"
            read = f"{found['rounds']:.1f}"
            figures = (attack.what, str(found["memory"]), step, f"{found['probe']:.2f}", read, replicas)
            rows.append((f"`{attack.name}`", *figures, found["said"].partition(". ")[0]))
    lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"{HEADING}\n\nThe chart's limit is {limit():.0f} MiB, the interval {INTERVAL:g} s.\n\n{lines}\n"


def line(attack: Attack, found: dict[str, Any]) -> str:
    """A row for the terminal."""
    cpu, wall = found["slowest"]
    return (
        f"{attack.name}: {found['memory']} MiB; loop {found['step_cpu']:.3f} s CPU, {found['step_wall']:.3f} s wall, "
        f"/healthz {found['probe']:.2f} s; victim read within {found['rounds']} ticks, unknown {found['unknown']}; "
        f"replicas {found['before']} -> {found['fewest']}..{found['most']}, lost {found['lost']}; {found['said']}; "
        f"missed: {', '.join(found['missed']) or 'none'}\n    {cpu[3]}\n    {wall[3]}"
    )


if __name__ == "__main__":
    main()
