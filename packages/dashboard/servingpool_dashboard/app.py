"""The pages. Every route reads; there is none that writes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import orjson
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from servingpool import __version__
from servingpool.adapters.cluster.objects import FIELD_MANAGER
from servingpool.adapters.prometheus.http_client import MetricsUnavailable
from servingpool.api.spec import Spec
from servingpool.api.time import from_unix, write
from servingpool_dashboard import pods, words
from servingpool_dashboard.board import Board, Sight, Workload
from servingpool_dashboard.detail import commands, decisions, detail, recommending
from servingpool_dashboard.guard import Guard
from servingpool_dashboard.record import LIVE, SPANS, Course, Courses, to_json
from servingpool_dashboard.rows import Filter, Key, Row, Trouble, as_of, counted

LINES = 100
"""Pools on a page of the table: a screen or three, and what a browser lays out in a tenth of a second."""
SPAN = "1h"
Fleet = Mapping[str, Sequence[Mapping[str, Any]]]
"""Rows of each table, by its name."""


class Pages:
    """What the routes answer."""

    def __init__(
        self,
        board: Board,
        courses: Courses,
        clock: Callable[[], float] = time.time,
        grafana: str = "",
        where: Sequence[str] = (),
        fleet: Callable[[], Fleet] = dict,
    ) -> None:
        """Pages on a board and its courses.

        Args:
            board: the pools.
            courses: their past.
            clock: Unix time in seconds.
            grafana: URL of a dashboard with {namespace} and {pool} in it; empty for no link.
            where: options for the cluster and the user, for the commands that a page offers.
            fleet: the tables of `servingpool fleet`; it may raise MetricsUnavailable.
        """
        self._board, self._courses, self._clock, self._grafana, self._where = board, courses, clock, grafana, where
        self._fleet: Callable[[], Fleet] = lambda: courses.shared("fleet", {}, lambda _: fleet())
        self._templates = Environment(
            loader=PackageLoader(__package__), autoescape=True, undefined=StrictUndefined, trim_blocks=True
        )
        self._templates.filters |= {
            name: getattr(words, name) for name in ("number", "dollars", "percent", "brief", "ago", "clock")
        } | {"stamp": write, "instant": from_unix, "per_million": words.per_million}

    def pools(self, request: Request) -> Response:
        """All pools."""
        return self._page("pools.html.j2", **self._listed(request))

    def rows(self, request: Request) -> Response:
        """The table alone; no content where it is as `seen`."""
        listed = self._listed(request)
        sight: Sight = listed["sight"]
        if request.query_params.get("seen") == listed["seen"] and not sight.failure:
            return Response(status_code=204)
        response = self._page("_rows.html.j2", **listed)
        response.headers["HX-Replace-Url"] = f"/?{listed['query']}"
        return response

    def pool(self, request: Request) -> Response:
        """One pool."""
        return self._page("pool.html.j2", swapped=False, **self._detailed(request))

    def now(self, request: Request) -> Response:
        """What changes on a pool's page, but for the charts."""
        return self._page("_changed.html.j2", swapped=True, **self._detailed(request))

    def course(self, request: Request) -> Response:
        """The charts' figures. It waits for Prometheus, so no page waits for it."""
        row, span, at = self._row(request), _span(request), _at(request)
        course = self._course(row, span, at)
        told = to_json(course, decisions(row, course, (at or self._clock()) - SPANS[span], at or math.inf))
        return Response(orjson.dumps(told), media_type="application/json")

    def pods(self, request: Request) -> Response:
        """The pods and the events of now. It waits for the API server and for Prometheus, so no page waits for it."""
        row = self._row(request)
        found, told, failure = ([], [], "") if row.spec is None else self._board.listed(row.key, row.spec)
        loads = {} if row.spec is None else self._courses.loads(row.key, row.spec)
        return self._page("_pods.html.j2", row=row, pods=pods.shown(found, loads), events=told, failure=failure)

    def fleet(self, _: Request) -> Response:
        """What `servingpool fleet` shows. It waits for Prometheus, so no page waits for it."""
        try:
            return self._page("_fleet.html.j2", tables=self._fleet(), failure="")
        except MetricsUnavailable as error:
            return self._page("_fleet.html.j2", tables={}, failure=str(error))

    def problem(self, _: Request, error: Exception) -> Response:
        """A page that there is not."""
        assert isinstance(error, HTTPException)
        response = self._page("problem.html.j2", sight=self._board.sight, said=error.detail)
        response.status_code = error.status_code
        return response

    def _listed(self, request: Request) -> dict[str, Any]:
        given, sight = request.query_params, self._board.sight
        trouble = next((one for one in Trouble if one == given.get("trouble")), None)
        wanted = Filter(given.get("q", "")[:200], given.get("namespace", ""), trouble)
        likely = sight.found(replace(wanted, trouble=None))
        found, counts = sight.found(wanted), counted(likely)
        pages = max(1, -(-len(found) // LINES))
        page = min(max(1, _whole(given.get("page", "1"))), pages)

        def query(**changed: object) -> str:
            named = {"q": wanted.text, "namespace": wanted.namespace, "trouble": wanted.trouble, "page": page}
            return urlencode({name: to for name, to in (named | changed).items() if to not in {"", None, 1}})

        return {
            "sight": sight,
            "wanted": wanted,
            "rows": found[(page - 1) * LINES : page * LINES],
            "matching": len(found),
            "page": page,
            "pages": pages,
            "query": query(),
            "with_query": query,
            "seen": str(sight.version),
            "everything": len(likely),
            "troubles": counts.items(),
        }

    def _row(self, request: Request) -> Row:
        key: Key = request.path_params["namespace"], request.path_params["name"]
        row = self._board.pool(key)
        if row is not None:
            return row
        sight = self._board.sight
        if sight.read_at is None:
            raise HTTPException(503, sight.failure or "The pools are being read. Reload this page in a moment.")
        raise HTTPException(404, f"There is no ServingPool {'/'.join(key)}.")

    def _detailed(self, request: Request) -> dict[str, Any]:
        row, span, at = self._row(request), _span(request), _at(request)
        course = self._courses.last(row.key, span) if at is None else self._course(row, span, at)
        changes = decisions(row, course, (at or self._clock()) - SPANS[span], at or math.inf)
        if at is not None:
            if course.live is None:
                raise HTTPException(404, course.failure)
            row = as_of(row, course.live)
        return {
            "sight": self._board.sight,
            "now": at or self._clock(),
            "at": request.query_params.get("at"),
            "pool": detail(row, course, changes),
            "scaler": None if row.spec is None else self._board.last_autoscaler(_target(row.key, row.spec)),
            "bounds": words.bounds,
            "commands": commands(row, self._where),
            "grafana": self._grafana,
            "span": span,
            "spans": list(SPANS),
            "recommending": recommending(row.spec),
            "fresh_for": LIVE,
        }

    def _course(self, row: Row, span: str, at: float | None) -> Course:
        scaler = None if row.spec is None else self._board.autoscaler(_target(row.key, row.spec))
        name = None if scaler is None else scaler["metadata"]["name"]
        return self._courses.of(row.key, span, recommending=recommending(row.spec), autoscaler=name, at=at)

    def _page(self, template: str, **given: Any) -> HTMLResponse:
        given = {"now": self._clock(), "version": __version__, "operator": FIELD_MANAGER, **given}
        return HTMLResponse(self._templates.get_template(template).render(**given))


def application(pages: Pages, hosts: Collection[str]) -> Starlette:
    """The pages as an ASGI application. `hosts`: names by which it may be asked for, without a port."""
    one = "/pools/{namespace}/{name}"
    routes = [
        Route("/", pages.pools),
        Route("/rows", pages.rows),
        Route("/fleet", pages.fleet),
        Route(one, pages.pool),
        Route(f"{one}/now", pages.now),
        Route(f"{one}/pods", pages.pods),
        Route(f"{one}/course.json", pages.course),
        Mount("/static", StaticFiles(directory=Path(__file__).parent / "static")),
    ]
    middleware = [Middleware(Guard, hosts=hosts), Middleware(GZipMiddleware, minimum_size=2000)]
    return Starlette(routes=routes, middleware=middleware, exception_handlers={HTTPException: pages.problem})


def _span(request: Request) -> str:
    given = request.query_params.get("since", SPAN)
    if given not in SPANS:
        raise HTTPException(400, f"The time must be one of {', '.join(SPANS)}, got '{given[:20]}'.")
    return given


def _at(request: Request) -> float | None:
    """The time that is asked for, Unix seconds; None for now. A time without a zone is UTC."""
    given = request.query_params.get("at", "")
    try:
        at = datetime.fromisoformat(given) if given else None
    except ValueError:
        raise HTTPException(400, f"The time must be such as 2026-11-20T03:12, got '{given[:30]}'.") from None
    return None if at is None else (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _target(key: Key, spec: Spec) -> Workload:
    return key[0], spec.targets[0].kind, spec.targets[0].name


def _whole(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 7 else 1
