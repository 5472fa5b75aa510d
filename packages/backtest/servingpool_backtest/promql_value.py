"""What a Prometheus query of an autoscaler would return, from what a fleet shows: the part of PromQL that scalers use.

Gauges, rates and quantiles of the engine's own series, summed or averaged, with arithmetic between them. Filters on
labels of targets and of the model are taken to select the Deployment's pods. Anything else is Unreadable, with the
reason: a part of a series, such as one source of the tokens, is in no recording. How many elements a vector has is
PromQL's: a scaler may take no more than one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from servingpool.adapters.prometheus.engines.profile import HISTOGRAMS, EngineMetrics, Figure
from servingpool.adapters.prometheus.promql import ADDRESS, SCRAPING, exported
from servingpool.api.duration import parse
from servingpool.decision.observation import Histogram, Observation
from servingpool_backtest.promql_nodes import (
    TOGETHER,
    Node,
    Scalar,
    Value,
    combined,
    gauge,
    or_else,
    over_time,
    rate,
    together,
)
from servingpool_simulation.baselines.readings import History, added, histogram_quantile

GAUGES = ("running", "waiting")
RATES = ("rate", "irate", "increase")
POD = frozenset({"pod", "instance"})
"""Labels either of which tells a pod's series from another's."""
TARGETS = frozenset({*POD, "namespace", "cluster", *ADDRESS, *SCRAPING})
"""Labels that all series of a pod have alike."""
MATCHER = re.compile(r"""\s*(\w+)\s*(=~|!~|!=|=)\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`)\s*(?:,|$)""")
TOKEN = re.compile(r"\s*(?:([A-Za-z_:][\w:]*)|(\d+(?:\.\d+)?)|(\{[^}]*\})|\[\s*(\w+)\s*\]|([-+*/(),]))")


LONGEST = 10_000
"""Characters of a query."""


class Unreadable(ValueError):
    """The query cannot be answered from a recorded history; the message says why."""


@dataclass(frozen=True, slots=True)
class Names:
    """An engine's series, by name: which figure each holds."""

    figures: Mapping[str, str]
    """Gauges and counters."""
    histograms: Mapping[str, str]
    """Without `_bucket`."""
    labels: frozenset[str] = TARGETS
    """Labels that do not divide what a recording holds of a pod."""

    @classmethod
    def of(cls, profile: EngineMetrics) -> Names:
        """Of one engine: series that are read first for a figure, and whole.

        A recording does not tell which of a figure's series it has, and cached tokens are a part of theirs.
        """
        plain: dict[str, str] = {}
        histograms: dict[str, str] = {}
        for figure, (first, *_) in profile.figures.items():
            part = first.labels or first.excluded or figure is Figure.CACHED_PROMPT_TOKENS
            if first.name and not part:
                (histograms if figure in HISTOGRAMS else plain)[first.name] = figure.field
        return cls(plain, histograms, TARGETS | {profile.model_label or ""})

    def figure(self, name: str, *, adapted: bool = False) -> str:
        """The figure of a series, by its name, or by one that an adapter may have made of it. Raises Unreadable."""
        for series, figure in self.figures.items():
            if name == series or (adapted and _plain(name, figure) == _plain(series, figure)):
                return figure
        raise Unreadable(f"'{name}' is not among the engine's series that a recording holds")


@dataclass(frozen=True, slots=True)
class Grouping:
    """`by` or `without` labels."""

    by: bool
    labels: set[str]

    def keeps(self, label: str) -> bool:
        """Whether series that differ in it stay apart."""
        return (label in self.labels) is self.by

    @property
    def by_pod(self) -> bool:
        """Whether each pod keeps an element of its own."""
        return any(map(self.keeps, POD))


def _plain(name: str, figure: str) -> str:
    plain = re.sub("[^a-z0-9]+", "_", name.lower())
    return plain if figure in GAUGES else plain.removesuffix("_per_second").removesuffix("_total")


def read(text: str, names: Names) -> Node:
    """The query as a function of each look at the fleet. It remembers its ranges, so it serves one run."""
    parser = _Parser(text, names)
    node = parser.sum()
    if parser.word or parser.place < len(parser.tokens):
        raise Unreadable(f"'{parser.rest()}' in the query is not understood")
    return node


class _Parser:
    """Recursive descent over the tokens."""

    def __init__(self, text: str, names: Names) -> None:
        self.text, self.names, self.place = text, names, 0
        self.tokens: list[re.Match[str]] = []
        if len(text) > LONGEST:
            raise Unreadable(f"the query is longer than {LONGEST:,} characters")
        at, end = 0, len(text.rstrip())
        while at < end:
            found = TOKEN.match(text, at)
            if found is None:
                raise Unreadable(f"'{text[at:].strip()}' in the query is not understood")
            self.tokens.append(found)
            at = found.end()

    @property
    def word(self) -> str:
        """The next token as it is written; empty at the end."""
        return self.ahead(0)

    def ahead(self, by: int) -> str:
        """The token that comes so many after the next; empty where there is none."""
        return self.tokens[self.place + by].group().strip() if self.place + by < len(self.tokens) else ""

    def rest(self) -> str:
        """What is not read yet."""
        return self.text[self.tokens[self.place].start() :].strip() if self.word else ""

    def take(self, expected: str = "") -> str:
        """The next token; Unreadable where it is another one."""
        word = self.word
        if not word or (expected and word != expected):
            raise Unreadable(f"'{self.rest() or self.text}' in the query is not understood")
        self.place += 1
        return word

    def sum(self) -> Node:
        node = self.product()
        while self.word in {"+", "-"}:
            node = combined(self.take(), node, self.product())
        if self.word == "or":
            self.take()
            self.take("vector")
            self.take("(")
            instead = float(self.take())
            self.take(")")
            return or_else(node, instead)
        return node

    def product(self) -> Node:
        node = self.primary()
        while self.word in {"*", "/"}:
            node = combined(self.take(), node, self.primary())
        return node

    def primary(self) -> Node:
        if self.word[:1].isalpha() and self.ahead(1) == "(" and self.word not in {*TOGETHER, "histogram_quantile"}:
            return self.over_range()
        word = self.take()
        if word == "(":
            node = self.sum()
            self.take(")")
            return node
        if word[0].isdigit():
            number = Scalar(word)
            return lambda *_: number
        if word in TOGETHER:
            return self.together(word)
        if word == "histogram_quantile":
            return self.quantile()
        self.filters()
        return gauge(self.gauge_of(word))

    def together(self, word: str) -> Node:
        before = self.grouping()
        self.take("(")
        inner = self.sum()
        self.take(")")
        grouping = before or self.grouping()
        return inner if grouping and grouping.by_pod else together(TOGETHER[word], inner)

    def grouping(self) -> Grouping | None:
        """`by (...)` or `without (...)`; None for neither."""
        if self.word not in {"by", "without"}:
            return None
        by = self.take() == "by"
        self.take("(")
        labels = set()
        while self.word != ")":
            labels.add(self.take())
        self.take(")")
        self.known(labels - {"le", ","} if by else set())
        return Grouping(by, labels)

    def quantile(self) -> Node:
        self.take("(")
        share = float(self.take())
        self.take(",")
        each = self.word != "sum"
        if each:
            buckets = self.buckets()
        else:
            self.take()
            before = self.grouping()
            self.take("(")
            buckets = self.buckets()
            self.take(")")
            grouping = before or self.grouping()
            if grouping is None or not grouping.keeps("le"):
                raise Unreadable("a sum of buckets without their label 'le' is not understood")
            each = grouping.by_pod
        self.take(")")

        def of(histogram: Histogram) -> float:
            return histogram_quantile(share, histogram) if histogram.count > 0 else math.nan

        def value(observation: Observation, now: float) -> Value:
            found = buckets(observation, now)
            if each:
                return {replica: of(one) for replica, one in found.items()}
            return of(added(found.values())) if found else None

        return value

    def ranged(self) -> tuple[str, str, float]:
        """A function of a range: its name, the series and seconds."""
        function = self.take()
        self.take("(")
        name = self.take()
        self.filters()
        seconds = parse(self.take().strip("[] "))
        self.take(")")
        return function, name, seconds

    def over_range(self) -> Node:
        function, name, seconds = self.ranged()
        if function in RATES:
            figure = self.names.figure(name)
            if figure in GAUGES:
                raise Unreadable(f"'{function}' of the gauge '{name}' is not understood")
            return rate(figure, seconds, increase=function == "increase")
        if function not in {"avg_over_time", "max_over_time", "min_over_time"}:
            raise Unreadable(f"the function '{function}' is not understood")
        return over_time(self.gauge_of(name), seconds, TOGETHER[function[:3]])

    def buckets(self) -> Callable[[Observation, float], dict[str, Histogram]]:
        """What each replica's histogram counted."""
        function, bucket, seconds = self.ranged()
        name = bucket.removesuffix("_bucket")
        figure = self.names.histograms.get(name)
        if function not in RATES or name == bucket:
            raise Unreadable(f"'{function}({bucket})' in histogram_quantile() is not understood")
        if figure is None:
            raise Unreadable(f"'{name}' is not among the engine's histograms that a recording holds")
        history = History(seconds)

        def value(observation: Observation, now: float) -> dict[str, Histogram]:
            history.add(now, observation)
            return history.observed_each(figure)

        return value

    def gauge_of(self, name: str) -> str:
        figure = self.names.figure(name)
        if figure not in GAUGES:
            raise Unreadable(f"'{name}' is a counter that is read without rate()")
        return figure

    def filters(self) -> None:
        """Take the filters of a series, which are to select the Deployment's pods."""
        if not self.word.startswith("{"):
            return
        text = self.take()
        if MATCHER.sub("", text[1:-1]).strip():
            raise Unreadable(f"'{text}' in the query is not understood")
        for label, sign, value in MATCHER.findall(text[1:-1]):
            self.known({label})
            if label in POD and sign == "=":
                raise Unreadable(f"'{label}={value}' is one pod alone, and the replicas of a replay have other names")

    def known(self, labels: set[str]) -> None:
        """Raises Unreadable where a label divides the series of a pod, or may."""
        for label in sorted(labels):
            if label.removeprefix(exported("")) not in self.names.labels:
                raise Unreadable(f"'{label}' is no label that a recording holds, so a part of a series is unknown")
