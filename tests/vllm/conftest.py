"""A real vLLM on this machine's CPU, or a clear word on why there is none. Collected only where this folder is named."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from servingpool_lab.binaries import ensure_binaries
from servingpool_lab.go_modules import BuildError
from servingpool_lab.prometheus import Prometheus

from . import installation
from .engine import StartVllm, Vllm
from .notes import Note, note, pytest_terminal_summary, unless_named
from .run import Run, play
from .ticks import NAMESPACE, POD, OneTarget, Watch

__all__ = ["note", "pytest_terminal_summary"]
"""What pytest finds here."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return unless_named(Path(__file__).parent, config)


@pytest.fixture(scope="session")
def python() -> Path:
    """The Python that has vLLM. Skips where it cannot be had."""
    try:
        return installation.python()
    except installation.Unavailable as lacking:
        pytest.skip(f"no real vLLM: {lacking}")


@pytest.fixture(scope="session")
def prometheus_binary() -> Path:
    try:
        return ensure_binaries("prometheus")["prometheus"]
    except BuildError as lacking:
        pytest.skip(f"no real Prometheus: {lacking}")


@pytest.fixture(scope="session")
def start_vllm(python: Path, tmp_path_factory: pytest.TempPathFactory) -> StartVllm:
    """Start an engine with further options, wait until it serves, and stop it at the end."""

    @contextmanager
    def start(*options: str) -> Iterator[Vllm]:
        vllm = Vllm(python, tmp_path_factory.mktemp("vllm"), *options)
        try:
            yield vllm.start()
        finally:
            vllm.stop()

    return start


@pytest.fixture(scope="session")
def watch(prometheus_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Watch:
    """A Prometheus that scrapes an engine each second, with the labels that pod discovery would give."""

    def scrape(vllm: Vllm) -> OneTarget:
        labels = {"namespace": NAMESPACE, "pod": POD}
        return OneTarget(tmp_path_factory.mktemp("prometheus"), vllm.address, labels, binary=prometheus_binary)

    return scrape


@pytest.fixture(scope="module")
def engine(start_vllm: StartVllm) -> Iterator[Vllm]:
    """One engine for all tests that do not stop it."""
    with start_vllm() as vllm:
        yield vllm


@pytest.fixture(scope="module")
def prometheus(engine: Vllm, watch: Watch) -> Iterator[Prometheus]:
    with watch(engine) as server:
        yield server


@pytest.fixture(scope="module")
def run(engine: Vllm, prometheus: Prometheus, note: Note) -> Run:
    """A minute of traffic, seen by the client that sent it and by the operator that read of it in Prometheus."""
    played = asyncio.run(play(engine, prometheus))
    for line in (f"vLLM {engine.version}", *played.summary()):
        note(line)
    return played
