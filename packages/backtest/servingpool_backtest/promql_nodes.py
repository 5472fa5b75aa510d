"""What a query is at each look at a fleet, as PromQL has it: a number, an element for each replica, or nothing."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping

from servingpool.decision.observation import Observation, Unknown
from servingpool_simulation.baselines.readings import History, gauges


class Scalar(float):
    """A number as the query has it, which goes with every element of a vector."""


Value = float | dict[str, float] | None
"""A scalar or the one element of an aggregate; an element for each replica; or nothing."""
Node = Callable[[Observation, float], Value]

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
    "/": lambda one, other: one / other if other else math.copysign(math.inf, one) if one else math.nan,
}


def gauge(figure: str) -> Node:
    """A gauge of each replica."""
    return lambda observation, _: gauges(observation, figure)


def rate(figure: str, seconds: float, *, increase: bool = False) -> Node:
    """How fast a counter of each replica rises, per second or over the range; nothing of one that was seen once."""
    history = History(seconds)

    def value(observation: Observation, now: float) -> Value:
        history.add(now, observation)
        return {replica: each * (seconds if increase else 1.0) for replica, each in history.rates(figure).items()}

    return value


def over_time(figure: str, seconds: float, how: Callable[[list[float]], float]) -> Node:
    """A gauge of each replica over a range; `how` makes one value of those seen."""
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


def together(how: Callable[[list[float]], float], inner: Node) -> Node:
    """One element of all; nothing of none."""

    def value(observation: Observation, now: float) -> Value:
        found = inner(observation, now)
        if isinstance(found, dict):
            return how(list(found.values())) if found else None
        return found

    return value


def combined(sign: str, left: Node, right: Node) -> Node:
    """Arithmetic between two values: a number goes with every element, elements with those of the same labels."""
    how = ARITHMETIC[sign]

    def value(observation: Observation, now: float) -> Value:
        one, other = left(observation, now), right(observation, now)
        if isinstance(one, dict) and isinstance(other, dict):
            return {replica: how(each, other[replica]) for replica, each in one.items() if replica in other}
        if isinstance(one, Scalar) and isinstance(other, Scalar):
            return Scalar(how(one, other))
        if isinstance(one, dict) and isinstance(other, Scalar):
            return {replica: how(each, other) for replica, each in one.items()}
        if isinstance(one, Scalar) and isinstance(other, dict):
            return {replica: how(one, each) for replica, each in other.items()}
        if isinstance(one, float) and isinstance(other, float):
            return how(one, other)
        return None  # the labels of a pod's element are not those of an aggregate

    return value


def or_else(node: Node, instead: float) -> Node:
    """`or vector(x)`: that element has no labels, so it comes beside those of pods."""

    def value(observation: Observation, now: float) -> Value:
        found = node(observation, now)
        if isinstance(found, dict):
            return {**found, "": instead}
        return instead if found is None else found

    return value
