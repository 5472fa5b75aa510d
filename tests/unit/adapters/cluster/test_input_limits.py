"""What people write into objects is read in linear time and bounded, for it is read on the event loop of all tenants."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from servingpool.adapters.cluster import drain, input_limits, objects, quantity, selector
from servingpool.adapters.cluster.accelerators import counted
from servingpool.adapters.cluster.arguments import batch_limit, words
from servingpool.adapters.cluster.autoscaling import LAST_APPLIED, manifest_writers
from servingpool.adapters.cluster.errors import said

from ...linear_time import in_about_linear_time  # noqa: TID252, tests are no package of an installed name


def shell(script: str) -> dict[str, Any]:
    return {"name": "vllm", "image": "vllm/vllm-openai", "command": ["sh", "-c"], "args": [script]}


def deployment(*containers: dict[str, Any], **meta: Any) -> dict[str, Any]:
    metadata = {"namespace": "chat", "name": "vllm", "uid": "d-1", "generation": 1, **meta}
    return {"metadata": metadata, "spec": {"replicas": 0, "template": {"spec": {"containers": list(containers)}}}}


def pod(**meta: Any) -> dict[str, Any]:
    times = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": {"namespace": "chat", "name": "p", "uid": "p-1", **times, **meta}, "spec": {"containers": []}}


PARSERS: dict[str, Callable[[int], object]] = {
    "a quoted word in a script": lambda n: objects.workload(deployment(shell("'" + "a" * n + " '"))),
    "a word in a script": lambda n: objects.workload(deployment(shell("a" * n + " b"))),
    "a quote that is not closed": lambda n: objects.workload(deployment(shell("'" + "a " * (n // 2)))),
    "short words in a script": lambda n: objects.workload(deployment(shell("a " * (n // 2)))),
    "variables that grow": lambda n: words({"env": [{"name": "A", "value": "b" * n}], "args": ["$(A)" * (n // 4)]}),
    "a variable that is not closed": lambda n: words({"args": ["$(" * (n // 2), "${" + "a" * n]}),
    "a hook": lambda n: drain.read_drain({"containers": [{"lifecycle": {"preStop": {"exec": shell("a " * n)}}}]}),
    "a selector of values": lambda n: selector.parse(f"app in ({','.join('a' * (n // 2))})"),
    "a selector of terms": lambda n: selector.parse(",".join(["!a"] * (n // 3))),
    "a selector of blanks": lambda n: selector.parse("a" + " " * n + "b"),
    "a selector that opens": lambda n: selector.parse("a in " + "(" * n),
    "a quantity": lambda n: quantity.whole("9" * n),
    "a name of a resource": lambda n: counted({f"nvidia.com/{'-' * n}gpu": 1, "." * n + "tencent.com/gpu": 1}),
    "an applied manifest": lambda n: manifest_writers(
        {"metadata": {"annotations": {LAST_APPLIED: "[" * n}}}, ("spec", "replicas")
    ),
    "an answer of the API server": lambda n: said("\x1b" * n),
}


@pytest.mark.parametrize("name", PARSERS)
def test_a_text_of_four_times_the_length_is_read_in_about_four_times_the_time(name: str) -> None:
    """Quadratic code takes 16 times as long. A word of a megabyte took two minutes, in which no tenant was served."""
    in_about_linear_time(PARSERS[name])


def test_a_megabyte_of_script_tells_nothing_and_is_said_to() -> None:
    found = objects.workload(deployment(shell("vllm serve --max-num-seqs=8 '" + "a" * 1_000_000 + " '")))
    assert found.batch_limit == math.inf
    assert found.drain.shutdown_timeout == drain.ARGUMENTS_LONG
    assert found.left_out == ("arguments of container vllm: longer than 16384 characters",)


def test_a_long_word_beside_options_hides_them_not() -> None:
    """Such as a chat template that is given in full."""
    container = {"args": ["--chat-template", "x" * 1_000_000, "--max-num-seqs=64"], "image": "vllm/vllm-openai"}
    assert batch_limit([container]) == 64.0


def test_variables_do_not_make_more_of_a_command_than_is_read() -> None:
    found = words({"env": [{"name": "A", "value": "b" * 5_000}], "args": ["$(A)" * 1_000, "$(A)", "--a=$(B)"]})
    assert found is not None
    assert [len(word) for word in found] == [input_limits.WORD, input_limits.WORD, 8]
    assert words({"env": [{"name": "A", "value": "b" * 5_000}], "args": ["$(A)"] * 5}) is None


@pytest.mark.parametrize(
    "text", ["app in (" + ",".join("a" * 400_000) + ")", ",".join(["app=a"] * 65), "a" * 5_000, "x" * 3_000_000]
)
def test_a_selector_that_nobody_writes_selects_nothing(text: str) -> None:
    assert selector.parse(text) is None
