"""What is asked for: whom to ask, when, and for how many tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from servingpool_simulation.traces import Trace, azure2023_code, azure2023_conv, poisson

TRACES: Mapping[str, Callable[[], Trace]] = MappingProxyType(
    {"azure-conv": azure2023_conv, "azure-code": azure2023_code}
)

_STAGE = r"\d+(\.\d+)?x\d+(\.\d+)?"


class Traffic(BaseModel):
    """One course of traffic: Poisson arrivals by `rates`, or a part of a shipped `trace`. Times are seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str
    """Of the service, without a path: `http://chat.default:8000`."""
    model: str
    endpoint: Literal["/v1/completions", "/v1/chat/completions"] = "/v1/completions"
    timeout: Annotated[float, Field(gt=0)] = 120.0
    """From sending to the last token."""
    patience: Annotated[float, Field(ge=0)] = 0.0
    """How long the service may take until its /health answers; the course begins then. 0 begins at once.

    A pod is Ready some seconds before the last node's Service rules know it.
    """
    seed: Annotated[int, Field(ge=0)] = 0
    """Of the arrivals."""

    rates: Annotated[str, Field(pattern=rf"^{_STAGE}(,{_STAGE})*$")] | None = None
    """Requests/s x seconds, in turn: `2x120,6x180`."""
    prompt_tokens: Annotated[int, Field(ge=1)] = 1500
    output_tokens: Annotated[int, Field(ge=1)] = 40

    trace: Literal["azure-conv", "azure-code"] | None = None
    begin: Annotated[float, Field(ge=0)] = 0.0
    """Where the part of the trace begins."""
    seconds: Annotated[float, Field(gt=0)] | None = None
    """How long it is; None goes to the end."""
    share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Of the trace's requests, drawn one by one."""
    token_scale: Annotated[float, Field(gt=0)] = 1.0
    """What the trace's lengths are multiplied by."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.rates is None) == (self.trace is None):
            raise ValueError("give either rates or trace")
        return self

    def requests(self) -> Trace:
        """The arrivals with their lengths. Raises ValueError where there is none."""
        trace = self._by_rates(self.rates) if self.rates else self._by_trace(self.trace or "")
        if not len(trace):
            raise ValueError("this traffic has no request in it")
        return trace

    def _by_rates(self, rates: str) -> Trace:
        whole: Trace | None = None
        for number, stage in enumerate(rates.split(",")):
            rate, seconds = map(float, stage.split("x"))
            part = poisson(
                rates,
                [rate],
                seconds,
                prompt=self.prompt_tokens,
                output=self.output_tokens,
                seed=self.seed * 1000 + number,
            )
            whole = part if whole is None else whole.then(part)
        assert whole is not None
        return whole

    def _by_trace(self, name: str) -> Trace:
        whole = TRACES[name]()
        part = whole.between(self.begin, whole.duration if self.seconds is None else self.begin + self.seconds)
        kept = np.random.default_rng(self.seed).random(len(part)) < self.share
        prompt, output = (
            np.maximum(1, np.rint(column[kept] * self.token_scale)).astype(np.int64)
            for column in (part.prompt, part.output)
        )
        return Trace(name, part.arrival[kept], prompt, output, part.duration)
