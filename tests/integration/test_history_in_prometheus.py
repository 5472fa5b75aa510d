"""A simulated fleet's history in a real Prometheus is recorded from it as it was handed in."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parents[2] / "benchmarks")]

from history_in_prometheus import through_prometheus  # noqa: E402
from recorded_history import recorded  # noqa: E402

from servingpool.decision.pool import Pool, Slo  # noqa: E402
from servingpool.recording.format import Chunk  # noqa: E402
from servingpool_simulation.hardware import engine_profile  # noqa: E402
from servingpool_simulation.policies import Static  # noqa: E402
from servingpool_simulation.run import SimulationOptions  # noqa: E402
from servingpool_simulation.scrape import EPOCH, ScrapeOptions  # noqa: E402
from servingpool_simulation.traces import poisson  # noqa: E402

POOL = Pool(Slo(2.0, 0.15), 1, 4)
AWAY = (600.0, 1200.0)
Row = dict[str, object]


def rows(chunks: list[Chunk]) -> dict[tuple[int, int], Row]:
    """All of each scrape but its pod's name, by the pod's place and the time in milliseconds."""
    pods = sorted({one.pod for chunk in chunks for one in chunk.scrapes})
    found: dict[tuple[int, int], Row] = {}
    for chunk in chunks:
        for one in chunk.scrapes:
            for index, at in enumerate(one.at.tolist()):
                row: Row = {name: values[index] for name, values in one.figures.items()}
                for name, shown in one.histograms.items():
                    row[name] = (shown.total[index], shown.count[index])
                    if name in {"time_to_first_token", "time_per_output_token"}:
                        row[f"{name} buckets"] = dict(zip(shown.bounds, shown.counts[index].tolist(), strict=True))
                found[pods.index(one.pod), round(1000 * at)] = row
    return found


@pytest.mark.parametrize(
    ("scrape", "outages"),
    [(ScrapeOptions(interval=15.0), []), (ScrapeOptions(interval=30.0, lost_share=0.05), [AWAY])],
    ids=["each 15 s", "each 30 s, with gaps"],
)
def test_a_history_is_recorded_as_it_was(
    scrape: ScrapeOptions, outages: list[tuple[float, float]], tmp_path: Path
) -> None:
    """The fleet went to zero ten minutes before the end: the last time asked for shows no pod and no bucket."""
    trace = poisson("history", [3.0, 6.0], 900.0, prompt=500, output=100)
    options = SimulationOptions(scrape=scrape, initial_replicas=2)
    header, handed, _ = recorded(trace, engine_profile("h100-8b-tp1"), POOL, Static(2), options, outages)
    header = header.model_copy(update={"end": header.end + 600.0})
    away = [(EPOCH + begin, EPOCH + end) for begin, end in outages]
    read = through_prometheus(header, handed, scrape.interval, away, tmp_path)
    assert rows(read) == rows(handed)
