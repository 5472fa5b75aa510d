"""The chart's alerts on the SLO: a real Prometheus reads a day of figures, and evaluates the rules at its end."""

from __future__ import annotations

import json
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from servingpool_lab.binaries import ensure_binaries
from servingpool_lab.processes import open_local, wait_until

from ..integration.operators import PATIENCE  # noqa: TID252, tests are no package of an installed name
from ..integration.operators import prometheus as started  # noqa: TID252
from .conftest import Render

DAY = 24 * 60
"""Minutes."""
FAST, SLOW, TICKET = "ServingPoolSloBurnsFast", "ServingPoolSloBurns", "ServingPoolSloMissed"


@dataclass(frozen=True)
class Past:
    """A pool's day: which share of its requests missed the SLO, by how many minutes ago that was."""

    missed: Callable[[int], float]
    objective: float = 0.95
    mode: str = "Auto"
    elsewhere: str | None = None
    """Mode of a pool of the same name in another cluster."""
    rate: float = 5.0
    """Requests/s."""
    fires: frozenset[str] = frozenset()

    def figures(self, ago: int) -> Iterator[tuple[str, float]]:
        """What the operator exported then."""
        yield f'servingpool_info{{mode="{self.mode}",', 1.0
        if self.elsewhere is not None:
            yield f'servingpool_info{{cluster="us",mode="{self.elsewhere}",', 1.0
        yield "servingpool_objective_ratio{", self.objective
        if self.rate > 0.0:
            yield "servingpool_arrival_rate{", self.rate
            yield "servingpool_attainment_ratio{", 1.0 - self._mean(ago, 60)
            if self.rate * 300.0 * (1.0 - self.objective) >= 1.0:  # else too few requests to tell
                yield "servingpool_recent_attainment_ratio{", 1.0 - self._mean(ago, 5)

    def _mean(self, ago: int, minutes: int) -> float:
        return sum(map(self.missed, range(ago, ago + minutes))) / minutes


def for_the_last(minutes: int, share: float) -> Callable[[int], float]:
    return lambda ago: share if ago < minutes else 0.0


POOLS = {
    "calm": Past(for_the_last(DAY, 0.02)),
    "fast": Past(for_the_last(60, 0.9), fires=frozenset({FAST})),
    "slow": Past(for_the_last(7 * 60, 0.4), fires=frozenset({SLOW, TICKET})),
    "leaking": Past(for_the_last(DAY, 0.1), fires=frozenset({TICKET})),
    "over": Past(lambda ago: 0.95 if 10 <= ago < 70 else 0.0),
    "strict": Past(for_the_last(60, 0.2), objective=0.99, fires=frozenset({FAST})),
    "strict-within": Past(for_the_last(60, 0.1), objective=0.99),
    "modest": Past(for_the_last(60, 0.85), objective=0.8, fires=frozenset({FAST})),
    "recommended": Past(for_the_last(DAY, 0.9), mode="Recommend"),
    "paused": Past(for_the_last(DAY, 0.9), mode="Paused", fires=frozenset({FAST, SLOW, TICKET})),
    "twin": Past(for_the_last(60, 0.9), elsewhere="Paused", fires=frozenset({FAST})),
    "silent": Past(for_the_last(0, 0.0), rate=0.0),
    "rare": Past(for_the_last(DAY, 0.5), objective=0.99, rate=6 / 3600, fires=frozenset({TICKET})),
    "few": Past(for_the_last(60, 0.5), objective=0.999, rate=0.5, fires=frozenset({FAST, SLOW, TICKET})),
}


def page(now: float) -> bytes:
    """A day of all pools, a figure each minute, with its time."""
    lines = [
        f'{name}namespace="chat",pool="{pool}"}} {value} {round((now - 60 * ago) * 1000)}\n'
        for ago in range(DAY, -1, -1)
        for pool, past in POOLS.items()
        for name, value in past.figures(ago)
    ]
    return "".join(lines).encode()


@pytest.fixture(scope="module")
def firing(render: Render, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, str]]]:
    """The modes of the pools for which each alert's expression holds, by alert and pool."""
    now = time.time()
    body = page(now)

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing: what Prometheus asks for is no part of a test's output."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    past = {
        "job_name": "past",
        "honor_labels": True,
        "static_configs": [{"targets": [f"127.0.0.1:{server.server_port}"]}],
    }
    config = {"global": {"scrape_interval": "30s", "scrape_timeout": "30s"}, "scrape_configs": [past]}
    directory = tmp_path_factory.mktemp("prometheus")
    try:
        with started(ensure_binaries("prometheus")["prometheus"], config, directory) as url:

            def found(expr: str) -> dict[str, str]:
                query = urllib.parse.urlencode({"query": expr, "time": now})
                with open_local(f"{url}/api/v1/query?{query}", PATIENCE) as response:
                    series = [one["metric"] for one in json.loads(response.read())["data"]["result"]]
                return {one["pool"]: one["mode"] for one in series}

            wait_until(lambda: found("servingpool_info").keys() == POOLS.keys(), PATIENCE, "the day's figures", 0.5)
            [rule] = [each for each in render("monitoring") if each["kind"] == "PrometheusRule"]
            rules = {each["alert"]: each["expr"] for group in rule["spec"]["groups"] for each in group["rules"]}
            yield {alert: found(rules[alert]) for alert in (FAST, SLOW, TICKET)}
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("pool", POOLS)
def test_a_page_or_a_ticket_comes_by_how_fast_the_budget_is_spent(firing: dict[str, dict[str, str]], pool: str) -> None:
    """A tenth of a day missed is a ticket; most of an hour, or a third of six, wakes somebody. No traffic, a short miss
    that is over, and a pool that is only advised on do not. Too few requests in five minutes are judged by the hour.
    """
    assert {alert for alert, pools in firing.items() if pool in pools} == POOLS[pool].fires


def test_an_alert_carries_the_mode_of_its_pool(firing: dict[str, dict[str, str]]) -> None:
    assert firing[FAST]["paused"] == "Paused"
    assert firing[FAST]["fast"] == "Auto"
