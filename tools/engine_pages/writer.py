"""Writes a Prometheus text page series by series, for pages that no collector of the engine's own prints."""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise


def _python(value: float) -> str:
    return "+Inf" if value == float("inf") else repr(float(value))


class Writer:
    """Lines of a page; `number` prints a value as the engine's client library does, by default Python's."""

    def __init__(self, labels: dict[str, str], number: Callable[[float], str] = _python) -> None:
        self._labels, self._number = labels, number
        self._lines: list[str] = []

    @property
    def page(self) -> str:
        """What was written."""
        return "\n".join(self._lines) + "\n"

    def _sample(self, name: str, value: float, labels: dict[str, str]) -> None:
        pairs = ",".join(f'{key}="{text}"' for key, text in sorted({**self._labels, **labels}.items()))
        self._lines.append(f"{name}{{{pairs}}} {self._number(value)}" if pairs else f"{name} {self._number(value)}")

    def head(self, kind: str, name: str, text: str = "") -> None:
        """HELP, if there is one, and TYPE."""
        if text:
            self._lines.append(f"# HELP {name} {text}")
        self._lines.append(f"# TYPE {name} {kind}")

    def gauge(self, name: str, text: str, value: float, /, **labels: str) -> None:
        """One gauge of one sample."""
        self.head("gauge", name, text)
        self._sample(name, value, labels)

    def counter(self, name: str, text: str, *values: tuple[float, dict[str, str]]) -> None:
        """A counter's samples, each with its labels; its name is as it is on the page."""
        self.head("counter", name, text)
        for value, labels in values:
            self._sample(name, value, labels)

    def buckets(self, name: str, bounds: Sequence[float], values: Iterable[float], /, **labels: str) -> None:
        """A histogram's samples, without its head."""
        assert all(lower < upper for lower, upper in pairwise(bounds))
        seen = list(values)
        for bound in (*bounds, float("inf")):
            below = sum(value <= bound for value in seen)
            self._sample(f"{name}_bucket", below, {**labels, "le": self._number(bound)})
        self._sample(f"{name}_sum", round(sum(seen), 6), labels)
        self._sample(f"{name}_count", len(seen), labels)

    def histogram(self, name: str, text: str, bounds: Sequence[float], values: Iterable[float]) -> None:
        """A histogram of one set of labels."""
        self.head("histogram", name, text)
        self.buckets(name, bounds, values)

    def summary(self, name: str, text: str, quantiles: Sequence[float], values: Iterable[float]) -> None:
        """A summary whose quantiles are all of the smallest value, which is 0 in the one that needs it."""
        seen = list(values)
        self.head("summary", name, text)
        for quantile in quantiles:
            self._sample(name, min(seen, default=0.0), {"quantile": self._number(quantile)})
        self._sample(f"{name}_sum", round(sum(seen), 6), {})
        self._sample(f"{name}_count", len(seen), {})
