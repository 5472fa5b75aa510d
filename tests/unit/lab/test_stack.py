from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from servingpool_lab import session, stack
from servingpool_lab.scenario import WORKLOADS, Scenario
from servingpool_lab.session import Options, PartDiedError, Session
from servingpool_lab.snapshot import Snapshot
from servingpool_lab.stack import LabError, Stack


def begin(directory: Path) -> None:
    Stack(Scenario(WORKLOADS["conv"]), directory, {}).start(lambda _what, _seconds: None)


class Begun(Exception):
    """The directory was accepted."""


@pytest.fixture(autouse=True)
def no_control_plane(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise Begun

    monkeypatch.setattr(stack, "ControlPlane", refuse)


def test_empties_what_the_last_lab_left_but_its_record(tmp_path: Path) -> None:
    for name in ("lock", "record.json", "operator.yaml"):
        (tmp_path / name).write_text("old")
    (tmp_path / "etcd").mkdir()
    (tmp_path / "etcd" / "data").write_text("old")
    with pytest.raises(Begun):
        begin(tmp_path)
    assert {entry.name for entry in tmp_path.iterdir()} == {"lock", "record.json"}


def test_never_empties_a_directory_that_is_not_a_labs(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(LabError, match="holds other files"):
        begin(tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "precious"


def run_session(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, build: Callable[..., dict[str, Path]]) -> str:
    monkeypatch.setattr(session, "ensure_binaries", build)
    output = io.StringIO()
    Session(Scenario(WORKLOADS["conv"]), Options(tmp_path / "lab"), Console(file=output, width=200)).run()
    return output.getvalue()


def test_ctrl_c_during_the_build_is_no_error_and_starts_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def build(*_: str, **__: object) -> dict[str, Path]:
        raise KeyboardInterrupt

    said = run_session(monkeypatch, tmp_path, build)
    assert "the next start continues from there" in said
    assert not (tmp_path / "lab").exists()


def test_a_start_that_fails_still_takes_down_what_it_had_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stopped: list[str] = []
    monkeypatch.setattr(Stack, "stop", lambda *_: stopped.append("stopped"))
    with pytest.raises(Begun):
        run_session(monkeypatch, tmp_path, lambda *_, **__: {})
    assert stopped == ["stopped"]


def test_a_record_that_cannot_be_written_does_not_keep_anything_running(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Looks:
        def refresh(self) -> Snapshot:
            return Snapshot(elapsed=1.0, unix=0.0, parts={})

        def stop(self) -> None:
            pass

    stopped: list[str] = []
    monkeypatch.setattr(Stack, "stop", lambda *_: stopped.append("stopped"))
    (tmp_path / "file").write_text("")
    options = Options(tmp_path, record=tmp_path / "file" / "record.json")
    ending = Session(Scenario(WORKLOADS["conv"]), options, Console(file=io.StringIO()))
    with pytest.raises(OSError, match="file"):
        ending._finish(Stack(Scenario(WORKLOADS["conv"]), tmp_path, {}), Looks())  # type: ignore[arg-type]
    assert stopped == ["stopped"]


def test_a_late_probe_is_forgiven_and_a_dead_part_is_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    now = 100.0
    monkeypatch.setattr("servingpool_lab.session.time.monotonic", lambda: now)
    watching = Session(Scenario(WORKLOADS["conv"]), Options(tmp_path), Console())

    def look(prometheus: bool) -> bool:
        return watching._over(Snapshot(elapsed=1.0, unix=0.0, parts={"Prometheus": prometheus}))

    assert look(False) is False
    now += 2.0
    assert look(True) is False
    now += 2.0
    assert look(False) is False
    now += 4.0
    with pytest.raises(PartDiedError, match="Prometheus stopped unexpectedly"):
        look(False)


def test_the_run_ends_when_its_minutes_have_passed_since_the_first_request(tmp_path: Path) -> None:
    watching = Session(Scenario(WORKLOADS["conv"], minutes=1.0), Options(tmp_path), Console())

    def over(seconds: float) -> bool:
        return watching._over(Snapshot(elapsed=500.0, unix=0.0, parts={}, truth={"seconds": seconds}))

    assert over(59.0) is False
    assert over(60.0) is True
