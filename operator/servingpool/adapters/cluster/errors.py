"""The API server's answers, decoded, and its failures by kind, in our own words.

Nothing above this layer sees a vendor's exception. JSON is decoded whatever is stored there: what is nested deeper than
anything that is read becomes null. A tenant may nest an object's `managedFields` as deep as the API server takes.
Decoders of Python recurse, and refuse the whole list, or end the watch, that such an object is in.
"""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

import orjson

from servingpool.catalogue.plain import plain

UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT, INVALID = 401, 403, 404, 409, 422
"""HTTP statuses that have a kind of their own."""
OK, REFUSED, TROUBLE = 200, 400, 500
"""HTTP statuses of an answer, and those from which it is a refusal, and a server is in trouble."""

LONGEST_SAID = 400
"""Characters of an API server's message that are told. Webhooks and policies write them, too."""

DEEPEST = 100
"""Levels that are read. No field that anybody reads here is below the twentieth."""
TOKEN = re.compile(rb'(?:[^"\[\]{}]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"?|\[\]|\{\})*+([\[{\]}])?', re.DOTALL)
"""The beginning or the end of a list or an object that is not empty, with what is before it: in linear time, whatever
breaks off. A match for each text, too, took 0.7 s for 1.4 MB."""


LISTS = ("items", "versions", "groups", "resources")
"""Fields of which a list has one: of objects, or of what there is to be listed."""
HALF = re.compile(rb"(?<!\\)((?:\\\\)*)\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
"""Escapes of UTF-16 surrogates: one alone is no text."""


class ClusterError(Exception):
    """A request to the API server failed. The message is fit for a condition."""

    detail: str = ""
    """Further words of the system, such as "Connection refused": for the person whose request it was."""


class Conflict(ClusterError):
    """The object is no longer what the request assumed; look again and decide again."""


class NotFound(ClusterError):
    """The object does not exist."""

    near: tuple[str, ...] = ()
    """Those that may be meant, as a command takes them."""


class NotInstalled(NotFound):
    """The API server does not know the kind at all."""


class Unfit(NotFound):
    """The object cannot be used for this: it is of another kind."""


class Invalid(ClusterError):
    """Validation or an admission policy does not take the object."""

    fields: tuple[str, ...] = ()
    """Paths of the fields that the API server refuses, such as `status.conditions[3].type`, where it names them."""


class Unanswered(ClusterError):
    """No answer came, or the answer of a server in trouble: the request may have been carried out."""


class Unauthorized(ClusterError):
    """The API server does not know who asks: a token ran out, or a certificate is not its own."""


class Forbidden(ClusterError):
    """RBAC or an admission policy does not allow it."""


def kind_of(status: int) -> type[ClusterError]:
    """The kind of a refusal with this HTTP status."""
    kinds: dict[int, type[ClusterError]] = {
        CONFLICT: Conflict,
        NOT_FOUND: NotFound,
        FORBIDDEN: Forbidden,
        UNAUTHORIZED: Unauthorized,
    }
    return kinds.get(status, Unanswered if status >= TROUBLE else ClusterError)


# Functions: an exception in a variable of the frame that raises it is a cycle, which only the garbage collector ends.


def answer(
    what: str,
    status: int,
    reason: str | None,
    body: bytes,
    *,
    bare: type[ClusterError] = Conflict,
) -> dict[str, Any]:
    """The API server's answer to a request, decoded. ClusterError where it is a refusal, or no JSON object.

    `what` says what was tried, such as "scale Deployment chat/vllm"; `bare` is what a 422 without an object means.
    """
    if status >= REFUSED:
        raise refusal(what, status, reason, body, bare)
    try:
        found = loads(body)
    except ValueError as error:  # it broke off in the middle, or is not the API server's
        raise unreadable(what, "it is no JSON, perhaps a login page") from error
    if not isinstance(found, dict):
        raise unreadable(what, "it is no object")
    return found


def listed(found: Any) -> dict[str, Any] | None:
    """A list of objects, with metadata, or a part of discovery; None where it is neither."""
    with contextlib.suppress(AttributeError, KeyError, StopIteration, TypeError):
        part = next(name for name in LISTS if name in found)
        kept = [one for one in found[part] or () if part != "items" or isinstance(one["metadata"], dict)]
        return {**found, part: kept, "metadata": found.get("metadata") or {}}
    return None


def refusal(
    what: str, status: int, reason: str | None, body: bytes, bare: type[ClusterError] = Conflict
) -> ClusterError:
    """A refusal by kind, with the API server's own words."""
    told = _object(body)
    details = told.get("details")
    details = details if isinstance(details, dict) else {}
    causes = details.get("causes")
    fields = [one.get("field") for one in causes if isinstance(one, dict)] if isinstance(causes, list) else []
    kind, judged = kind_of(status), ""
    if status == NOT_FOUND and "name" not in details:  # no object is missing, but the path itself, so the kind
        kind, judged = NotInstalled, "the API server does not know this kind"
    elif status == INVALID and "name" in details and "metadata.uid" not in fields:
        kind, judged = Invalid, "rejected by an admission policy or by validation"
    elif status == INVALID:
        # A JSON patch whose `test` fails is a 422 as well, but names no object; and one on `metadata.uid` says that
        # another object has the name by now.
        kind = bare
    message = said(told.get("message"))
    parts = [f"Cannot {what}", f"{status} {reason or ''}".strip(), judged, message if message != reason else ""]
    refused = kind(": ".join(filter(None, parts)))
    if isinstance(refused, Invalid):
        refused.fields = tuple(str(field) for field in fields if field is not None)
    return refused


def unanswered(what: str, how: str, detail: str = "") -> Unanswered:
    """A request without an answer: `how` is fit for a condition, `detail` for the person whose request it was."""
    failed = Unanswered(f"Cannot {what}: the API server did not answer ({how})")
    failed.detail = detail
    return failed


def unreadable(what: str, detail: str) -> Unanswered:
    """An answer that no API server gives: the request may have been carried out."""
    failed = Unanswered(f"Cannot {what}: the answer cannot be read")
    failed.detail = detail
    return failed


def said(message: object) -> str:
    """An API server's message as it is told: bounded, without controls, and without a full stop."""
    text = message if isinstance(message, str) else ""
    cut = text if len(text) <= LONGEST_SAID else f"{text[: LONGEST_SAID - 1]}…"
    return plain(cut).strip().rstrip(".")


def why(error: BaseException) -> str:
    """The system's words for a failure of the network, such as "Connection refused"."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.strerror:
            return seen.strerror
        if isinstance(seen, TimeoutError):
            return "no answer in time"
        seen = seen.__cause__ or seen.__context__
    return type(error).__name__


def _object(body: bytes) -> dict[str, Any]:
    """The Status in an answer; empty where there is none."""
    try:
        found = loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def loads(body: bytes) -> Any:
    """The value in JSON. ValueError where it is no JSON."""
    try:
        found = orjson.loads(body)
        orjson.dumps(found)  # TypeError beyond 254 levels: the depth at the speed of C, without recursion in Python
    except (TypeError, ValueError):
        # Go copies `managedFields` unchecked, with bytes that are no UTF-8 and halves of characters.
        text = HALF.sub(rb"\1\\ufffd", _shallow(body)).decode(errors="replace")
        return json.loads(text, parse_constant=lambda _: None)
    return found


def _shallow(body: bytes) -> bytes:
    """The same JSON with null for each list and object below `DEEPEST`."""
    parts: list[bytes] = []
    depth = kept = 0
    for found in TOKEN.finditer(body):
        if found[1] in {b"[", b"{"}:
            depth += 1
            if depth == DEEPEST + 1:
                parts += [body[kept : found.start(1)], b"null"]
        elif found[1]:
            if depth == DEEPEST + 1:
                kept = found.end()
            depth -= 1
    return b"".join([*parts, body[kept:]])
