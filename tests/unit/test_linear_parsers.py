"""What people and programs outside write is read in linear time: the parsers besides those of cluster objects.

`tests/unit/adapters/cluster/test_input_limits.py` has those.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from servingpool.adapters.prometheus.page import parse
from servingpool.adapters.prometheus.scrape_errors import explained_error
from servingpool.api.gpu_budget import GPUBudget
from servingpool.api.serving_pool import ServingPool, problems
from servingpool.api.status import Status
from servingpool.reconcile.keep import learned_profile
from servingpool_backtest import promql_value

from .linear_time import SIZES, in_about_linear_time

NAMES = promql_value.Names({}, {})


def pool(**spec: Any) -> object:
    meta = {"namespace": "chat", "name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"}
    wanted = {"model": "a", "slo": {"timeToFirstToken": "2s"}, "targets": [{"name": "a", "max": 2}], **spec}
    try:
        return ServingPool.read({"metadata": meta, "spec": wanted})
    except ValueError as error:
        return problems(error)  # type: ignore[arg-type]


def query(text: str) -> None:
    with contextlib.suppress(promql_value.Unreadable, RecursionError):
        promql_value.read(text, NAMES)


def page(text: str) -> None:
    with contextlib.suppress(ValueError):
        parse(text)


def profile(data: Any) -> None:
    with contextlib.suppress(ValueError):
        learned_profile.load({"version": learned_profile.VERSION, **data})


PARSERS: dict[str, Callable[[int], object]] = {
    "a duration": lambda n: pool(slo={"timeToFirstToken": "1ms" * (n // 3) + "x"}),
    "a model": lambda n: pool(model="a" * n),
    "labels to match": lambda n: pool(metrics={"matchLabels": {f"a{i}": "b" for i in range(n // 8)}}),
    "a schedule": lambda n: pool(schedules=[{"name": "a", "start": "* " * (n // 2), "end": "0 0 * * *", "min": 1}]),
    "a selector of a budget": lambda n: GPUBudget.read(
        {"metadata": {"name": "a"}, "spec": {"gpus": 1, "poolSelector": {"matchLabels": {"a": "b" * min(n, 63)}}}}
    ),
    "a status": lambda n: Status.found({"conditions": [{"type": "Ready", "message": "a" * n}] * 3}),
    "a history": lambda n: Status.found({"history": [{"by": "a"}] * (n // 8)}),
    "a profile's pairs": lambda n: profile({"forecast": {"pairs": "1 " * (n // 2)}}),
    "a query": lambda n: query("a + " * (n // 4)),
    "blanks in a query": lambda n: query("a" + " " * n),
    "brackets in a query": lambda n: query("(" * n),
    "braces in a query": lambda n: query("{" * n),
    "an error of a scrape": lambda n: explained_error("expected " * (n // 9)),
    "a content type": lambda n: explained_error('Content-Type "' * (n // 14)),
    "a page": lambda n: page('a{b="c"} 1\n' * (n // 11)),
    "a long label of a page": lambda n: page('a{b="' + "c" * n + '"} 1\n'),
    "escapes of a page": lambda n: page('a{b="' + "\\\\" * (n // 2) + '"} 1\n'),
    "JSON": lambda n: json.loads(json.dumps(["a"] * (n // 5))),
}


@pytest.mark.parametrize("name", PARSERS)
def test_a_text_of_four_times_the_length_is_read_in_about_four_times_the_time(name: str) -> None:
    in_about_linear_time(PARSERS[name])


@pytest.mark.parametrize(("size", "letters"), [(4_000, 8), (50_000, 25)])
def test_quadratic_code_fails(size: int, letters: int) -> None:
    def without_twins(characters: int) -> None:
        """Searches a list where a set belongs, for each word of so many letters."""
        words: list[int] = []
        for word in range(characters // letters):
            if word not in words:
                words.append(word)

    with pytest.raises(pytest.fail.Exception, match=f"{4 * size}: "):
        in_about_linear_time(without_twins, {size: SIZES[size]})
