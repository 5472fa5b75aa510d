"""Whatever people write as a selector or as a command: it is read within its bounds, and what is plain is understood."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from servingpool.adapters.cluster import drain, input_limits, selector
from servingpool.adapters.cluster.arguments import batch_limit, words_of
from servingpool.decision.observation import Unknown

from ...fuzzing import fuzzed  # noqa: TID252, tests are no package of an installed name

ODD = st.text(max_size=40) | st.sampled_from(
    ("'", '"', "\\", "$(A)", "${A}", "$A", "a" * 5_000, "# no", "\x00", "\n", "=", "--max-num-seqs", "-np", "sh", "-c")
)
LINES = st.lists(ODD, max_size=12).map(" ".join)
NAMES = st.from_regex("[a-z]([-a-z0-9./]{0,12}[a-z0-9])?", fullmatch=True)
VALUES = st.from_regex("([a-z0-9]([-a-z0-9.]{0,12}[a-z0-9])?)?", fullmatch=True)
LABELS = st.dictionaries(NAMES, VALUES, max_size=5)


@fuzzed(1.0)
@given(text=LINES | st.text(alphabet="ab,=!() in\tt", max_size=200), labels=LABELS)
def test_any_text_is_a_selector_within_bounds_or_none(text: str, labels: dict[str, str]) -> None:
    found = selector.parse(text)
    if found is not None:
        assert 0 < len(found.terms) <= input_limits.SELECTOR_TERMS
        assert all(term.key and not term.key.isspace() for term in found.terms)
        assert found.admits(labels) is all(term.admits(labels) for term in found.terms)


@st.composite
def terms(draw: st.DrawFn) -> tuple[str, Any]:
    """A term as the API server writes it, and whether labels meet it."""
    key, values = draw(NAMES), draw(st.lists(VALUES, min_size=1, max_size=4))
    one, several = values[0], ",".join(values)
    chosen: tuple[str, Any] = draw(
        st.sampled_from(
            (
                (f"{key}={one}", lambda labels: labels.get(key) == one),
                (f"{key}!={one}", lambda labels: labels.get(key) != one),
                (f"{key} in ({several})", lambda labels: labels.get(key) in values),
                (f"{key} notin ({several})", lambda labels: labels.get(key) not in values),
                (key, lambda labels: key in labels),
                (f"!{key}", lambda labels: key not in labels),
            )
        )
    )
    return chosen


@fuzzed(1.0)
@given(written=st.lists(terms(), min_size=1, max_size=6), labels=LABELS, known=st.booleans())
def test_a_selector_selects_as_the_api_server_does(
    written: list[tuple[str, Any]], labels: dict[str, str], *, known: bool
) -> None:
    if known:  # labels that some of the terms are about
        labels = labels | {text.lstrip("!").partition("=")[0].partition(" ")[0].rstrip("!"): "a" for text, _ in written}
    found = selector.parse(",".join(text for text, _ in written))
    assert found is not None
    assert found.admits(labels) is all(meets(labels) for _, meets in written)


CONTAINERS = st.fixed_dictionaries(
    {"name": st.just("a"), "image": st.sampled_from(("", "vllm/vllm-openai", "ollama/ollama", "llama.cpp"))},
    optional={
        "command": st.lists(LINES, max_size=4),
        "args": st.lists(LINES, max_size=6),
        "env": st.lists(st.fixed_dictionaries({"name": NAMES | st.just("A")}, optional={"value": ODD}), max_size=3),
        "lifecycle": st.fixed_dictionaries(
            {
                "preStop": st.fixed_dictionaries(
                    {"exec": st.fixed_dictionaries({"command": st.lists(LINES, max_size=4)})}
                )
            }
        ),
    },
)


@fuzzed(1.0)
@given(containers=st.lists(CONTAINERS, max_size=3))
def test_any_command_is_read_within_bounds(containers: list[dict[str, Any]]) -> None:
    said = words_of(containers)
    assert sum(len(word) for each in said for word in each or ()) <= input_limits.ARGUMENTS
    assert all(len(word) <= input_limits.WORD for each in said for word in each or () if "$" in word)
    assert batch_limit(containers, said) >= 1.0
    found = drain.read_drain({"containers": containers}, said)
    for seconds in (found.grace, found.pre_stop, found.shutdown_timeout):
        assert isinstance(seconds, Unknown) or (seconds >= 0.0 and not math.isnan(seconds))


PLAIN = st.from_regex("--?[a-oq-z][a-z-]{0,12}(=[a-z0-9/]{0,12})?|[a-z0-9/.]{1,20}", fullmatch=True).filter(
    lambda word: not word.startswith(("--data-parallel", "-dp", "--dp")) and "ollama" not in word
)


@fuzzed(1.0)
@given(
    before=st.lists(PLAIN, max_size=6),
    after=st.lists(PLAIN, max_size=6),
    limit=st.integers(1, 10_000),
    form=st.sampled_from(("args", "equals", "script", "variable")),
)
def test_an_option_is_found_among_any_others(before: list[str], after: list[str], limit: int, form: str) -> None:
    option = [f"--max-num-seqs={limit}"] if form == "equals" else ["--max-num-seqs", str(limit)]
    container: dict[str, Any] = {"image": "vllm/vllm-openai", "args": ["serve", *before, *option, *after]}
    if form == "script":
        container |= {"command": ["/bin/sh", "-c"], "args": [f"exec vllm {' '.join(container['args'])}"]}
    elif form == "variable":
        variable = {"name": "SEQS", "value": str(limit)}
        container |= {"env": [variable], "args": ["serve", *before, "--max-num-seqs=$(SEQS)", *after]}
    assert batch_limit([container]) == float(limit)
