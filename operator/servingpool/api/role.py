"""Prefill and decode: the two roles that the targets of one pool may have."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import model_validator

from servingpool.api.part import Part
from servingpool.api.rule import Between

_NO_BOUND = "needs min (0.01 to 100), max (0.01 to 100) or both, got neither"


class Role(StrEnum):
    """What the engines of a target do for each request."""

    PREFILL = "prefill"
    DECODE = "decode"


class RoleRatio(Part):
    """Prefill replicas for each decode replica, the targets of a role counted together."""

    min: Annotated[float, Between(0.01, 100)] | None = None
    """Fewest prefill replicas for each decode replica, 0.01 to 100. Default: no limit."""
    max: Annotated[float, Between(0.01, 100)] | None = None
    """Most prefill replicas for each decode replica, 0.01 to 100. Default: no limit."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min is None and self.max is None:
            raise ValueError(_NO_BOUND)
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min must be at most max, got min {self.min:g} and max {self.max:g}")
        return self
