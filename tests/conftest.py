"""Commands set up logging for their process; a test leaves it as it was. What the fuzzers did, and which files took long,
is told at the end."""

from __future__ import annotations

import gc
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from servingpool.cli.logs import QUIET

from .placing import chain, is_equipment
from .unit import fuzzing

ROOT = Path(__file__).parents[1]
SLOWEST = 25
"""So many files are listed with their seconds."""
settings.register_profile("virtual time", deadline=None)
settings.load_profile("virtual time")
OTHER_BACKENDS = ("thanos", "victoria-metrics", "victoria-metrics-scraping")


def pytest_addoption(parser: pytest.Parser) -> None:
    told = "read through this server in Prometheus' place, in the tests that can; may be repeated"
    parser.addoption("--backend", action="append", default=[], choices=OTHER_BACKENDS, help=told)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Modules and tests stay until the end: searching them for garbage was a third of a collection's CPU."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if is_equipment(item.path):
            item.add_marker(pytest.mark.equipment)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile` a file is whole in one process, and so is a chain of files."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]  # noqa: PLC0415, where it is used

    class Scheduling(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::", 1)[0]
            found = chain(ROOT / file)
            return file if found is None else f"chain {found}"

        def _reschedule(self, node: Any) -> None:
            """A process begins a test once it knows the one after it: a file is given no earlier, or it waits there."""
            if not self.workqueue or self._pending_of(self.assigned_work[node]) <= 1:
                super()._reschedule(node)

    return Scheduling(config, log)


def _kept() -> Iterator[None]:
    """As it was: pytest's own handlers too."""
    root, levels = logging.getLogger(), {name: logging.getLogger(name).level for name in (*QUIET, "root")}
    handlers = root.handlers[:]
    yield
    root.handlers[:] = handlers
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


@pytest.fixture(autouse=True, scope="module")
def _logging_of_a_module() -> Iterator[None]:
    """Of commands that a module's own fixtures run."""
    yield from _kept()


@pytest.fixture(autouse=True)
def _logging() -> Iterator[None]:
    yield from _kept()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A process of several hands over what it counted."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["fuzzed"], output["longest"] = dict(fuzzing.counted), fuzzing.longest


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Take what such a process counted."""
    fuzzing.counted.update(getattr(node, "workeroutput", {}).get("fuzzed", {}))
    for what, figure in getattr(node, "workeroutput", {}).get("longest", {}).items():
        fuzzing.worst(what, figure)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    files, tests = Counter[str](), Counter[str]()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                file = report.nodeid.split("::", 1)[0]
                files[file] += report.duration  # type: ignore[assignment]
                tests[file] += report.when == "call"
    if len(files) > SLOWEST:
        terminalreporter.section(f"seconds and tests of the {SLOWEST} slowest of {len(files)} files")
        for file, seconds in files.most_common(SLOWEST):
            terminalreporter.write_line(f"{seconds:8.1f} {tests[file]:6} {file}")
    if fuzzing.counted:
        terminalreporter.section(f"fuzzed with FUZZ_SEED={fuzzing.SEED}")
        for test, count in sorted(fuzzing.counted.items()):
            terminalreporter.write_line(f"{count:>9,} {test}")
        for what, figure in sorted(fuzzing.longest.items()):
            terminalreporter.write_line(f"{figure:>9,.3f} {what}")
