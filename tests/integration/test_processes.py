"""Children are stopped in order, killed when they refuse, and die with their parent."""

import os
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

from servingpool_lab.processes import (
    ProcessError,
    ProcessGroup,
    SupervisedProcess,
    wait_until,
)

from .operators import PATIENCE

STUBBORN = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(60)
"""

PARENT = """
import os, signal, sys
from pathlib import Path
from servingpool_lab.processes import SupervisedProcess
child = SupervisedProcess("child", ["sleep", "60"], Path(sys.argv[1])).start()
print(child.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def says_up(log: Path) -> bool:
    return "up" in log.read_text()


def alive(pid: int) -> bool:
    try:
        # A zombie is dead: it waits only for its parent to look.
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="parent-death signals are Linux's")
def test_a_child_does_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.run(
        [sys.executable, "-c", PARENT, str(tmp_path / "log")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert parent.returncode == -signal.SIGKILL
    child = int(parent.stdout)
    wait_until(lambda: not alive(child), PATIENCE, "the child's death")


def test_a_child_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = SupervisedProcess("child", ["sh", "-c", "echo up; exec sleep 60"], log, ready=partial(says_up, log))
    thread = threading.Thread(target=lambda: child.start().wait_ready())
    thread.start()
    thread.join()
    # The kernel sends its signal before this entry goes.
    wait_until(lambda: not Path(f"/proc/self/task/{thread.native_id}").exists(), PATIENCE, "the thread's end")
    assert child.stop() == -signal.SIGTERM, "it ends when it is stopped, not by another signal before"


def test_a_child_that_ignores_sigterm_is_killed_after_the_deadline(tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = SupervisedProcess(
        "child",
        [sys.executable, "-c", STUBBORN],
        log,
        ready=lambda: "deaf" in log.read_text(),
        stop_timeout_seconds=0.5,
    )
    child.start().wait_ready()
    assert child.stop() == -signal.SIGKILL


def test_a_group_stops_the_last_started_first(tmp_path: Path) -> None:
    order = tmp_path / "order"
    script = "trap 'echo $0 >> \"$1\"; exit' TERM; echo up; while :; do sleep 0.05; done"
    group = ProcessGroup()
    for name in ("first", "second", "third"):
        log = tmp_path / f"{name}.log"
        command = ["sh", "-c", script, name, order]
        group.start(SupervisedProcess(name, command, log, ready=partial(says_up, log)))
    group.stop()
    assert order.read_text().split() == ["third", "second", "first"]


def test_a_process_that_dies_before_it_is_ready_is_reported_with_its_log(tmp_path: Path) -> None:
    child = SupervisedProcess("child", ["sh", "-c", "echo no such flag; exit 3"], tmp_path / "log", ready=lambda: False)
    with pytest.raises(ProcessError, match=r"(?s)child exited with 3.*no such flag"):
        child.start().wait_ready()


def test_a_missing_program_is_reported_by_name(tmp_path: Path) -> None:
    child = SupervisedProcess("child", ["no-such-program"], tmp_path / "log")
    with pytest.raises(ProcessError, match="no-such-program"):
        child.start()
