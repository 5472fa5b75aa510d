"""Figures that several pages state: one file holds each, and the others agree with it."""

from __future__ import annotations

import re

import pytest

from servingpool_simulation.hardware import engine_profile, profile_names
from servingpool_simulation.prices import DOLLARS_PER_GPU_HOUR, SPOT

from ...doc_pages import DOCS  # noqa: TID252, tests are no package of an installed name

ROOT = DOCS.parent
MEASURED = (DOCS / "benchmarks/thousand-pools.md").read_text()
GUARD = (DOCS / "benchmarks/guard.md").read_text()
INTERVAL = 15.0
PHASES = 3
"""The last columns of a table of `make bench`: after the start, a day on, and idle."""
PRICED = {
    str(path.relative_to(ROOT)): found
    for path in [*sorted((DOCS / "how-to").glob("*.md")), *sorted((ROOT / "deploy/samples").glob("*.yaml"))]
    if (found := set(re.findall(r"costPerReplicaHour: ([\d.]+)", path.read_text())))
}
"""Prices in examples, by file."""
DAYS = {"a day of 150 clients": "clients-day", "a day of conversations": "conv-day", "a day of code bursts": "code-day"}


PROMPT = 2000


def idle(name: str) -> str:
    """TTFT and TPOT of an idle engine, as the page has them."""
    engine = engine_profile(name)
    dense = engine.dense_table()
    prefill = engine.prefill_base + PROMPT * (engine.prefill_per_token + engine.prefill_per_token_context * PROMPT / 2)
    decode = engine.decode_base + engine.decode_per_request + engine.decode_per_kv_token * PROMPT
    first, next_ = (dense[tokens] + attention for tokens, attention in ((PROMPT, prefill), (1, decode)))
    return f"{1000 * (first + engine.host_overhead):.0f} ms, {1000 * (next_ + engine.host_overhead):.0f} ms"


def highest(pools: int, figure: str) -> float:
    """The highest of the last phases, of a run with so many pools."""
    table = MEASURED.partition(f"## {pools} pools\n")[2].partition("\n## ")[0]
    [cells] = re.findall(rf"^\| {figure} \|(.+)\|$", table, re.MULTILINE)
    return max(float(cell.replace(",", "")) for cell in cells.split("|")[-PHASES:])


@pytest.mark.parametrize("pools", [1000, 5000])
def test_what_it_costs_to_run_is_what_was_measured(pools: int) -> None:
    seconds, memory = highest(pools, "cpu seconds"), f"{highest(pools, 'rss mib'):.0f} MiB"
    queries, writes = highest(pools, "queries"), highest(pools, "status writes")
    row = f"| {pools:,} | {seconds:.1f} s | {memory} | {queries:.0f} | {writes:,.0f} |"
    assert row in (DOCS / "explanation/evidence.md").read_text()
    cores = f"{seconds / INTERVAL:.1f} cores"
    assert f"{memory} and {cores} at {pools:,}" in (ROOT / "charts/servingpool-operator/values.yaml").read_text()
    if pools == 1000:
        index = (DOCS / "index.md").read_text()
        assert f"{cores} and {memory} at {pools:,} pools" in index
        assert f"{queries:.0f} queries every 15 s for {pools:,} pools" in index
        assert f"{pools:,} pools take {cores}" in (DOCS / "operate/alerts.md").read_text()


@pytest.mark.parametrize("name", PRICED)
def test_a_price_in_an_example_is_a_list_price(name: str) -> None:
    listed = {f"{price * part:.2f}" for price in DOLLARS_PER_GPU_HOUR.values() for part in (1.0, SPOT)}
    assert PRICED[name] <= listed


def test_the_readme_has_the_figures_of_the_guard() -> None:
    readme = (ROOT / "README.md").read_text()
    rows = dict(re.findall(r"^\| ([\w-]+|\*\*all\*\*) \| (.+) \|$", GUARD, re.MULTILINE))
    for title, case in DAYS.items():
        met, cost, *_ = rows[case].split(" | ")
        assert f"| {title} | {met} | {cost}× |" in readme
    held, cost, after, saved = (cell.partition(" held")[0] for cell in rows["**all**"].split(" | "))
    assert f"| 23 cases after ten minutes, held with every seed | {held} | {cost}× |" in readme
    assert f"| the same after two hours of history | {after} | {saved}× |" in readme


def test_what_an_idle_engine_takes_is_that_of_the_profiles() -> None:
    page = (DOCS / "how-to/choose-an-slo.md").read_text()
    rows = re.findall(r"^\| (\d+)B, (\d) \| (.+) \|$", page, re.MULTILINE)
    shown = {
        f"{gpu}-{size}b-tp{parallel}": cell.strip()
        for size, parallel, cells in rows
        for gpu, cell in zip(("h100", "h200", "a100", "l40s"), cells.split("|"), strict=True)
        if cell.strip()
    }
    assert shown == {name: idle(name) for name in profile_names()}
