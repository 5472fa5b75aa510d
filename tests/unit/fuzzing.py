"""Fuzzers: how many examples each of them has, and from which seed. A run tells both at its end.

`make soak` runs all of them from a seed that it draws, with as many more as SOAK_EXAMPLES is more than the 240 of `make
test`. FUZZ_SEED repeats a run.
"""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, seed, settings

EXAMPLES = int(os.environ.get("SOAK_EXAMPLES", "240"))
SEED = int(os.environ.get("FUZZ_SEED", "36"))
"""`make test` has the same one each time: a change fails for what it changes. `make soak` draws one."""
counted: Counter[str] = Counter()
"""Examples so far, by test."""
longest: dict[str, float] = {}
"""The worst figure of a matrix so far, by what it is."""

Test = Callable[..., Any]


def worst(what: str, figure: float) -> None:
    """It is told at the end, unless there is a worse one."""
    longest[what] = max(figure, longest.get(what, figure))


def number(share: float) -> int:
    """Examples of a fuzzer that has this many times as many as there are in general."""
    return max(1, round(share * EXAMPLES))


def fuzzed(share: float) -> Callable[[Test], Test]:
    """Above `@given`: so many times as many examples as there are in general, counted."""
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
    chosen = settings(max_examples=number(share), suppress_health_check=slow)

    def decorate(test: Test) -> Test:
        inner: Test = test.hypothesis.inner_test  # type: ignore[attr-defined]

        @functools.wraps(inner)
        def counting(*args: Any, **kwargs: Any) -> Any:
            counted[test.__name__] += 1
            return inner(*args, **kwargs)

        test.hypothesis.inner_test = counting  # type: ignore[attr-defined]
        return seed(SEED)(chosen(test))

    return decorate
