"""The benchmark of the loop runs with today's loop: it replaces parts of it by name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import reporting

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "thousand_pools.py"


def test_a_handful_of_pools_goes_through_all_phases() -> None:
    options = ("--pools", "5", "--ticks", "1", "--no-results")
    ran = subprocess.run([sys.executable, BENCHMARK, *options], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "pools: 5" in ran.stdout
    assert "ticks until all are warm: 1" in ran.stdout


def test_a_run_replaces_its_own_section_of_the_page_and_leaves_the_others() -> None:
    page = ""
    for name, seconds in (("5 pools", 1.5), ("7 pools, real API server", 2.5), ("5 pools", 3.5)):
        page = reporting.with_section(page, name, {"pools": 5, "steady": {"cpu_seconds": seconds}})
    first, second = page.split("## ")[1:]
    assert first.startswith("5 pools\n\npools: 5.")
    assert "| cpu seconds | 3.500 |" in first
    assert second.startswith("7 pools, real API server")
    assert "| cpu seconds | 2.500 |" in second
    assert page.count("# The loop") == 1
