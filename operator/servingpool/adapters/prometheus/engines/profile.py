"""The form in which an engine's metrics are described: data, shipped in YAML files or given in the configuration."""

from __future__ import annotations

from collections.abc import Container, Mapping
from enum import StrEnum
from functools import cached_property
from importlib.resources import files
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple, Self, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

LABEL_NAME = "^[a-zA-Z_][a-zA-Z0-9_]*$"
METRIC_NAME = "^[a-zA-Z_:][a-zA-Z0-9_:]*$"
TERM = "^-?[a-zA-Z_:][a-zA-Z0-9_:]*$"


def _lists(given: object) -> object:
    if not isinstance(given, dict):
        return given
    return {label: value if isinstance(value, list | tuple) else (value,) for label, value in given.items()}


Label = Annotated[str, Field(pattern=LABEL_NAME)]
LabelValue = Annotated[str, Field(min_length=1)]
LabelValues = Annotated[dict[Label, Annotated[tuple[LabelValue, ...], Field(min_length=1)]], BeforeValidator(_lists)]
"""A value or a list of values, by label."""
Terms = tuple[Annotated[str, Field(pattern=TERM)], ...]


class Figure(StrEnum):
    """Figures of `ReplicaMetrics` that are read, in the order of its fields."""

    RUNNING = "running"
    WAITING = "waiting"
    GENERATION_TOKENS = "generationTokens"
    PROMPT_TOKENS = "promptTokens"
    CACHED_PROMPT_TOKENS = "cachedPromptTokens"
    ADMISSION_REJECTIONS = "admissionRejections"
    BEGUN = "begun"
    PREFILL_SECONDS = "prefillSeconds"
    TIME_TO_FIRST_TOKEN = "timeToFirstToken"  # noqa: S105, no password
    INTER_TOKEN_LATENCY = "interTokenLatency"  # noqa: S105
    TIME_PER_OUTPUT_TOKEN = "timePerOutputToken"  # noqa: S105
    QUEUE_TIME = "queueTime"

    @property
    def field(self) -> str:
        """Name of the figure in `ReplicaMetrics`."""
        return self.name.lower()


HISTOGRAMS = (Figure.TIME_TO_FIRST_TOKEN, Figure.INTER_TOKEN_LATENCY, Figure.TIME_PER_OUTPUT_TOKEN, Figure.QUEUE_TIME)
"""Figures that are histograms of seconds; the others are gauges and counters."""
JUDGED = tuple(figure for figure in HISTOGRAMS if figure is not Figure.INTER_TOKEN_LATENCY)
"""Figures whose buckets an SLO's bound needs."""
ESSENTIAL = (
    Figure.RUNNING,
    Figure.WAITING,
    Figure.GENERATION_TOKENS,
    Figure.PROMPT_TOKENS,
    Figure.TIME_TO_FIRST_TOKEN,
    Figure.INTER_TOKEN_LATENCY,
)
"""Figures without which this release cannot decide. timePerOutputToken is one where the SLO bounds it. prefillSeconds
stand for timeToFirstToken, and interTokenLatency for timePerOutputToken, where the pool's gateway counts arrivals."""


class Counted(StrEnum):
    """Time at which a request is counted."""

    SMOOTH = "smooth"
    """While it runs: at each step, or at its first token."""
    AT_FINISH = "atFinish"
    """All at once when it ends, so a figure lags by a request's whole time."""


class Origin(StrEnum):
    """Start of the TTFT's count."""

    ARRIVAL = "arrival"
    ADMISSION = "admission"
    """TTFT lacks the time in the engine's queue."""
    UNKNOWN = "unknown"


class Group(NamedTuple):
    """Series that are read together, for the same is asked of their labels."""

    excluded: tuple[tuple[str, tuple[str, ...]], ...]
    """Labels and values that a series must not have, sorted."""
    copies: tuple[str, ...] = ()
    """Labels of copies of a figure, and of the parts beside a total: of series that differ in these alone the greatest
    counts."""
    split: str = ""
    """A label by which figures choose among a metric's series."""
    any_model: bool = False
    """The series do not name the model, though the profile's others do."""

    def admits(self, labels: Mapping[str, str]) -> bool:
        """Whether a series with these labels may be read."""
        denied = any(labels.get(label, "") in values for label, values in self.excluded)
        return not denied and (not self.split or bool(labels.get(self.split)))


class Section(BaseModel):
    """A part of a profile. A key that it has not is an error."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, extra="forbid", use_attribute_docstrings=True
    )


class Series(Section):
    """Series that may hold a figure: one by its name, or several that are added up."""

    name: Annotated[str, Field(pattern=METRIC_NAME)] = ""
    """Name of the metric; a histogram's name has no `_bucket`, `_sum` or `_count`."""
    sum: Terms = ()
    """Instead of a name: metrics whose total is the figure, or a histogram's seconds; a leading `-` subtracts."""
    count: Terms = ()
    """Metrics whose total is the count of a histogram that has a `sum`. Such a histogram has no buckets."""
    labels: Annotated[LabelValues, Field(max_length=1)] = Field(default_factory=dict)
    """One label with the value, or the values to add up, that count. Not for histograms."""
    parts_by: tuple[Label, ...] = ()
    """Labels that the parts of a total have beside it, so that they are not added up: the total is the greatest."""
    excluded: LabelValues = Field(default_factory=dict)
    """Values that labels must not have."""
    any_term: bool = False
    """With `sum`: a metric that is not there yet counts as 0, such as a counter before its first event."""
    any_model: bool = False
    """The series does not name the model, though the profile's others do: it counts for all models of the pod."""
    with_traffic: bool = False
    """Of a gateway's queue: the series is there only while requests come, and for minutes after. The figure is 0 where
    the gateway's page is there without it."""
    less: Annotated[float, Field(ge=0)] = 0.0
    """With a name: subtracted from the value, such as the scrape itself in a count of HTTP requests."""
    counted: Counted = Counted.SMOOTH
    """`smooth`: while a request runs. `atFinish`: all at once when it ends."""
    versions: str = ""
    """Versions of the engine that have it. Empty: all."""
    note: str = ""
    """Note for readers."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, given: object) -> object:
        return {"name": given} if isinstance(given, str) else given

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if bool(self.name) == bool(self.sum or self.count) or (self.sum and self.labels):
            raise ValueError("must have either name, or sum, or sum and count; labels go with name alone")
        if self.less and (not self.name or self.labels):
            raise ValueError("less goes with name alone, without labels")
        for terms in filter(None, (self.sum, self.count)):
            if all(term[0] == "-" for term in terms):
                raise ValueError(f"must add a metric, got {', '.join(terms)}")
        return self

    @property
    def text(self) -> str:
        """Metrics of the series, in a few words."""
        if self.name:
            labels = "".join(f" {{{label}={'|'.join(values)}}}" for label, values in self.labels.items())
            return f"{self.name}{labels}{f' - {self.less:g}' if self.less else ''}"
        parts = [" + ".join(terms).replace("+ -", "- ") for terms in (self.sum, self.count) if terms]
        return " over ".join(f"({part})" for part in parts)

    @property
    def split(self) -> tuple[str, tuple[str, ...]]:
        """The label by which it is told from other series of the metric, and its values; empty where by none."""
        return next(iter(self.labels.items()), ("", ()))

    def metrics(self, *, histogram: bool) -> tuple[str, ...]:
        """Names of all metrics that it is read from, without buckets."""
        if not self.name:
            return tuple(dict.fromkeys(term.removeprefix("-") for term in (*self.sum, *self.count)))
        return (f"{self.name}_sum", f"{self.name}_count") if histogram else (self.name,)


def check_forms(figures: Mapping[Any, tuple[Series, ...]], histograms: Container[str]) -> None:
    """ValueError where a figure names no series, or one in a form that its kind does not have."""
    for figure, series in figures.items():
        if not series:
            raise ValueError(f"figures.{figure} must name a series, got an empty list")
        histogram = figure in histograms
        if any(bool(one.count) != (histogram and bool(one.sum)) for one in series):
            rest = "sum and count together" if histogram else "sum alone, without count"
            raise ValueError(f"figures.{figure} must have name, or {rest}")


class EngineMetrics(Section):
    """Series of an engine that hold each figure. A change of names is another entry in a figure's list."""

    doc: str = ""
    """Figures that the engine tells, and figures that it does not, in a line."""
    versions: str = ""
    """Versions of the engine that were compared with this."""
    silent: Annotated[str, Field(min_length=1)] = "the engine exports no metrics"
    """Why a scraped pod may export none of these series, as in `Not scraped, or vLLM runs with --disable-log-stats`."""
    model_label: Label | None = None
    """Label with the served model's name; series without it are not the engine's. None: all series of the pool's pods
    count, whatever `spec.model` is."""
    sum_over: tuple[Label, ...] = ()
    """Labels of one pod's series that are added up, such as the rank. Series of one scrape that differ in labels which
    no list names are added up too, unless they are gauges: such gauges are unknown, since they may be copies."""
    copies_by: tuple[Label, ...] = ()
    """Labels of one pod's series that are copies of one figure, such as the process: the greatest counts."""
    excluded: LabelValues = Field(default_factory=dict)
    """Label values whose series are no part of any figure."""
    time_to_first_token_from: Origin = Origin.UNKNOWN
    """Start of the TTFT's count: `arrival`, `admission` (it lacks the time in the queue) or `unknown`."""
    figures: dict[Figure, tuple[Series, ...]] = Field(default_factory=dict)
    """Series by figure, in order of preference: the first that a pod exposes counts."""

    @model_validator(mode="after")
    def _forms(self) -> Self:
        check_forms(self.figures, HISTOGRAMS)
        for figure, series in self.figures.items():
            if figure in HISTOGRAMS and any(one.labels for one in series):
                raise ValueError(f"figures.{figure} must not have labels, as a histogram: use excluded")
            if figure in JUDGED and any(not one.name for one in series):
                raise ValueError(f"figures.{figure} must have a name: an SLO is judged by its buckets")
        ttft = self.figures.get(Figure.TIME_TO_FIRST_TOKEN, ())
        if any(one.excluded for one in ttft) and Figure.BEGUN not in self.figures:
            raise ValueError("figures.begun must be there too: figures.timeToFirstToken leaves requests out")
        return self

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The groups of series, that of most series first."""
        own = (self._group(one) for series in self.figures.values() for one in series)
        return tuple(dict.fromkeys([self._group(Series(name="any")), *own]))

    def group_of(self, series: Series) -> int:
        """The group of `groups` that a series is in."""
        return self.groups.index(self._group(series))

    def added(self, group: int) -> tuple[str, ...]:
        """Labels of `sum_over` that hold in a group."""
        return tuple(label for label in self.sum_over if label not in self.groups[group].copies)

    def _group(self, series: Series) -> Group:
        excluded = tuple(sorted((self.excluded | series.excluded).items()))
        copies = tuple(sorted({*self.copies_by, *series.parts_by}))
        return Group(excluded, copies, series.split[0], series.any_model)

    def named_in(self, group: int) -> Label | None:
        """The label with the model's name that the series of a group have; None where they have none."""
        return None if self.groups[group].any_model else self.model_label

    @cached_property
    def gauges(self) -> frozenset[str]:
        """Metrics of the present state. Series of them that differ may be parts, or copies of one figure."""
        return frozenset(
            one.name for each in (Figure.RUNNING, Figure.WAITING) for one in self.figures.get(each, ()) if one.name
        )

    @property
    def lacks(self) -> tuple[Figure, ...]:
        """Essential figures that the engine has no series for."""
        lacking = tuple(figure for figure in ESSENTIAL if figure not in self.figures)
        estimated = lacking == (Figure.TIME_TO_FIRST_TOKEN,) and self.needs_gateway
        return () if estimated or self.metered else lacking

    @property
    def needs_gateway(self) -> bool:
        """Whether nothing tells how many requests come, so that a gateway must."""
        estimated = Figure.TIME_TO_FIRST_TOKEN not in self.figures and Figure.PREFILL_SECONDS in self.figures
        return estimated or self.metered

    @property
    def deciding(self) -> Self:
        """The profile without the figure that serves recorded histories alone."""
        read = {figure: series for figure, series in self.figures.items() if figure is not Figure.QUEUE_TIME}
        return self.model_copy(update={"figures": read})

    @property
    def metered(self) -> bool:
        """Whether the engine exports nothing at all, so that a gateway must count its work."""
        return not self.figures


def usable(profiles: Mapping[str, EngineMetrics]) -> tuple[str, ...]:
    """Names of engines whose metrics suffice to decide."""
    return tuple(sorted(name for name, profile in profiles.items() if not profile.lacks))


Profile = TypeVar("Profile", bound=BaseModel)


def read_profiles(package: str, form: type[Profile]) -> Mapping[str, Profile]:
    """The profiles that a release ships in a package's folder: one YAML file each, named as the profile. Sorted."""
    texts = {one.name: one.read_text("utf-8") for one in files(package).iterdir() if one.name.endswith(".yaml")}
    found = {name.removesuffix(".yaml"): form.model_validate(yaml.safe_load(texts[name])) for name in sorted(texts)}
    return MappingProxyType(found)
