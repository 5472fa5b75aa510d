"""The benchmark of the loop runs with today's loop: it replaces parts of it by name."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from itertools import count
from pathlib import Path

import measuring
import pytest
import reporting
from traffic import GAUGES, Traffic

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


def test_a_second_of_two_parts_that_wait_beside_each_other_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("measuring.time.process_time", count().__next__)
    meter = measuring.Meter()

    async def write() -> None:
        with meter.part("write"):
            await asyncio.sleep(0)
            with meter.part("status"):
                pass

    async def both() -> None:
        await asyncio.gather(write(), write())

    asyncio.run(both())
    assert meter.take(10.0) == {"write": 5.0, "status": 2.0, "other": 3.0}


def test_the_past_of_the_bench_serves_between_two_minutes_too() -> None:
    traffic = Traffic(1, 2, 2, seed=1, begin=7200.0)
    before, after = ({one.name: one.values for one in traffic.at(when)} for when in (5000.0, 5015.0))
    assert (after["vllm:request_success_total"] > before["vllm:request_success_total"]).all()
    assert all((after[name] == before[name]).all() for name in GAUGES)
