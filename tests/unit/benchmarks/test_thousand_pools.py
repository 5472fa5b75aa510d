"""The benchmark of the loop runs with today's loop: it replaces parts of it by name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "thousand_pools.py"


def test_a_handful_of_pools_goes_through_all_phases() -> None:
    options = ("--pools", "5", "--ticks", "1", "--no-results")
    ran = subprocess.run([sys.executable, BENCHMARK, *options], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "pools: 5" in ran.stdout
    assert "ticks until all are warm: 1" in ran.stdout
