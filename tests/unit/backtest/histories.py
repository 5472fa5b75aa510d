"""A fixed fleet's history, in memory or as a file."""

from __future__ import annotations

from pathlib import Path

from recorded_history import header_of
from recorded_history import recorded as recorded_by

from servingpool.decision.pool import Pool, Slo
from servingpool.recording.format import Chunk, Header, encode, encode_header
from servingpool_simulation.hardware import EngineProfile
from servingpool_simulation.policies import Static
from servingpool_simulation.run import Result, SimulationOptions
from servingpool_simulation.scrape import ScrapeOptions
from servingpool_simulation.traces import Trace

__all__ = ["POOL", "SLO", "header_of", "recorded", "write"]

SLO = Slo(2.0, 0.15)
POOL = Pool(SLO, 1, 16)


def recorded(trace: Trace, profile: EngineProfile, replicas: int) -> tuple[Header, list[Chunk], Result]:
    """Of a fixed fleet, scraped each 15 s."""
    options = SimulationOptions(scrape=ScrapeOptions(interval=15.0), initial_replicas=replicas)
    return recorded_by(trace, profile, POOL, Static(replicas), options)


def write(path: Path, header: Header, chunks: list[Chunk]) -> None:
    """As `servingpool record` does."""
    path.write_bytes(encode_header(header) + b"".join(map(encode, chunks)))
