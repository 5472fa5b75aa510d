"""The form in which a gateway's metrics are described: data, shipped in YAML files or given in the configuration."""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from typing import Annotated, Self

from pydantic import Field, model_validator

from servingpool.adapters.prometheus.engines.profile import (
    EngineMetrics,
    Figure,
    Label,
    LabelValues,
    Section,
    Series,
    check_forms,
)


class GatewayFigure(StrEnum):
    """Figures of `GatewayMetrics` that are read."""

    QUEUE = "queue"
    ARRIVALS = "arrivals"
    TIME_TO_FIRST_TOKEN = "timeToFirstToken"  # noqa: S105, no password
    IN_FLIGHT = "inFlight"
    GENERATION_TOKENS = "generationTokens"
    PROMPT_TOKENS = "promptTokens"
    INTER_TOKEN_LATENCY = "interTokenLatency"  # noqa: S105
    UNSERVED = "unserved"
    """Tries of requests that met no engine."""
    ALIVE = "alive"
    """A series of whatever value that is there without requests too; of a gateway that holds them, if it may do so."""

    @property
    def field(self) -> str:
        """Name of the figure in `GatewayMetrics`."""
        return self.name.lower()


READ_AS = {
    GatewayFigure.QUEUE: Figure.WAITING,
    GatewayFigure.ARRIVALS: Figure.BEGUN,
    GatewayFigure.TIME_TO_FIRST_TOKEN: Figure.TIME_TO_FIRST_TOKEN,
    GatewayFigure.IN_FLIGHT: Figure.RUNNING,
    GatewayFigure.GENERATION_TOKENS: Figure.GENERATION_TOKENS,
    GatewayFigure.PROMPT_TOKENS: Figure.PROMPT_TOKENS,
    GatewayFigure.INTER_TOKEN_LATENCY: Figure.INTER_TOKEN_LATENCY,
    GatewayFigure.UNSERVED: Figure.ADMISSION_REJECTIONS,
    GatewayFigure.ALIVE: Figure.CACHED_PROMPT_TOKENS,
}
"""A gateway's pod is read as an engine's is, with these figures."""
AT_ZERO = (GatewayFigure.ARRIVALS, GatewayFigure.QUEUE, GatewayFigure.UNSERVED)
"""Figures that may tell of requests while there is no engine."""
METERING = tuple(one for one in READ_AS if one not in {GatewayFigure.ALIVE, *AT_ZERO} or one is GatewayFigure.ARRIVALS)
"""Figures that replace those of an engine that exports nothing."""


class FirstRequest(StrEnum):
    """Fate of a request that meets no engine."""

    HOLDS = "Holds"
    """The request waits for an engine."""
    RETRIES = "Retries"
    """The request is tried again for a while, and then refused."""
    REJECTS = "Rejects"
    """The request is refused at once."""


class AtZero(Section):
    """Behaviour of the gateway while there is no engine, and the figures that it shows then."""

    first_request: Annotated[FirstRequest, Field(strict=False)]
    """Holds, Retries or Rejects."""
    holds_for: Annotated[float, Field(ge=0, le=3600)] | None = None
    """Seconds that it holds a request, or retries it, by default; None where that is not known."""
    shows: tuple[GatewayFigure, ...] = ()
    """Figures that tell of a request then: arrivals, queue or unserved. One of them must be there."""
    note: str = ""
    """Note for readers, such as the setting that makes the gateway hold requests for longer."""


class GatewayProfile(Section):
    """Series of a gateway that hold each figure. A change of names is another entry in a figure's list."""

    doc: str = ""
    """Figures that the gateway tells, and figures that it does not, in a line."""
    versions: str = ""
    """Versions of the gateway that were compared with this."""
    model_label: Label | None = None
    """Label with the served model's name. None: all series of the gateway count, so a pool must name its workload."""
    sum_over: tuple[Label, ...] = ()
    """Labels of one pod's series that are added up. Series of one scrape that differ in labels that no list names are
    added up too, unless they are gauges: such gauges are unknown, since they may be copies."""
    copies_by: tuple[Label, ...] = ()
    """Labels of one pod's series that are copies of one figure, such as the process: the greatest counts."""
    excluded: LabelValues = Field(default_factory=dict)
    """Label values whose series are no part of any figure."""
    at_zero: AtZero | None = None
    """Behaviour while there is no engine; None where that is not known."""
    figures: Annotated[dict[GatewayFigure, tuple[Series, ...]], Field(min_length=1)]
    """Series by figure, in order of preference: the first that a pod exposes counts."""

    @model_validator(mode="after")
    def _forms(self) -> Self:
        check_forms(self.figures, {GatewayFigure.INTER_TOKEN_LATENCY})
        ttft = self.figures.get(GatewayFigure.TIME_TO_FIRST_TOKEN, ())
        if any(one.labels or not one.name for one in ttft):
            raise ValueError("figures.timeToFirstToken must have a name and no labels: use excluded")
        if any(one.excluded for one in ttft) and GatewayFigure.ARRIVALS not in self.figures:
            raise ValueError("figures.arrivals must be there too: figures.timeToFirstToken leaves requests out")
        shown = () if self.at_zero is None else self.at_zero.shows
        if any(one not in self.figures or one not in AT_ZERO for one in shown):
            raise ValueError(f"atZero.shows must name {', '.join(AT_ZERO)} that figures has, got {', '.join(shown)}")
        return self

    @property
    def meters(self) -> bool:
        """Whether it counts all that decisions need, so that an engine behind it may export nothing."""
        return all(figure in self.figures for figure in METERING)

    @property
    def held_have_arrived(self) -> bool:
        """Whether arrivals count a request while the queue holds it, by a sum of both."""
        queues = {one.name for one in self.figures.get(GatewayFigure.QUEUE, ())}
        return any(queues.intersection(one.sum) for one in self.figures.get(GatewayFigure.ARRIVALS, ()))

    @cached_property
    def metrics(self) -> EngineMetrics:
        """The figures in the form that queries are written from."""
        return EngineMetrics(
            silent="the gateway exports no metrics",
            model_label=self.model_label,
            sum_over=self.sum_over,
            copies_by=self.copies_by,
            excluded=self.excluded,
            figures={READ_AS[figure]: series for figure, series in self.figures.items()},
        )
