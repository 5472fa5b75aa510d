"""A real vLLM on this machine's CPU, or a clear word on why there is none. Collected only where this folder is named."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from servingpool_lab.binaries import ensure_binaries
from servingpool_lab.go_modules import BuildError
from servingpool_lab.prometheus import Prometheus

from . import installation
from .engine import StartVllm, Vllm
from .notes import Note, note, pytest_terminal_summary, unless_named
from .pair import Pair, joined
from .pair_run import PairRun
from .pair_run import play as play_through
from .run import Run, play
from .ticks import POD, FixedTargets, Watch

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
    """A Prometheus that scrapes engines each second, with the labels that pod discovery would give."""

    def scrape(engines: Mapping[str, Vllm]) -> FixedTargets:
        addresses = {pod: vllm.address for pod, vllm in engines.items()}
        return FixedTargets(tmp_path_factory.mktemp("prometheus"), addresses, binary=prometheus_binary)

    return scrape


@pytest.fixture(scope="module")
def engine(start_vllm: StartVllm) -> Iterator[Vllm]:
    """One engine for all tests that do not stop it."""
    with start_vllm() as vllm:
        yield vllm


@pytest.fixture(scope="module")
def prometheus(engine: Vllm, watch: Watch) -> Iterator[Prometheus]:
    with watch({POD: engine}) as server:
        yield server


@pytest.fixture(scope="module")
def run(engine: Vllm, prometheus: Prometheus, note: Note) -> Run:
    """A minute of traffic, seen by the client that sent it and by the operator that read of it in Prometheus."""
    played = asyncio.run(play(engine, prometheus))
    for line in (f"vLLM {engine.version}", *played.summary()):
        note(line)
    return played


@pytest.fixture(scope="module")
def pair(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A prefill engine and a decode engine. Skips where that Python lacks NIXL."""
    if not installation.has(python, "nixl"):
        pytest.skip("no prefill and decode engines: NIXL joins them, and `import nixl` fails in vLLM's Python")
    try:
        installation.check_memory(installation.MEMORY_OF_A_PAIR)
    except installation.Unavailable as lacking:
        pytest.skip(f"no prefill and decode engines: {lacking}")
    with joined(python, tmp_path_factory.mktemp("pair")) as engines:
        yield engines


@pytest.fixture(scope="module")
def pair_run(pair: Pair, watch: Watch, note: Note) -> PairRun:
    """A minute of traffic through both, seen by the client that sent it and by the operator of a pool with roles."""
    with watch(pair.pods) as server:
        played = asyncio.run(play_through(pair, server))
    for line in (f"vLLM {pair.prefill.version}, prefill and decode by NIXL", *played.summary()):
        note(line)
    return played
