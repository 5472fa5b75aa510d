"""Published figures of prefill and decode apart beside the model: the page tells what the model gives."""

from __future__ import annotations

from typing import Any

import prefill_decode_published as published
import pytest
from prefill_decode import INTRODUCTION, PAGE, PUBLISHED, parted
from stated import STAMP

from servingpool_simulation.disaggregated import decode_profile, prefills
from servingpool_simulation.hardware import EngineProfile, engine_profile

CHEAP = ("prefill", "decode", "alone", "transfer", "handover", "open")
"""Kinds that take less than a second; the others search for a rate or serve thousands."""


def figures(*kinds: str) -> list[dict[str, Any]]:
    return [setup for setup in published.data()["figures"] if setup["kind"] in kinds]


@pytest.mark.parametrize("setup", figures(*CHEAP), ids=lambda setup: f"{setup['kind']} {setup.get('profile', '')}")
def test_the_page_has_what_the_model_gives(setup: dict[str, Any]) -> None:
    assert published.cells(published.row(setup)) in parted(PAGE.read_text())[1].splitlines()


def test_a_slower_engine_shows_in_the_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    (setup,) = (one for one in figures("prefill") if one["profile"] == "a100-70b-tp8")
    usual = published.row(setup)

    def slow(name: str) -> EngineProfile:
        return engine_profile(name).scaled(2.0)

    monkeypatch.setattr(published, "engine_profile", slow)
    assert published.row(setup).ratios == pytest.approx([2.0 * ratio for ratio in usual.ratios])


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


def test_the_highest_rate_that_holds_is_found() -> None:
    assert published.highest(lambda rate: rate <= 7.3) == pytest.approx(7.3, abs=0.05)


def test_the_other_benchmark_keeps_this_section() -> None:
    own, rest = parted(STAMP.sub("", PAGE.read_text()))
    assert own.startswith(INTRODUCTION)
    assert rest.startswith(f"\n{PUBLISHED}\n")
    assert parted("nothing yet\n") == ("nothing yet\n", "")


def test_the_section_names_each_source_and_what_is_left_out() -> None:
    rows = [
        published.Row(setup, tuple(2.0 * value for value in setup["published"])) for setup in figures(*published.KINDS)
    ]
    text = "\n".join(published.section(rows, busy="half of the time", slower="99%"))
    assert text.startswith(PUBLISHED)
    assert "TTFT is 2.00 to 2.00" in text
    assert "{" not in text
    for source in published.data()["sources"].values():
        assert source["url"] in text
