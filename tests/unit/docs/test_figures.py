"""Figures of the simulation that pages state. Those of the benchmarks are compared in benchmarks/test_evidence.py."""

from __future__ import annotations

import re

import pytest

from servingpool_simulation.hardware import engine_profile, profile_names
from servingpool_simulation.prices import DOLLARS_PER_GPU_HOUR, SPOT

from ...doc_pages import DOCS  # noqa: TID252, tests are no package of an installed name

ROOT = DOCS.parent
PRICED = {
    str(path.relative_to(ROOT)): found
    for path in [*sorted((DOCS / "how-to").glob("*.md")), *sorted((ROOT / "deploy/samples").glob("*.yaml"))]
    if (found := set(re.findall(r"costPerReplicaHour: ([\d.]+)", path.read_text())))
}
"""Prices in examples, by file."""
PROMPT = 2000


def idle(name: str) -> str:
    """TTFT and TPOT of an idle engine, as the page has them."""
    engine = engine_profile(name)
    dense = engine.dense_table()
    prefill = engine.prefill_base + PROMPT * (engine.prefill_per_token + engine.prefill_per_token_context * PROMPT / 2)
    decode = engine.decode_base + engine.decode_per_request + engine.decode_per_kv_token * PROMPT
    first, next_ = (dense[tokens] + attention for tokens, attention in ((PROMPT, prefill), (1, decode)))
    return f"{1000 * (first + engine.host_overhead):.0f} ms, {1000 * (next_ + engine.host_overhead):.0f} ms"


@pytest.mark.parametrize("name", PRICED)
def test_a_price_in_an_example_is_a_list_price(name: str) -> None:
    listed = {f"{price * part:.2f}" for price in DOLLARS_PER_GPU_HOUR.values() for part in (1.0, SPOT)}
    assert PRICED[name] <= listed


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
