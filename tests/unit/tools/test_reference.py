"""The reference pages that are generated."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from reference.__main__ import pages
from reference.markdown import table
from reference.series import keep_list
from servingpool.adapters.prometheus import page
from servingpool.adapters.prometheus.engines import shipped
from servingpool.adapters.prometheus.gateways import shipped_gateways

ROOT = Path(__file__).parents[3]
PROFILES = {**shipped(), **{f"gateway-{name}": each.metrics for name, each in shipped_gateways().items()}}


@cache
def generated() -> dict[str, str]:
    """Not made at import: each process of `make test` imports this file, and one of them runs it."""
    return pages()


def test_every_field_of_the_spec_has_a_meaning() -> None:
    spec = generated()["reference/api.md"].partition("## spec")[2].partition("## Columns")[0]
    rows = [line for line in spec.splitlines() if line.startswith("| `")]
    assert len(rows) > 20
    assert [row for row in rows if row.endswith("|  |")] == []


def test_every_key_of_the_configuration_file_has_a_meaning_and_every_duration_its_range() -> None:
    text = generated()["reference/configuration.md"].partition("## Configuration file")[2].partition("## Rights")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) > 30
    assert [row for row in rows if not row[3]] == []
    assert {"1s to 1m", "0s to 6h", "500ms to 1m", "1 to 8", "0 to 65535"} <= {row[2] for row in rows}


def test_exit_codes_of_every_command_are_in_the_table() -> None:
    text = generated()["reference/cli.md"]
    assert "5 the pool is not valid" in text
    assert "Exit codes:" not in text


def test_rights_are_those_of_the_operator_and_not_of_people() -> None:
    rights = generated()["reference/configuration.md"].partition("## Rights")[2]
    assert "| apps | deployments/scale | patch |" in rights
    assert "deletecollection" not in rights


def test_a_cell_is_one_line_that_no_bar_ends() -> None:
    assert table(["a"], [["x\n| <y>"]]).splitlines()[-1] == "| x \\| &lt;y> |"


@pytest.mark.parametrize("file", sorted((ROOT / "tests/fixtures").rglob("*.txt")), ids=lambda file: file.stem)
def test_a_page_that_is_cut_to_the_keep_list_of_its_engine_tells_the_same(file: Path) -> None:
    profile = PROFILES[max((name for name in PROFILES if file.stem.startswith(name)), key=len)]
    whole, kept = page.parse(file.read_text()), re.compile(keep_list(profile))
    found = page.find(profile, whole)
    buckets = {f"{one.series.name}_bucket" for one in found if one.series is not None}
    assert page.find(profile, [one for one in whole if kept.fullmatch(one.name)]) == found
    assert [one.name for one in whole if one.name in buckets and not kept.fullmatch(one.name)] == []


def test_the_monitor_to_copy_keeps_what_the_profile_of_vllm_reads() -> None:
    assert f'regex: "{keep_list(shipped()["vllm"])}"\n' in (ROOT / "docs/how-to/prometheus.md").read_text()
