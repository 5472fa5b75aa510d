"""Bounded text that is cut rather than refused."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


# Cut, not refused: a status that the API server rejects for one long sentence is not written at all.
Text = Annotated[str, AfterValidator(lambda text: _cut(text, 1_024)), Field(json_schema_extra={"maxLength": 1_024})]
"""A sentence of at most 1024 characters; what is longer ends in an ellipsis."""
Sentence = Annotated[str, AfterValidator(lambda text: _cut(text, 512)), Field(json_schema_extra={"maxLength": 512})]
"""Likewise of at most 512, where there are many."""
