"""What the operator asks, and what scrapes for it: a Prometheus, Thanos over an HA pair, or VictoriaMetrics.

Each is a context that begins with the configuration of a scraping Prometheus and gives the URL that a backend has.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from servingpool_lab.binaries import ensure_binaries
from servingpool_lab.control_plane import free_ports
from servingpool_lab.go_modules import MODULES
from servingpool_lab.processes import SupervisedProcess, http_ready

from .operators import prometheus

Serve = Callable[[dict[str, Any], Path], AbstractContextManager[str]]
REPLICA = "replica"
"""Label by which the two servers of an HA pair differ."""


def programs(module: str) -> Mapping[str, Path]:
    """Programs of an optional Go module by name; the test is skipped where they are not built."""
    found = {one.name: MODULES[module].output_directory() / one.name for one in MODULES[module].programs}
    if not all(path.is_file() for path in found.values()):
        pytest.skip(f"{', '.join(found)} not built: python -m servingpool_lab.binaries {module}")
    return found


class Processes(ExitStack):
    """Processes with logs and data in one directory. They end together."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory = directory

    def run(self, name: str, *command: str | Path, ready: str) -> SupervisedProcess:
        """Start a program and wait until this URL answers."""
        process = SupervisedProcess(name, command, self.directory / f"{name}.log", ready=http_ready(ready))
        self.callback(process.stop)
        process.start().wait_ready()
        return process

    def scraper(self, configuration: dict[str, Any], name: str = "prometheus", **external: str) -> str:
        """URL of a Prometheus with these external labels."""
        (self.directory / name).mkdir()
        told = {**configuration, "global": {**configuration["global"], "external_labels": external}}
        return self.enter_context(prometheus(ensure_binaries("prometheus")["prometheus"], told, self.directory / name))


@dataclass(frozen=True)
class Store:
    """A part of the series, on this machine."""

    address: str
    """host:port that a querier asks."""
    process: SupervisedProcess


class Thanos(Processes):
    """Thanos' parts."""

    def sidecar(self, url: str, name: str = "sidecar") -> Store:
        """The sidecar of a Prometheus."""
        grpc, http = (f"127.0.0.1:{port}" for port in free_ports(2))
        process = self.run(
            name,
            programs("thanos")["thanos"],
            "sidecar",
            f"--prometheus.url={url}",
            f"--tsdb.path={self.directory}",
            f"--grpc-address={grpc}",
            f"--http-address={http}",
            ready=f"http://{http}/-/ready",
        )
        return Store(grpc, process)

    def querier(self, *flags: str, name: str = "query") -> str:
        """URL of a querier with these flags."""
        grpc, http = (f"127.0.0.1:{port}" for port in free_ports(2))
        own = (f"--grpc-address={grpc}", f"--http-address={http}", *flags)
        self.run(name, programs("thanos")["thanos"], "query", *own, ready=f"http://{http}/-/ready")
        return f"http://{http}"


class VictoriaMetrics(Processes):
    """VictoriaMetrics and its proxy."""

    def part(self, program: str, *flags: str) -> str:
        """URL of a started program."""
        address = f"127.0.0.1:{free_ports(1)[0]}"
        own = (f"-httpListenAddr={address}", *flags)
        self.run(program, programs("victoria-metrics")[program], *own, ready=f"http://{address}/health")
        return f"http://{address}"

    def server(self, *flags: str) -> str:
        """URL of a single server with these flags."""
        return self.part("victoria-metrics", f"-storageDataPath={self.directory / 'data'}", *flags)


def writing(configuration: dict[str, Any], url: str) -> dict[str, Any]:
    """The configuration, with what is scraped written to this server at once."""
    write = {"url": f"{url}/api/v1/write", "queue_config": {"batch_send_deadline": "100ms"}}
    return {**configuration, "remote_write": [write | {"send_native_histograms": True}]}


@contextmanager
def built(configuration: dict[str, Any], directory: Path) -> Iterator[str]:
    """The current Prometheus."""
    with Processes(directory) as parts:
        yield parts.scraper(configuration)


@contextmanager
def installed(configuration: dict[str, Any], directory: Path) -> Iterator[str]:
    """The distribution's Prometheus, where there is one."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("no prometheus on PATH to compare the built one with")
    with prometheus(program, configuration, directory) as url:
        yield url


@contextmanager
def thanos(configuration: dict[str, Any], directory: Path) -> Iterator[str]:
    """A querier over two Prometheus servers that scrape the same."""
    programs("thanos")
    with Thanos(directory) as parts:
        pair = {name: parts.scraper(configuration, name, **{REPLICA: name}) for name in ("a", "b")}
        stores = [parts.sidecar(url, f"sidecar-{name}") for name, url in pair.items()]
        flags = [f"--endpoint={one.address}" for one in stores]
        yield parts.querier(f"--query.replica-label={REPLICA}", *flags)


@contextmanager
def victoria_metrics(configuration: dict[str, Any], directory: Path) -> Iterator[str]:
    """VictoriaMetrics, to which a Prometheus writes."""
    programs("victoria-metrics")
    with VictoriaMetrics(directory) as parts:
        url = parts.server()
        parts.scraper(writing(configuration, url))
        yield url


@contextmanager
def victoria_metrics_scraping(configuration: dict[str, Any], directory: Path) -> Iterator[str]:
    """VictoriaMetrics, which scrapes by itself."""
    programs("victoria-metrics")
    file = directory / "scraped.yaml"
    file.write_text(yaml.safe_dump(configuration))
    with VictoriaMetrics(directory) as parts:
        yield parts.server(f"-promscrape.config={file}", "-promscrape.config.strictParse=false")


BACKENDS: Mapping[str, Serve] = {
    "prometheus": built,
    "installed": installed,
    "thanos": thanos,
    "victoria-metrics": victoria_metrics,
    "victoria-metrics-scraping": victoria_metrics_scraping,
}
