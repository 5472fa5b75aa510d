"""The load generator's own HTTP interface: courses are started, stopped and read."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson
from aiohttp import web

from servingpool_lab.load_generator.asking import healthy, session
from servingpool_lab.load_generator.course import Course
from servingpool_lab.load_generator.record import Record
from servingpool_lab.load_generator.summary import Bounds, summarise
from servingpool_lab.load_generator.traffic import Traffic


@dataclass(slots=True)
class LoadGenerator:
    """Courses by number, several at once."""

    courses: list[Course] = field(default_factory=list)
    _playing: list[asyncio.Task[None]] = field(default_factory=list)
    _http: aiohttp.ClientSession | None = None

    def application(self) -> web.Application:
        """Routes. `course` is a number from 0; without it the latest is meant.

        POST /traffic (a Traffic): starts a course. POST /stop?course=: it sends no more.
        GET /summary?course=&ttft=&tpot=&begin=&end=: figures of the requests scheduled in [begin, end).
        GET /requests?course=: JSON lines. GET /health.
        """
        app = web.Application(client_max_size=16 * 1024**2)
        app.add_routes(
            [
                web.post("/traffic", self._start),
                web.post("/stop", self._stop),
                web.get("/summary", self._summary),
                web.get("/requests", self._requests),
                web.get("/health", self._health),
            ]
        )
        app.cleanup_ctx.append(self._connections)
        return app

    def start(self, traffic: Traffic) -> int:
        """Starts a course and returns its number. Raises ValueError where it has no requests."""
        assert self._http is not None, "the application is not running"
        course = Course(traffic)
        self.courses.append(course)
        self._playing.append(asyncio.create_task(course.play(self._http)))
        return len(self.courses) - 1

    async def _connections(self, _app: web.Application) -> Any:
        async with session() as self._http:
            yield
            # Answers that nobody will read any more: play() itself would wait for them.
            for course in self.courses:
                course.abandon()
            for task in self._playing:
                task.cancel()
            await asyncio.gather(*self._playing, return_exceptions=True)

    async def _start(self, request: web.Request) -> web.Response:
        try:
            traffic = Traffic.model_validate_json(await request.read())
            await self._await_service(traffic)
            number = self.start(traffic)
        except ValueError as error:
            return web.Response(status=400, text=f"{error}\n")
        return _json(self._state(number), status=201)

    async def _await_service(self, traffic: Traffic) -> None:
        assert self._http is not None, "the application is not running"
        if traffic.patience and not await healthy(self._http, traffic.url, traffic.patience):
            raise web.HTTPGatewayTimeout(text=f"{traffic.url}/health does not answer in {traffic.patience:g} s\n")

    async def _stop(self, request: web.Request) -> web.Response:
        number = self._number(request)
        self._playing[number].cancel()
        return _json(self._state(number))

    async def _summary(self, request: web.Request) -> web.Response:
        number = self._number(request)
        begin, end = _number(request, "begin"), _number(request, "end")

        def asked_for(record: Record) -> bool:
            return (begin is None or begin <= record.scheduled) and (end is None or record.scheduled < end)

        records = filter(asked_for, self.courses[number].records)
        bounds = Bounds(_number(request, "ttft"), _number(request, "tpot"))
        return _json({**self._state(number), **summarise(records, bounds)})

    async def _requests(self, request: web.Request) -> web.Response:
        records = self.courses[self._number(request)].records
        lines = b"".join(orjson.dumps(record.as_json()) + b"\n" for record in records)
        return web.Response(body=lines, content_type="application/jsonl")

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    def _number(self, request: web.Request) -> int:
        number = _number(request, "course")
        index = len(self.courses) - 1 if number is None else int(number)
        if not 0 <= index < len(self.courses):
            raise web.HTTPNotFound(text=f"there are {len(self.courses)} courses, counted from 0\n")
        return index

    def _state(self, number: int) -> dict[str, Any]:
        course = self.courses[number]
        return {
            "course": number,
            "begun_at": course.begun_at,
            "now": course.now(),
            "duration": course.trace.duration,
            "planned": len(course.trace),
            "in_flight": course.in_flight,
            "finished": course.finished,
        }


def _number(request: web.Request, name: str) -> float | None:
    text = request.query.get(name)
    if text is None:
        return None
    try:
        return float(text)
    except ValueError as error:
        raise web.HTTPBadRequest(text=f"{name} must be a number, got {text!r}\n") from error


def _json(body: dict[str, Any], status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(body) + b"\n", status=status, content_type="application/json")
