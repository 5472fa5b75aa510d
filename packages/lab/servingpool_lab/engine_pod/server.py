"""vLLM's HTTP server, as far as clients, probes and Prometheus use it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from aiohttp import web

from servingpool_lab.emulator.exposition import CONTENT_TYPE, Server, render
from servingpool_lab.emulator.quirks import AS_VLLM, PageQuirks
from servingpool_lab.engine_pod.protocol import Endpoint, Question, RequestError, error_body
from servingpool_lab.engine_pod.replica import EngineStoppedError, Replica, Stream

MAX_BODY = 64 * 1024**2
EVENT_STREAM = {"Content-Type": "text/event-stream; charset=utf-8"}


@dataclass(slots=True)
class EngineServer:
    """Answers for one replica that has loaded."""

    replica: Replica
    models: tuple[str, ...]
    """Names that it answers to; metrics carry the first."""
    draining: bool = False
    """From SIGTERM on what came before is finished; what comes now gets HTTP 200 without a token or a finish_reason, as
    measured on vLLM 0.32 (tests/vllm/test_stopping.py). `/health` stays 200, but for engines that say that they end."""
    quirks: PageQuirks = AS_VLLM
    """Of its metrics page."""
    started_at: float = field(default_factory=time.time)

    def application(self) -> web.Application:
        """Routes: completions, chat completions, models, health, metrics, version."""
        app = web.Application(client_max_size=MAX_BODY)
        app.add_routes(
            [
                *(web.post(endpoint.value, self._ask) for endpoint in Endpoint),
                web.get("/v1/models", self._list_models),
                web.get("/health", self._health),
                web.get("/metrics", self._metrics),
                web.get("/version", self._version),
            ]
        )
        return app

    async def _ask(self, request: web.Request) -> web.StreamResponse:
        try:
            question = Question.read(
                Endpoint(request.path), await request.read(), self.models, self.replica.profile.max_model_len
            )
        except RequestError as error:
            return web.json_response(error.body, status=error.status)
        # Not before: SIGTERM may come while the body does, and a request taken in then would be cut.
        if self.draining:
            return await self._tell_nothing(request, question)
        stream = self.replica.submit(question.prompt_tokens, question.output_tokens)
        try:
            if question.stream:
                return await self._tell(request, question, stream)
            return await self._tell_at_once(question, stream)
        finally:
            # Also where the client has gone: aiohttp then cancels the handler.
            self.replica.abort(stream)

    async def _tell(self, request: web.Request, question: Question, stream: Stream) -> web.StreamResponse:
        response = web.StreamResponse(headers=EVENT_STREAM)
        await response.prepare(request)
        event, before = question.token_event(), question.opening()
        try:
            async for tokens in stream:
                await response.write(before + event * tokens)
                before = b""
            await response.write(question.closing(stream.given))
        except EngineStoppedError as error:
            await response.write(question.broken(str(error)))
        await response.write_eof()
        return response

    async def _tell_at_once(self, question: Question, stream: Stream) -> web.Response:
        try:
            async for _ in stream:
                pass
        except EngineStoppedError as error:
            return web.json_response(error_body(500, "InternalServerError", str(error)), status=500)
        return web.json_response(question.answer(stream.given))

    async def _tell_nothing(self, request: web.Request, question: Question) -> web.StreamResponse:
        if not question.stream:
            return web.json_response(question.answer(0, finish_reason=None))
        response = web.StreamResponse(headers=EVENT_STREAM)
        await response.prepare(request)
        await response.write_eof(question.nothing())
        return response

    async def _list_models(self, _request: web.Request) -> web.Response:
        length = self.replica.profile.max_model_len
        models = [
            {
                "id": name,
                "object": "model",
                "created": int(self.started_at),
                "owned_by": "vllm",
                "max_model_len": length,
            }
            for name in self.models
        ]
        return web.json_response({"object": "list", "data": models})

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response(status=503 if self.draining and self.replica.profile.conduct.finishes_when_stopped else 200)

    async def _metrics(self, _request: web.Request) -> web.Response:
        server = Server(self.models[0], self.replica.profile, self.started_at, self.quirks)
        return web.Response(body=render(server, self.replica.metrics()), headers={"Content-Type": CONTENT_TYPE})

    async def _version(self, _request: web.Request) -> web.Response:
        return web.json_response({"version": "0.32.0"})
