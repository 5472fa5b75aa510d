from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from xml.etree import ElementTree as ET

import pytest

from servingpool.decision.pool import Pool, Slo
from servingpool_simulation.demo import Comparison, compare
from servingpool_simulation.report.conclusion import conclude
from servingpool_simulation.report.course import picture
from servingpool_simulation.report.page import page, tuned

Imagine = Callable[..., Comparison]


@pytest.fixture(scope="module")
def html(comparison: Comparison) -> str:
    return page(comparison, "servingpool demo --seed 7")


@pytest.mark.parametrize("section", ["policies", "course", "frontier", "changes", "variants", "ground", "again"])
def test_every_section_is_there(html: str, section: str) -> None:
    assert html.count(f'<section id="{section}">') == 1


def test_it_needs_nothing_besides_itself(html: str) -> None:
    assert not re.findall(r"<(?:script|link|img|iframe|object|embed)\b", html)
    assert not re.findall(r'\b(?:src|href)="(?!#)', html)
    assert not re.findall(r"@import|url\((?!#)", html)
    assert len(html) < 3_000_000


def test_no_id_is_taken_twice(html: str) -> None:
    twice = [name for name, times in Counter(re.findall(r'\sid="([^"]*)"', html)).items() if times > 1]
    assert twice == []


def test_every_reference_within_a_plot_has_its_target(html: str) -> None:
    ids = set(re.findall(r'\sid="([^"]*)"', html))
    references = set(re.findall(r'(?:url\(|href=")#([^")]*)', html))
    assert references
    assert references <= ids


def test_every_policy_is_in_the_table_with_its_word(comparison: Comparison, html: str) -> None:
    text = unescape(html)
    for entry in comparison.entries:
        assert f"<th>{entry.label}<small>{entry.settings}</small></th>" in text
    assert text.count(" held</td>") == sum(entry.held for entry in comparison.entries)
    assert text.count(" MISSED</td>") == sum(not entry.held for entry in comparison.entries)


def test_every_change_is_told_with_reason_and_limits(comparison: Comparison, html: str) -> None:
    text = unescape(html)
    for change in comparison.ours.changes:
        assert change.reason in text
        assert change.decision is not None
        for limit in change.decision.limits:
            assert f"{limit.name}: {limit.before} → {limit.after}, {limit.reason}" in text


def test_it_leads_with_the_computed_conclusion(comparison: Comparison, imagine: Imagine, html: str) -> None:
    assert conclude(comparison).head in html
    lost = page(imagine(peak=(0.99, 10.0), ours=(0.9, 3.0)), "")
    assert 'class="verdict missed"' in lost
    assert "servingpool missed the SLO" in lost


def test_it_tells_what_it_rests_on_and_how_to_run_it_again(html: str) -> None:
    text = unescape(html)
    for said in ("no GPU ran", "aiconfigurator", "Apache-2.0", "servingpool demo --seed 7", "starts with"):
        assert said in text


def test_cost_is_shown_only_with_a_price(comparison: Comparison, html: str) -> None:
    assert "$2.5 a GPU-hour" in html
    setup = comparison.setup
    free = replace(setup, trace=setup.trace.between(0.0, 300.0), options=replace(setup.options, price=None))
    assert "a GPU-hour" not in page(compare(free), "")


def test_it_is_the_same_on_every_run(comparison: Comparison, html: str) -> None:
    assert page(comparison, "servingpool demo --seed 7") == html


def test_a_slo_without_ttft_bound_and_no_policy_that_holds_it_still_make_a_page(comparison: Comparison) -> None:
    trace = comparison.setup.trace.between(0.0, 300.0)
    found = compare(replace(comparison.setup, trace=trace, pool=Pool(Slo(None, 0.0001, 0.95), 1, 2)))
    text = page(found, "")
    assert "no policy held it" in text
    assert "no size holds the SLO" not in text  # without a best static fleet there is no such column
    assert "no bound" in text
    assert "at none of these targets" in tuned(found)


def test_the_picture_is_one_small_svg(comparison: Comparison) -> None:
    drawn = picture(comparison)
    ET.fromstring(drawn)
    assert len(drawn) < 200_000
    for label in ("servingpool", "HPA on running", "llm-d slo-aware", "SLO: 2s", "requests/s", "replicas", "minutes"):
        assert f">{label}</text>" in drawn
    assert drawn == picture(comparison)
