"""Points in time as Kubernetes writes them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import Field, PlainSerializer, WithJsonSchema


def write(at: datetime) -> str:
    """RFC 3339 in UTC, whole seconds: metav1.Time's form."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def from_unix(seconds: float) -> datetime:
    """Unix time in seconds, as a point in time."""
    return datetime.fromtimestamp(seconds, UTC)


Time = Annotated[
    datetime,
    Field(strict=False),
    PlainSerializer(write, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
