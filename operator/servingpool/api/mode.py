"""The modes of a pool."""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    """What the operator does with its decisions."""

    AUTO = "Auto"
    RECOMMEND = "Recommend"
    PAUSED = "Paused"
