"""What a Prometheus query of an autoscaler would return, from what a fleet shows: the part of PromQL that scalers use.

Gauges, rates and quantiles of the engine's own series, summed or averaged, with arithmetic between them. A query's
label filters are taken to select the Deployment's pods. Anything else is Unreadable, with the reason.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from servingpool.adapters.prometheus.engines.profile import HISTOGRAMS, EngineMetrics
from servingpool.api.duration import parse
from servingpool.decision.observation import Histogram, Observation, Unknown
from servingpool_simulation.baselines.readings import History, gauges, histogram_quantile

Value = float | dict[str, float] | Histogram | None
"""A scalar, a value for each replica, the fleet's histogram, or nothing."""
Node = Callable[[Observation, float], Value]

GAUGES = ("running", "waiting")
TOKEN = re.compile(r"\s*(?:([A-Za-z_:][\w:]*)|(\d+(?:\.\d+)?)|(\{[^}]*\})|\[\s*(\w+)\s*\]|([-+*/(),]))")
LONGEST = 16_384
"""Characters of a query."""
TOGETHER: Mapping[str, Callable[[list[float]], float]] = {
    "sum": math.fsum,
    "avg": lambda values: math.fsum(values) / len(values),
    "max": max,
    "min": min,
    "count": lambda values: float(len(values)),
}
ARITHMETIC: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda one, other: one / other if other else math.nan,
}


class Unreadable(ValueError):
    """The query cannot be answered from a recorded history; the message says why."""


@dataclass(frozen=True, slots=True)
class Names:
    """An engine's series, by name: which figure each holds."""

    figures: Mapping[str, str]
    """Gauges and counters."""
    histograms: Mapping[str, str]
    """Without `_bucket`."""

    @classmethod
    def of(cls, profile: EngineMetrics) -> Names:
        """Of one engine."""
        plain: dict[str, str] = {}
        histograms: dict[str, str] = {}
        for figure, series in profile.figures.items():
            where = histograms if figure in HISTOGRAMS else plain
            where.update({one.name: figure.field for one in series if one.name and not one.labels})
        return cls(plain, histograms)

    def figure(self, name: str) -> str:
        """The figure behind a series, or behind an adapter's name for it. Raises Unreadable."""
        wanted = _plain(name)
        for series, figure in self.figures.items():
            if _plain(series) == wanted:
                return figure
        raise Unreadable(f"'{name}' is not among the engine's series that a recording holds")


def _plain(name: str) -> str:
    """As a Prometheus adapter may have renamed it."""
    return re.sub("[^a-z0-9]+", "_", name.lower()).removesuffix("_total").removesuffix("_per_second")


def read(text: str, names: Names) -> Node:
    """The query as a function of each look at the fleet. It remembers its ranges, so it serves one run."""
    if len(text) > LONGEST:
        raise Unreadable(f"the query is longer than {LONGEST} characters")
    parser = _Parser(text, names)
    try:
        node = parser.expression()
    except RecursionError:
        raise Unreadable("the query is nested too deeply") from None
    if parser.word or parser.place < len(parser.tokens):
        raise Unreadable(f"'{parser.rest()}' in the query is not understood")
    return node


def gauge(figure: str) -> Node:
    """A gauge of each replica."""
    return lambda observation, _: gauges(observation, figure)


def rate(figure: str, seconds: float, *, increase: bool = False) -> Node:
    """How fast a counter of each replica rises, per second."""
    history = History(seconds)

    def value(observation: Observation, now: float) -> Value:
        history.add(now, observation)
        return history.increases(figure) if increase else history.rates(figure)

    return value


class _Parser:
    """Recursive descent over the tokens."""

    def __init__(self, text: str, names: Names) -> None:
        self.text, self.names, self.place = text, names, 0
        self.tokens: list[re.Match[str]] = []
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
        return self.tokens[self.place].group().strip() if self.place < len(self.tokens) else ""

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

    def expression(self) -> Node:
        node = self.product()
        while self.word in {"+", "-"}:
            node = _combined(self.take(), node, self.product())
        if self.word == "or":
            self.take()
            self.take("vector")
            self.take("(")
            instead = float(self.take())
            self.take(")")
            return _or_else(node, instead)
        return node

    def product(self) -> Node:
        node = self.primary()
        while self.word in {"*", "/"}:
            node = _combined(self.take(), node, self.primary())
        return node

    def primary(self) -> Node:
        word = self.take()
        if word == "(":
            node = self.expression()
            self.take(")")
            return node
        if word[0].isdigit():
            number = float(word)
            return lambda *_: number
        if word in TOGETHER:
            return self.together(word)
        if word == "histogram_quantile":
            return self.quantile()
        if self.word == "(":
            return self.over_range(word)
        self.filters()
        return gauge(self.gauge_of(word))

    def together(self, word: str) -> Node:
        kept = self.grouping()
        self.take("(")
        inner = self.expression()
        self.take(")")
        kept = kept or self.grouping()
        return inner if "pod" in kept or "instance" in kept else _together(TOGETHER[word], inner)

    def grouping(self) -> set[str]:
        """The labels of `by (...)`."""
        if self.word not in {"by", "without"}:
            return set()
        by = self.take() == "by"
        self.take("(")
        labels = set()
        while self.word != ")":
            labels.add(self.take())
        self.take(")")
        return labels if by else set()

    def quantile(self) -> Node:
        self.take("(")
        share = float(self.take())
        self.take(",")
        inner = self.expression()
        self.take(")")

        def value(observation: Observation, now: float) -> Value:
            found = inner(observation, now)
            return histogram_quantile(share, found) if isinstance(found, Histogram) and found.count > 0 else None

        return value

    def over_range(self, function: str) -> Node:
        self.take("(")
        name = self.take()
        self.filters()
        seconds = parse(self.take().strip("[] "))
        self.take(")")
        if function in {"rate", "irate", "increase"}:
            if name.endswith("_bucket"):
                return self.buckets(name.removesuffix("_bucket"), seconds)
            figure = self.names.figure(name)
            if figure in GAUGES:
                raise Unreadable(f"'{function}' of the gauge '{name}' is not understood")
            return rate(figure, seconds, increase=function == "increase")
        if function not in {"avg_over_time", "max_over_time", "min_over_time"}:
            raise Unreadable(f"the function '{function}' is not understood")
        return _over_time(self.gauge_of(name), seconds, TOGETHER[function[:3]])

    def buckets(self, name: str, seconds: float) -> Node:
        figure = self.names.histograms.get(name)
        if figure is None:
            raise Unreadable(f"'{name}' is not among the engine's histograms that a recording holds")
        history = History(seconds)

        def value(observation: Observation, now: float) -> Value:
            history.add(now, observation)
            return history.observed(figure)

        return value

    def gauge_of(self, name: str) -> str:
        figure = self.names.figure(name)
        if figure not in GAUGES:
            raise Unreadable(f"'{name}' is a counter that is read without rate()")
        return figure

    def filters(self) -> None:
        if self.word.startswith("{"):
            self.take()


def _over_time(figure: str, seconds: float, how: Callable[[list[float]], float]) -> Node:
    history = History(seconds)

    def value(observation: Observation, now: float) -> Value:
        history.add(now, observation)
        found: dict[str, float] = {}
        for replica in history.newest:
            seen = [getattr(looked[replica], figure) for _, looked in history.kept if replica in looked]
            known = [one for one in seen if not isinstance(one, Unknown)]
            if known:
                found[replica] = how(known)
        return found

    return value


def _together(how: Callable[[list[float]], float], inner: Node) -> Node:
    def value(observation: Observation, now: float) -> Value:
        found = inner(observation, now)
        if isinstance(found, dict):
            return how(list(found.values())) if found else None
        return found

    return value


def _combined(sign: str, left: Node, right: Node) -> Node:
    def value(observation: Observation, now: float) -> Value:
        one, other = left(observation, now), right(observation, now)
        how = ARITHMETIC[sign]
        if isinstance(one, float) and isinstance(other, float):
            return how(one, other)
        if isinstance(one, dict) and isinstance(other, dict):
            return {replica: how(each, other[replica]) for replica, each in one.items() if replica in other}
        if isinstance(one, dict) and isinstance(other, float):
            return {replica: how(each, other) for replica, each in one.items()}
        if isinstance(one, float) and isinstance(other, dict):
            return {replica: how(one, each) for replica, each in other.items()}
        return None

    return value


def _or_else(node: Node, instead: float) -> Node:
    def value(observation: Observation, now: float) -> Value:
        found = node(observation, now)
        return instead if found is None or found == {} else found

    return value
