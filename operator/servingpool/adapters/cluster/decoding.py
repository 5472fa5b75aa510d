"""JSON of the API server, whatever is stored there: what is nested deeper than anything that is read becomes null.

A tenant may nest an object's `managedFields` as deep as the API server takes. Decoders of Python recurse, and refuse
the whole list, or end the watch, that such an object is in.
"""

from __future__ import annotations

import re
from typing import Any

import orjson

DEEPEST = 100
"""Levels that are read. No field that anybody reads here is below the twentieth."""
TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[{\]}]', re.DOTALL)
"""A text, or the beginning or the end of a list or an object."""


def loads(body: bytes) -> Any:
    """The value in JSON. ValueError where it is no JSON."""
    try:
        found = orjson.loads(body)
        orjson.dumps(found)  # TypeError beyond 254 levels: the depth at the speed of C, without recursion in Python
    except (TypeError, ValueError):
        return orjson.loads(_shallow(body))
    return found


def _shallow(body: bytes) -> bytes:
    """The same JSON with null for each list and object below `DEEPEST`."""
    parts: list[bytes] = []
    depth = kept = 0
    for found in TOKEN.finditer(body):
        if found[0] in {b"[", b"{"}:
            depth += 1
            if depth == DEEPEST + 1:
                parts += [body[kept : found.start()], b"null"]
        elif found[0] in {b"]", b"}"}:
            if depth == DEEPEST + 1:
                kept = found.end()
            depth -= 1
    return b"".join([*parts, body[kept:]])
