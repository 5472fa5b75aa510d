"""Published figures of prefill and decode apart beside the model: the page tells what the model gives."""

from __future__ import annotations

from typing import Any

import prefill_decode_published as published
import pytest
from prefill_decode import PAGE, parted

from servingpool_simulation.disaggregated import decode_profile, prefills

CHEAP = ("prefill", "decode", "alone", "transfer", "handover", "open")
"""Kinds that take less than a second; the others search for a rate or serve thousands."""


def figures(*kinds: str) -> list[dict[str, Any]]:
    return [setup for setup in published.data()["figures"] if setup["kind"] in kinds]


@pytest.mark.parametrize("setup", figures(*CHEAP), ids=lambda setup: f"{setup['kind']} {setup.get('profile', '')}")
def test_the_page_has_what_the_model_gives(setup: dict[str, Any]) -> None:
    assert published.cells(published.row(setup)) in parted(PAGE.read_text())[1].splitlines()


def test_every_figure_names_where_it_was_published() -> None:
    given = published.data()
    for setup in given["figures"]:
        assert setup["kind"] in published.KINDS
        assert setup["group"] in given["groups"]
        assert {setup["source"], setup.get("input", setup["source"])} <= given["sources"].keys()
    for source in given["sources"].values():
        assert source["url"].startswith("https://")
        assert source["licence"]


@pytest.mark.parametrize("name", ["distserve", "vllm-2024"])
def test_an_engine_takes_as_long_as_its_published_fit(name: str) -> None:
    prefill, decode = published.measured_engines(name)
    (base, token, pair), (every, kv_token, request) = (
        published.data()["engines"][name][one] for one in ("prefill", "decode")
    )
    first = published.fleet(prefill, 1).run(prefills(published.fixed([0.0], 512, 2, 60.0)), seed=0)
    assert first.outcomes.ttft == pytest.approx([1e-3 * (base + 512 * token + 512**2 * pair)], rel=0.01)
    batch = published.fleet(decode_profile(decode), 1).run(published.fixed([0.0] * 20, 512, 63, 60.0), seed=0)
    # In the mean over its 63 tokens, a request holds 512 of the prompt and half of them.
    mean = every + 20 * request + 20 * (512 + 32) * kv_token
    assert batch.outcomes.tpot == pytest.approx([1e-3 * mean] * 20, rel=0.02)
