"""The page's figures come from the record, and the record's from the clients'."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "benchmarks")]

from rivals.__main__ import DIRECTORY, PAGE, RECORD  # noqa: E402
from rivals.page import attainment, page, worst  # noqa: E402
from rivals.record import FleetRecord, Record, Simulated, by_minute, judged  # noqa: E402
from rivals.run import simulated  # noqa: E402
from rivals.scene import FLEETS, OURS, traffic  # noqa: E402

CLIENTS = DIRECTORY / "clients.json"


@pytest.fixture(scope="module")
def record() -> Record:
    return Record.read(RECORD)


@pytest.mark.parametrize("written", sorted(PAGE.parent.glob("rivals*.md")), ids=lambda path: path.stem)
def test_a_page_is_written_from_its_record(written: Path) -> None:
    assert written.read_text() == page(Record.read(written.with_suffix(".json")))


def test_every_request_of_every_fleet_is_counted_once(record: Record) -> None:
    assert record.sent == by_minute(traffic(record.minutes))
    assert record.fleets.keys() | record.absent.keys() == FLEETS.keys()
    for found in record.fleets.values():
        counts = zip(found.met, found.late, found.slow, found.lost, record.sent, strict=True)
        assert all(sum(each[:4]) <= each[4] for each in counts)
        assert sum(found.met) > 0


@pytest.mark.skipif(
    not CLIENTS.is_file(), reason="the run was not on this machine: its clients' records are not committed"
)
def test_the_record_is_that_of_the_clients(record: Record) -> None:
    trace, clients = traffic(record.minutes), json.loads(CLIENTS.read_text())
    for name, found in record.fleets.items():
        assert judged(clients[name]["clients"], trace) == {
            "met": found.met,
            "late": found.late,
            "slow": found.slow,
            "lost": found.lost,
        }


def test_the_simulated_figures_are_those_of_this_commit(record: Record) -> None:
    for name in (OURS, "hpa-running"):
        assert simulated(FLEETS[name], traffic(record.minutes)) == record.fleets[name].simulated


def test_the_worst_ten_minutes_are_those_with_most_misses() -> None:
    met = [10] * 30
    met[17] = 2
    met[25] = 9
    found = FleetRecord(met, [0] * 30, [0] * 30, [0] * 30, [3] * 120, 1.5, [], Simulated(1.0, 1.5, 0))
    one = worst(found, [10] * 30)
    assert one.begin <= 17
    assert one.end > 25
    assert (one.sent - one.met, one.replicas) == (9, [3] * 40)
    assert attainment(found, [10] * 30) == pytest.approx(291 / 300)
