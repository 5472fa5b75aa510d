"""Bounded text that is cut rather than refused."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

MOST = 1_024


def _cut(text: str) -> str:
    return text if len(text) <= MOST else text[: MOST - 1] + "…"


# Cut, not refused: a status that the API server rejects for one long sentence is not written at all.
Text = Annotated[str, AfterValidator(_cut), Field(json_schema_extra={"maxLength": MOST})]
"""A sentence of at most 1024 characters; what is longer ends in an ellipsis."""
