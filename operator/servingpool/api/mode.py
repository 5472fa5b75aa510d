"""The modes of a pool."""

from __future__ import annotations

from enum import StrEnum
from typing import Any


class Mode(StrEnum):
    """What the operator does with its decisions."""

    AUTO = "Auto"
    RECOMMEND = "Recommend"
    PAUSED = "Paused"

    @classmethod
    def found(cls, spec: Any) -> Mode:
        """The mode in a spec as the API server stores it, which may not be valid; Auto if it names none."""
        named = spec.get("mode") if isinstance(spec, dict) else None
        return next((mode for mode in cls if mode.value == named), cls.AUTO)
