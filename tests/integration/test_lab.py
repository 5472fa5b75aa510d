"""`servingpool lab` as a person runs it: everything real but the GPUs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from servingpool_lab.processes import wait_until

from .operators import PATIENCE


@dataclass
class Run:
    process: subprocess.Popen[bytes]
    output: Path
    directory: Path

    @property
    def said(self) -> str:
        return self.output.read_text()

    def says(self, what: str) -> bool:
        if self.process.poll() is not None and what not in self.said:
            raise AssertionError(f"exited with {self.process.returncode} before it said {what!r}:\n{self.said}")
        return what in self.said

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def part(self, argument: str) -> psutil.Process:
        (found,) = [child for child in self.children() if argument in child.cmdline()]
        return found


@pytest.fixture
def lab(binaries: dict[str, Path], tmp_path: Path) -> Iterator[Run]:
    directory, output = tmp_path / "lab", tmp_path / "output.txt"
    # A shell that starts tests in the background lets them ignore Ctrl-C, and so would the lab.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    command = [*(sys.executable, "-m", "servingpool.cli.main", "lab", "--no-live"), *("--load-seconds", "5")]
    with output.open("wb") as file:
        process = subprocess.Popen(
            [*command, "--directory", str(directory)], stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    run = Run(process, output, directory)
    yield run
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE)


def gone(children: list[psutil.Process]) -> bool:
    return not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children)


def test_decides_scales_and_leaves_nothing_behind(lab: Run) -> None:
    wait_until(lambda: lab.says("first decision"), PATIENCE, "first decision")
    assert "This will" in lab.said.split("Starting")[0]
    wait_until(
        lambda: lab.says("req/s  1,") or lab.says("req/s  2,") or lab.says("ScaleUp"), PATIENCE, "traffic decided on"
    )
    children = lab.children()
    assert len(children) >= 8, [child.name() for child in children]

    lab.process.send_signal(signal.SIGINT)

    assert lab.process.wait(PATIENCE) == 0, lab.said
    wait_until(lambda: gone(children), PATIENCE, "every process ended")
    assert "Stopped everything" in lab.said
    record = json.loads((lab.directory / "record.json").read_text())
    assert record["score"]["arrived"] > 0
    assert record["score"]["attainment"] > 0.5
    assert record["first_decision_seconds"] > 0
    assert record["best_static"]["replicas"] == 3
    assert {"etcd.log", "kube-apiserver.log", "emulator.log", "operator.log"} <= {
        log.name for log in (lab.directory / "logs").iterdir()
    }


def test_a_part_that_dies_takes_the_rest_with_it_and_is_named(lab: Run) -> None:
    wait_until(lambda: lab.says("get servingpools --watch"), PATIENCE, "everything runs")
    children = lab.children()
    lab.part("servingpool_lab.emulator").kill()
    assert lab.process.wait(PATIENCE) == 1, lab.said
    assert "emulated fleet stopped unexpectedly" in lab.said
    wait_until(lambda: gone(children), PATIENCE, "every process ended")


def test_a_second_lab_in_the_same_directory_is_refused_and_sigterm_during_the_start_stops_the_first(lab: Run) -> None:
    wait_until(lambda: lab.says("kube-scheduler, kwok\n"), PATIENCE, "control plane started")
    second = subprocess.run(
        [sys.executable, "-m", "servingpool.cli.main", "lab", "--no-live", "--directory", str(lab.directory)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert second.returncode == 2
    assert f"another lab (pid {lab.process.pid}) runs in {lab.directory}" in second.stderr
    children = lab.children()
    assert len(children) >= 5
    lab.process.send_signal(signal.SIGTERM)
    assert lab.process.wait(PATIENCE) == 0, lab.said
    wait_until(lambda: gone(children), PATIENCE, "every process ended")
