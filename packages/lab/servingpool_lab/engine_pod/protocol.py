"""The part of OpenAI's HTTP interface that a replay needs, in vLLM 0.32's words."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import orjson

Json = dict[str, Any]

DONE = b"data: [DONE]\n\n"
WORD = " token"
"""The text of every token."""


class RequestError(Exception):
    """A request that is refused: an HTTP status and OpenAI's error object."""

    def __init__(self, status: int, kind: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = error_body(status, kind, message, param)


def error_body(status: int, kind: str, message: str, param: str | None = None) -> Json:
    """OpenAI's error object."""
    return {"error": {"message": message, "type": kind, "param": param, "code": status}}


class Endpoint(StrEnum):
    """What was asked, by its path."""

    COMPLETION = "/v1/completions"
    CHAT = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Question:
    """One request, as far as the engine model depends on it."""

    endpoint: Endpoint
    model: str
    prompt_tokens: int
    output_tokens: int
    stream: bool
    include_usage: bool
    identifier: str = field(default_factory=lambda: uuid.uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))

    @staticmethod
    def read(endpoint: Endpoint, raw: bytes, models: tuple[str, ...], max_model_len: int) -> Question:
        """From the body of a request: a word of the prompt counts as a token. Raises RequestError."""
        try:
            body = orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            raise _bad(f"Invalid JSON: {error}") from error
        if not isinstance(body, dict):
            raise _bad("The body must be a JSON object.")
        model = body.get("model") or models[0]
        if model not in models:
            raise RequestError(404, "NotFoundError", f"The model `{model}` does not exist.", "model")
        if body.get("n", 1) != 1:
            raise _bad("n must be 1: this emulated engine gives one answer.", "n")
        prompt = _chat_length(body) if endpoint is Endpoint.CHAT else _prompt_length(body.get("prompt"))
        if prompt >= max_model_len:
            raise _bad(
                f"This model's maximum context length is {max_model_len} tokens. However, your request has "
                f"{prompt} input tokens. Please reduce the length of the input messages.",
                "input_tokens",
            )
        return Question(
            endpoint=endpoint,
            model=str(model),
            prompt_tokens=prompt,
            output_tokens=_max_tokens(body, endpoint, max_model_len - prompt),
            stream=bool(body.get("stream", False)),
            include_usage=bool((body.get("stream_options") or {}).get("include_usage", False)),
        )

    def token_event(self) -> bytes:
        """The event of one token: the same for each, so it is made once an answer."""
        return _event(self._chunk(self._piece(WORD), None))

    def opening(self) -> bytes:
        """What precedes the first token: a chat names the role."""
        return _event(self._chunk({"role": "assistant", "content": ""}, None)) if self._is_chat else b""

    def closing(self, output_tokens: int) -> bytes:
        """What follows the last token: why it ended, the usage where it was asked for, and the end mark."""
        return _event(self._chunk(self._piece(""), "length")) + self._parting(output_tokens)

    def nothing(self) -> bytes:
        """The whole stream of a request that an engine which drains does not take in."""
        return self._parting(0)

    def broken(self, message: str) -> bytes:
        """How a stream ends whose engine has died: HTTP 200 was said long ago."""
        return _event(error_body(500, "InternalServerError", message)) + DONE

    def answer(self, output_tokens: int, finish_reason: str | None = "length") -> Json:
        """The answer in one piece; null as `finish_reason` says that it was never begun."""
        text = WORD * output_tokens
        piece: Json = {"message": {"role": "assistant", "content": text}} if self._is_chat else {"text": text}
        choice = {"index": 0, **piece, "logprobs": None, "finish_reason": finish_reason, "stop_reason": None}
        shape = "chat.completion" if self._is_chat else "text_completion"
        return {**self._head(shape), "choices": [choice], "usage": self._usage(output_tokens)}

    @property
    def _is_chat(self) -> bool:
        return self.endpoint is Endpoint.CHAT

    def _parting(self, output_tokens: int) -> bytes:
        if not self.include_usage:
            return DONE
        return _event({**self._chunk(None, None), "choices": [], "usage": self._usage(output_tokens)}) + DONE

    def _piece(self, text: str) -> Json:
        return {"content": text} if self._is_chat else {"text": text}

    def _chunk(self, piece: Json | None, finish_reason: str | None) -> Json:
        shape = "chat.completion.chunk" if self._is_chat else "text_completion"
        content: Json = {"delta": piece} if self._is_chat else piece or {}
        choice = {"index": 0, **content, "logprobs": None, "finish_reason": finish_reason}
        return {**self._head(shape), "choices": [choice]}

    def _head(self, shape: str) -> Json:
        prefix = "chatcmpl" if self._is_chat else "cmpl"
        return {"id": f"{prefix}-{self.identifier}", "object": shape, "created": self.created, "model": self.model}

    def _usage(self, output_tokens: int) -> Json:
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + output_tokens,
            "completion_tokens": output_tokens,
        }


def _bad(message: str, param: str | None = None) -> RequestError:
    return RequestError(400, "BadRequestError", message, param)


def _event(data: Json) -> bytes:
    return b"data: " + orjson.dumps(data) + b"\n\n"


def _prompt_length(prompt: Any) -> int:
    match prompt:
        case str():
            return max(1, len(prompt.split()))
        case [int(), *_]:
            return len(prompt)
        case [str(text)]:
            return max(1, len(text.split()))
    raise _bad("prompt must be one text, or one list of token ids.", "prompt")


def _chat_length(body: Json) -> int:
    match body.get("messages"):
        case [dict(), *_] as messages:
            return max(1, sum(_words(message) for message in messages if isinstance(message, dict)))
    raise _bad("messages must be a list of messages.", "messages")


def _words(message: Json) -> int:
    match message.get("content"):
        case str(text):
            return len(text.split())
        case list(parts):
            return sum(len(str(part.get("text", "")).split()) for part in parts if isinstance(part, dict))
    return 0


def _max_tokens(body: Json, endpoint: Endpoint, room: int) -> int:
    asked = body.get("max_completion_tokens") or body.get("max_tokens")
    if asked is None:
        # OpenAI's default for completions; a chat may go on to the end of the context.
        asked = room if endpoint is Endpoint.CHAT else 16
    if not isinstance(asked, int) or asked < 1:
        raise _bad(f"max_tokens must be at least 1, got {asked}.", "max_tokens")
    return min(asked, room)
