from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web
from pydantic import ValidationError

from servingpool_lab.load_generator.asking import session
from servingpool_lab.load_generator.course import Course
from servingpool_lab.load_generator.record import Record
from servingpool_lab.load_generator.server import LoadGenerator
from servingpool_lab.load_generator.summary import Bounds, summarise
from servingpool_lab.load_generator.traffic import Traffic

from ..adapters.cluster.virtual_time import VirtualLoop, now  # noqa: TID252
from .engine_pods import MODEL, engine_pod, eventually, listening, samples

TOKEN = b'data: {"choices":[{"text":" a"}]}\n\n'
END = b'data: {"choices":[{"text":"","finish_reason":"length"}]}\n\n'
ERROR = b'data: {"error":{"message":"gone","code":500}}\n\n'
DONE = b"data: [DONE]\n\n"


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Courses go by the event loop's virtual time."""
    monkeypatch.setattr("servingpool_lab.load_generator.course.time", SimpleNamespace(time=time.time, monotonic=now))


def traffic(url: str, rates: str = "50x0.4", **more: Any) -> Traffic:
    return Traffic(url=url, model=MODEL, rates=rates, **{"prompt_tokens": 20, "output_tokens": 5, **more})


async def play(asked: Traffic) -> Course:
    course = Course(asked)
    async with session() as http:
        await course.play(http)
    return course


def answering(*chunks: bytes, status: int = 200, pause: float = 0.0, cut: bool = False) -> web.Application:
    """A server that says this to every request."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=status)
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
            await asyncio.sleep(pause)
        if cut:
            assert request.transport is not None
            request.transport.abort()
        return response

    app = web.Application()
    app.router.add_post("/v1/completions", answer)
    return app


async def test_what_the_client_measures_is_what_the_engine_publishes() -> None:
    async with engine_pod() as pod:
        course = await play(traffic(pod.url, "15x2", prompt_tokens=400, output_tokens=20))
        page = await samples(pod.url)
    assert {record.outcome for record in course.records} == {"ok"}
    assert {record.tokens for record in course.records} == {20}
    for ours, theirs in (("ttft", "time_to_first_token"), ("tpot", "request_time_per_output_token")):
        mean = sum(getattr(record, ours) for record in course.records) / len(course.records)
        assert page[f"vllm:{theirs}_seconds_count"] == len(course.records)
        published = page[f"vllm:{theirs}_seconds_sum"] / len(course.records)
        assert mean == pytest.approx(published, abs=1e-3), ours


async def test_requests_leave_at_their_times_however_slow_the_answers_are() -> None:
    async with listening(answering(TOKEN, pause=30.0), handler_cancellation=True) as url:
        course = await play(traffic(url, "100x0.5", timeout=1.0))
    assert course.now() < 2.0
    assert {record.outcome for record in course.records} == {"timeout"}
    assert len(course.records) == len(course.trace) > 30
    # Nobody waited for anybody: each left when the trace says so.
    assert summarise(course.records, Bounds())["lag"]["max"] < 1e-3
    assert all(record.tokens == 1 and record.ttft is not None for record in course.records)


async def test_where_the_generator_is_late_the_user_has_waited_all_the_same() -> None:
    async def hold_up() -> None:
        await asyncio.sleep(0.05)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.hold_up(0.5)

    async with listening(answering(TOKEN, END, DONE)) as url:
        held = asyncio.create_task(hold_up())
        course = await play(traffic(url, "40x0.6"))
        await held
    late = [record for record in course.records if 0.1 < record.scheduled < 0.3]
    assert late
    for record in late:
        assert record.sent is not None
        assert record.sent - record.scheduled > 0.2
        assert record.ttft is not None
        assert record.ttft > record.sent - record.scheduled
    assert summarise(course.records, Bounds())["lag"]["max"] > 0.2


async def test_every_request_has_a_connection_of_its_own() -> None:
    peers: list[Any] = []

    async def answer(request: web.Request) -> web.Response:
        assert request.transport is not None
        peers.append(request.transport.get_extra_info("peername"))
        return web.Response(body=TOKEN + END + DONE)

    app = web.Application()
    app.router.add_post("/v1/completions", answer)
    async with listening(app) as url:
        course = await play(traffic(url))
    assert len(set(peers)) == len(course.records) > 5


@pytest.mark.parametrize(
    ("server", "outcome"),
    [
        pytest.param(answering(TOKEN, END, DONE), "ok", id="answered"),
        pytest.param(answering(DONE), "cut", id="HTTP 200 and no word"),
        pytest.param(answering(TOKEN, DONE), "cut", id="tokens and no reason to end"),
        pytest.param(answering(END, DONE), "cut", id="a reason to end and no token"),
        pytest.param(answering(b"gone", status=500), "http_500", id="turned away"),
        pytest.param(answering(TOKEN, ERROR, DONE), "cut", id="an error inside HTTP 200"),
        pytest.param(answering(TOKEN), "cut", id="the end without its mark"),
        pytest.param(answering(TOKEN, cut=True), "cut", id="the connection breaks amid the stream"),
        pytest.param(answering(cut=True), "cut", id="the connection breaks before a token"),
        pytest.param(answering(b"data: {\n\n", DONE), "cut", id="no JSON"),
        pytest.param(answering(b'data: {"choices":[1]}\n\n', DONE), "cut", id="JSON that nobody foresaw"),
        pytest.param(answering(TOKEN, pause=9.0), "timeout", id="never ends"),
    ],
)
async def test_each_way_to_end_has_its_name(server: web.Application, outcome: str) -> None:
    async with listening(server, handler_cancellation=True) as url:
        course = await play(traffic(url, "30x0.1", timeout=0.5))
    assert {record.outcome for record in course.records} == {outcome}
    assert all(record.ended is not None for record in course.records)


async def test_nobody_there_is_refused() -> None:
    async with listening(answering()) as url:
        pass
    course = await play(traffic(url, "30x0.2"))
    assert {record.outcome for record in course.records} == {"refused"}


def record(number: int, *, ttft: float = 1.0, tpot: float = 0.1, outcome: str | None = "ok") -> Record:
    first = number + ttft
    last = first + 4 * tpot
    return Record(number, float(number), 10, 5, float(number) + 0.01, first, last, last, tokens=5, outcome=outcome)


def test_attainment_counts_lost_requests_as_missed_and_those_in_flight_not_at_all() -> None:
    found = summarise(
        [
            *(record(0), record(1, ttft=3.0), record(2, tpot=0.4)),
            *(record(3, outcome="cut"), record(4, outcome="http_500"), record(5, outcome=None)),
        ],
        Bounds(ttft=2.0, tpot=0.3),
    )
    assert (found["requests"], found["ended"], found["lost"], found["met"]) == (6, 5, 2, 1)
    assert found["attainment"] == pytest.approx(0.2)
    assert found["outcomes"] == {"ok": 3, "cut": 1, "http_500": 1}
    assert found["lag"]["max"] == pytest.approx(0.01)


def test_rates_are_stages_one_after_the_other() -> None:
    trace = traffic("http://x", "2x100,0x50,10x100", seed=3).requests()
    stages = [len(trace.between(*span)) for span in ((0, 100), (100, 150), (150, 250))]
    assert stages == [pytest.approx(200, rel=0.3), 0, pytest.approx(1000, rel=0.15)]
    assert trace.duration == 250
    again = traffic("http://x", "2x100,0x50,10x100", seed=3).requests()
    assert again.arrival.tolist() == trace.arrival.tolist()
    assert traffic("http://x", "2x100", seed=4).requests().arrival[0] != trace.arrival[0]


@pytest.mark.parametrize(
    "wrong", [{}, {"rates": "2"}, {"rates": "2x10", "trace": "azure-conv"}, {"trace": "other"}, {"rates": "-1x3"}]
)
def test_traffic_that_cannot_be_meant_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        Traffic.model_validate({"url": "http://x", "model": "m", **wrong})


@pytest.fixture
async def generator() -> AsyncIterator[tuple[str, aiohttp.ClientSession]]:
    async with listening(LoadGenerator().application()) as url, aiohttp.ClientSession() as http:
        yield url, http


async def post(http: aiohttp.ClientSession, url: str, asked: Traffic) -> dict[str, Any]:
    async with http.post(f"{url}/traffic", data=asked.model_dump_json(exclude_none=True)) as answer:
        assert answer.status == 201
        found: dict[str, Any] = await answer.json()
        return found


async def get(http: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    async with http.get(url) as answer:
        assert answer.status == 200
        found: dict[str, Any] = await answer.json()
        return found


async def finished(http: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    """The summary at `url` once its course is over."""
    async with asyncio.timeout(60):
        while not (found := await get(http, url))["finished"]:  # noqa: ASYNC110, over HTTP
            await asyncio.sleep(0.05)
    return found


async def test_courses_are_started_and_read_over_http(generator: tuple[str, aiohttp.ClientSession]) -> None:
    url, http = generator
    async with engine_pod() as pod:
        started = await post(http, url, traffic(pod.url, "30x0.5"))
        other = await post(http, url, traffic(pod.url, "10x0.5", seed=1))
        assert (started["course"], other["course"]) == (0, 1)
        found = await finished(http, f"{url}/summary?course=0&ttft=5&tpot=5")
        async with http.get(f"{url}/requests?course=0") as answer:
            records = [orjson.loads(line) for line in (await answer.read()).splitlines()]
    assert found["ended"] == found["planned"] == len(records)
    assert (found["attainment"], found["lost"]) == (1.0, 0)
    early = await get(http, f"{url}/summary?course=0&end=0.25")
    late = await get(http, f"{url}/summary?course=0&begin=0.25")
    assert early["requests"] + late["requests"] == len(records)
    assert early["requests"] == sum(record["scheduled"] < 0.25 for record in records)
    assert all(record["outcome"] == "ok" and record["ttft"] > 0 for record in records)


async def test_a_course_that_is_stopped_sends_no_more_and_waits_for_what_is_in_flight(
    generator: tuple[str, aiohttp.ClientSession],
) -> None:
    url, http = generator
    async with engine_pod() as pod:
        await post(http, url, traffic(pod.url, "20x600", output_tokens=30))
        await eventually(lambda: pod.replica.in_flight > 0)
        async with http.post(f"{url}/stop") as answer:
            assert answer.status == 200
        found = await finished(http, f"{url}/summary")
        await asyncio.sleep(60.0)
        assert (await get(http, f"{url}/summary"))["requests"] == found["requests"]
    assert found["outcomes"] == {"ok": found["requests"]}


async def test_a_course_waits_for_a_service_that_does_not_answer_yet(
    generator: tuple[str, aiohttp.ClientSession],
) -> None:
    url, http = generator
    async with engine_pod() as pod:
        there = pod.url
        await post(http, url, traffic(there, "20x0.2", patience=5.0))
    impatient = traffic(there, patience=0.3).model_dump_json(exclude_none=True)
    async with http.post(f"{url}/traffic", data=impatient) as answer:
        assert answer.status == 504
    await finished(http, f"{url}/summary?course=0")
