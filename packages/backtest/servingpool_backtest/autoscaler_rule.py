"""The rule of an HPA or a ScaledObject as a policy that can be replayed, and what of it cannot be."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from servingpool.adapters.cluster.autoscaling import bounds_of
from servingpool.adapters.prometheus.engines import shipped
from servingpool.decision.observation import Observation, Unknown
from servingpool.decision.pool import Pool
from servingpool_backtest.promql_nodes import TOGETHER, Node, Value, gauge, rate, together
from servingpool_backtest.promql_value import GAUGES, Names, Unreadable, read
from servingpool_simulation.baselines.behavior import DOWN, UP, Behavior, Configured, Limit, Select, Unset
from servingpool_simulation.baselines.hpa import Hpa, Metric, Wish
from servingpool_simulation.baselines.rules import average_value, object_value, pods_average

ADAPTED = 120.0
"""Seconds over which a counter's metric is taken as its rate: the range in prometheus-adapter's examples."""
MULTIPLES = {"m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
"""Suffixes of a Kubernetes quantity."""


@dataclass(slots=True)
class Queried:
    """One metric with its target."""

    said: str
    node: Node
    target: float
    form: str
    """AverageValue, Value or Pods, with the HPA's meaning."""
    trigger: Trigger | None = None
    """What KEDA does with the answer; None for an HPA's own metric."""

    def wish(self, observation: Observation, pool: Pool, now: float) -> Wish | Unknown:  # noqa: ARG002, the protocol
        """What the HPA makes of it."""
        found, replicas, ready = self.node(observation, now), observation.requested, len(observation.ready)
        if isinstance(found, dict) and self.form == "Pods":
            if not found:
                return Unknown(f"{self.said} has no value")
            missing = max(0, ready + len(observation.starting) - len(found))
            wanted = pods_average(found.values(), missing, self.target, replicas)
            return Wish(wanted, f"{self.said} over {self.target:g} a pod wants {wanted}")
        if self.trigger is not None:
            value = self.trigger.value(found, self.said)
            instead = self.trigger.instead(value, replicas)
            if instead is not None:
                return Wish(instead, f"{self.said} failed {self.trigger.failed} times: KEDA's fallback wants {instead}")
        else:
            value = found if isinstance(found, float) and math.isfinite(found) else Unknown(f"{self.said} has no value")
        if isinstance(value, Unknown):
            return value
        if self.form == "Value":
            wanted = object_value(value, self.target, replicas, ready)
        else:
            wanted = average_value(value, self.target, replicas)
        return Wish(wanted, f"{self.said} is {value:g}, over {self.target:g} wants {wanted}")


@dataclass(slots=True)
class Trigger:
    """What KEDA makes of the answer to a prometheus trigger.

    Source: kedacore/keda 2.21, `pkg/scalers/prometheus_scaler.go` and `pkg/fallback`.
    """

    nothing_is_zero: bool
    """`ignoreNullValues`: an empty answer, NaN and infinity are 0, and no error."""
    fallback: Mapping[str, Any]
    """The ScaledObject's; empty without one."""
    failed: int = 0
    """Answers in a row that were errors."""

    def value(self, found: Value, said: str) -> float | Unknown:
        """The number; Unknown where KEDA reports an error, so that the HPA changes nothing."""
        value = self._value(found, said)
        self.failed = self.failed + 1 if isinstance(value, Unknown) else 0
        return value

    def _value(self, found: Value, said: str) -> float | Unknown:
        if isinstance(found, dict):
            if len(found) > 1:
                return Unknown(f"{said} returned {len(found)} elements, and KEDA takes one: use sum()")
            found = next(iter(found.values()), None)
        if found is not None and math.isfinite(found):
            return float(found)
        return 0.0 if self.nothing_is_zero else Unknown(f"{said} has no value")

    def instead(self, value: float | Unknown, replicas: int) -> int | None:
        """The replicas that the fallback asks for; None while it is not in force."""
        if not isinstance(value, Unknown) or not self.fallback:
            return None
        if self.failed <= int(self.fallback.get("failureThreshold", 0)):
            return None
        given, behavior = int(self.fallback.get("replicas", 0)), self.fallback.get("behavior")
        return {
            "currentReplicas": replicas,
            "currentReplicasIfHigher": max(replicas, given),
            "currentReplicasIfLower": min(replicas, given),
        }.get(str(behavior), given)


@dataclass(frozen=True, slots=True)
class Rule:
    """One autoscaler, as the API server has it."""

    raw: Mapping[str, Any]
    engine: str
    """Whose series its queries name."""

    @property
    def name(self) -> str:
        """Such as `HorizontalPodAutoscaler llama`."""
        return f"{self.raw.get('kind')} {self.raw.get('metadata', {}).get('name', '')}".strip()

    def check(self) -> None:
        """Raises ValueError where it is no HPA's or ScaledObject's: somebody wrote the file."""
        try:
            self.policy()
            self.described()
            list(self.lost())
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            kind, why = self.raw.get("kind"), f"{type(error).__name__}: {error}"
            raise ValueError(f"{kind} is not complete, or a part of it is of another type ({why})") from error

    def pool(self, pool: Pool) -> tuple[int, int]:
        """Its own min and max; a minimum of 0 is replayed as 1."""
        low, high = bounds_of(self.raw)
        return max(1, low), max(1, low, high) if self.raw.get("spec") else pool.max_replicas

    def policy(self) -> Hpa | None:
        """A fresh policy; None where none of its metrics can be replayed."""
        metrics = tuple(one for one in self._metrics() if not isinstance(one, str))
        if not metrics:
            return None
        return Hpa(self.name, metrics, self._behavior(), every_bucket="histogram_quantile" in str(self.raw))

    def described(self) -> str:
        """The rule in a sentence."""
        return "; ".join(f"{one.said}, target {one.target:g}" for one in self._metrics() if isinstance(one, Queried))

    def lost(self) -> Iterator[str]:
        """What of it is not replayed, each a sentence."""
        for one in self._metrics():
            if isinstance(one, str):
                yield f"{self.name}: {one}."
        spec = self.raw.get("spec", {})
        if bounds_of(self.raw)[0] == 0:
            yield f"{self.name}: scale to zero is not replayed; its minimum is taken as 1."
        if spec.get("idleReplicaCount") is not None:
            yield f"{self.name}: idleReplicaCount is not replayed; without load its minimum is taken."
        if spec.get("advanced", {}).get("scalingModifiers"):
            yield f"{self.name}: scalingModifiers are not replayed; the highest trigger counts."
        if "tolerance" in str(self._configured()):
            yield f"{self.name}: its tolerance is taken as the usual 10%."

    def _metrics(self) -> Iterator[Metric | str]:
        """Each metric; for one that cannot be replayed, why."""
        profile = shipped().get(self.engine)
        names = Names({}, {}) if profile is None else Names.of(profile)
        spec = self.raw.get("spec", {})
        if self.raw.get("kind") == "ScaledObject":
            fallback = spec.get("fallback") or {}
            found: Sequence[tuple[Any, Any]] = [(_triggered, (one, fallback)) for one in spec.get("triggers") or ()]
        else:
            found = [(_measured, one) for one in spec.get("metrics") or ()]
            if not found:
                yield "CPU utilisation is in no recording, so it is not replayed"
        for reader, raw in found:
            try:
                yield reader(raw, names)
            except Unreadable as error:
                yield f"{error}, so it is not replayed"
            except (KeyError, ValueError) as error:
                yield f"a metric is not complete ({error}), so it is not replayed"

    def _configured(self) -> Mapping[str, Any]:
        spec = self.raw.get("spec", {})
        inner = spec.get("advanced", {}).get("horizontalPodAutoscalerConfig", {}) if "triggers" in spec else spec
        return dict(inner.get("behavior") or {})

    def _behavior(self) -> Behavior:
        given = self._configured()
        if not given:
            return Unset()
        up, down = given.get("scaleUp") or {}, given.get("scaleDown") or {}
        return Configured(
            up=_limits(up) or UP,
            down=_limits(down) or DOWN,
            up_window=float(up.get("stabilizationWindowSeconds") or 0.0),
            down_window=300.0 if (window := down.get("stabilizationWindowSeconds")) is None else float(window),
            up_select=Select(up.get("selectPolicy") or "Max"),
            down_select=Select(down.get("selectPolicy") or "Max"),
        )


def _limits(raw: Mapping[str, Any]) -> tuple[Limit, ...]:
    return tuple(
        Limit(float(one["periodSeconds"]), pods=int(one["value"]))
        if one["type"] == "Pods"
        else Limit(float(one["periodSeconds"]), percent=float(one["value"]))
        for one in raw.get("policies") or ()
    )


def _measured(raw: Mapping[str, Any], names: Names) -> Queried:
    """A metric of an HPA."""
    kind = str(raw["type"])
    if kind in {"Resource", "ContainerResource"}:
        inner = raw["resource" if kind == "Resource" else "containerResource"]
        raise Unreadable(f"the resource metric '{inner['name']}' is in no recording")
    inner = raw[kind.lower()]
    name, target = str(inner["metric"]["name"]), inner["target"]
    figure = names.figure(name, adapted=True)
    each = gauge(figure) if figure in GAUGES else rate(figure, ADAPTED)
    if kind == "Pods":
        return Queried(name, each, _amount(target["averageValue"]), "Pods")
    form = str(target["type"])
    value = _amount(target["averageValue" if form == "AverageValue" else "value"])
    return Queried(f"the sum of {name}", together(TOGETHER["sum"], each), value, form)


def _triggered(given: tuple[Mapping[str, Any], Mapping[str, Any]], names: Names) -> Queried:
    """A trigger of a ScaledObject, with its fallback."""
    raw, fallback = given
    if raw["type"] != "prometheus":
        raise Unreadable(f"a trigger of type '{raw['type']}' is in no recording")
    metadata = raw["metadata"]
    query, form = str(metadata["query"]), str(raw.get("metricType") or "AverageValue")
    if form not in {"AverageValue", "Value"}:
        raise Unreadable(f"metricType '{form}' is not one of a prometheus trigger")
    trigger = Trigger(str(metadata.get("ignoreNullValues", "true")).lower() not in {"false", "f", "0"}, fallback)
    return Queried(f"`{query}`", read(query, names), float(metadata["threshold"]), form, trigger)


def _amount(given: object) -> float:
    """A quantity as Kubernetes writes it, such as 500m or 2k. ValueError for what is none."""
    text = str(given)
    number = text.rstrip("mkMGTKi")
    return float(number) * MULTIPLES[text[len(number) :]]
