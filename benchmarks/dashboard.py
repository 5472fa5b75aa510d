"""How long the dashboard takes with 5,000 pools: to read them, to answer, and to stand in Chromium.

    python benchmarks/dashboard.py [--pools 5000] [--serve]

The pools are those of a fake cluster with a status of full size. Without Chromium the last figure is left out.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import requests
import uvicorn
from playwright.sync_api import sync_playwright

from servingpool.catalogue.condition_types import ConditionType
from servingpool.catalogue.conditions import Reason
from servingpool_dashboard.app import application
from servingpool_dashboard.board import Board
from servingpool_dashboard.guard import LOCAL
from servingpool_dashboard.record import Courses

PAGE = 500
ROUNDS = 20


class Fleet:
    """`board.Cluster` with pools in every kind of trouble."""

    def __init__(self, pools: int, seed: int = 0) -> None:
        draw = random.Random(seed)
        self.pools = [stored(number, draw) for number in range(pools)]

    def pages(self, _: str | None) -> Iterator[dict[str, Any]]:
        """As JSON from the API server, parsed here, as the client does."""
        for first in range(0, len(self.pools), PAGE):
            text = json.dumps({"metadata": {"resourceVersion": "1"}, "items": self.pools[first : first + PAGE]})
            yield json.loads(text)

    def watch(self, *_: object, **__: object) -> Iterator[dict[str, Any]]:
        """Nothing changes."""
        return iter(())

    def probe(self, _: str | None) -> None:
        """It answers."""

    def autoscalers(self, _: str) -> list[dict[str, Any]]:
        """There are none."""
        return []


def stored(number: int, draw: random.Random) -> dict[str, Any]:
    """A pool, nine in ten of them calm."""
    bad = [reason for reason in Reason if reason.status is not reason.type.good]
    found = {type_: next(r for r in Reason if r.type is type_ and r.status is type_.good) for type_ in ConditionType}
    if draw.random() < 0.1:
        reason = draw.choice(bad)
        found[reason.type] = reason
    at = "2026-11-24T21:00:00Z"
    conditions = [
        {"type": type_, "status": reason.status, "reason": reason, "message": reason.meaning, "lastTransitionTime": at}
        for type_, reason in found.items()
    ]
    ready, price = draw.randint(1, 8), draw.choice((2.5, 4.0, 10.4))
    said = "hold {}: 5.2 requests/s now; work for 1.3 fully busy replicas is expected in 79 s; 2 cover the forecast"
    status = {
        "conditions": conditions,
        "fleet": f"{ready}/{ready}/8",
        "why": "Hold",
        "replicas": ready,
        "readyReplicas": ready,
        "desiredReplicas": ready,
        "attainment": round(draw.uniform(80.0, 100.0), 1),
        "queueDepth": draw.randint(0, 5),
        "latency": {"timeToFirstToken": "1.32s", "timePerOutputToken": "48ms"},
        "cost": {"dollarsPerHour": ready * price},
        "profile": {f"part{part}": "x" * 800 for part in range(10)},
        "lastDecision": {
            "at": at,
            "replicas": ready,
            "verdict": "Hold",
            "reason": said.format(ready),
            "figures": {f"figure{part}": draw.random() for part in range(40)},
        },
        "history": [
            {"at": at, "from": step, "to": step + 1, "why": said.format(step), "by": "servingpool-operator"}
            for step in range(10)
        ],
    }
    meta = {"namespace": f"team-{number % 100:02}", "name": f"model-{number:04}", "resourceVersion": "1"}
    slo = {"timeToFirstToken": "2s", "timePerOutputToken": "100ms"}
    target = {"name": f"model-{number:04}", "max": 8, "costPerReplicaHour": price}
    return {
        "metadata": meta,
        "spec": {"model": f"llama-{number % 7}", "slo": slo, "targets": [target]},
        "status": status,
    }


def timed(what: Callable[[], object]) -> float:
    """Seconds."""
    begin = time.perf_counter()
    what()
    return time.perf_counter() - begin


def in_chromium(url: str) -> tuple[list[float], list[float]] | None:
    """Milliseconds from the click to a page that stands, and those of its thread's work; None without Chromium."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        return None
    took, worked = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path)
        for _ in range(ROUNDS):
            page = browser.new_page()  # of a new profile, so nothing is in its cache
            tools = page.context.new_cdp_session(page)
            tools.send("Performance.enable", {"timeDomain": "threadTicks"})
            page.goto(url)
            found = {each["name"]: each["value"] for each in tools.send("Performance.getMetrics")["metrics"]}
            worked.append(found["TaskDuration"] * 1e3)
            took.append(page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd"))
            page.close()
        browser.close()
    return took, worked


def main() -> None:
    """Measure, or `--serve` to look at it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pools", type=int, default=5000)
    parser.add_argument("--serve", action="store_true", help="serve on port 8765 until Ctrl-C")
    given = parser.parse_args()
    fleet = Fleet(given.pools)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    board = Board(lambda: fleet, None)
    print(f"{given.pools} pools read in {timed(board.read):.2f} s")
    app = application(board, Courses(None), LOCAL)
    config = uvicorn.Config(app, port=8765 if given.serve else 0, log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    if given.serve:
        server.run()
        return
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    for name, path in (("first page", "/"), ("search", "/rows?q=llama-3 calm"), ("last page", "/?page=999")):
        size = len(requests.get(url + path, timeout=60).content)
        begin = time.process_time()
        took = [timed(lambda path=path: requests.get(url + path, timeout=60)) for _ in range(ROUNDS)]  # type: ignore[misc]
        worked = (time.process_time() - begin) / ROUNDS
        print(
            f"{name}: {statistics.median(took) * 1e3:.0f} ms, at most {max(took) * 1e3:.0f} ms; "
            f"{worked * 1e3:.0f} ms of CPU, {size / 1e3:.0f} kB"
        )
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(f"memory: {grown / 1024:.0f} MiB more than the pools themselves")
    seen = in_chromium(url)
    if seen is None:
        print("Chromium is not installed: the time to the load event is left out")
        return
    loaded, drawn = seen
    print(
        f"in Chromium, to the load event: {statistics.median(loaded):.0f} ms, at most {max(loaded):.0f} ms; "
        f"{statistics.median(drawn):.0f} ms of CPU of the page's thread"
    )


if __name__ == "__main__":
    main()
