"""From options to a session, and from its errors to the two kinds that a caller tells apart."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from servingpool.api.spec import Mode
from servingpool_lab.api_client import ApiError
from servingpool_lab.go_modules import BuildError
from servingpool_lab.processes import ProcessError
from servingpool_lab.scenario import WORKLOADS, Scenario
from servingpool_lab.session import Options, PartDiedError, Session
from servingpool_lab.stack import LabError
from servingpool_lab.workload import ManifestsError


class UsageError(RuntimeError):
    """Wrong options, or something that the lab needs is missing; the message says what to do."""


class FailureError(RuntimeError):
    """A part of the lab failed; the message names it."""


def run(  # noqa: PLR0913, one parameter an option
    *,
    trace: str,
    minutes: float | None,
    start_at: float | None,
    mode: Mode,
    load_seconds: float,
    directory: Path,
    record: Path | None,
    picture: Path | None,
    live: bool,
) -> None:
    """Runs a lab to its end. Times in seconds but `minutes`; `start_at` None for the workload's own.

    Raises:
        UsageError, FailureError.
    """
    workload = WORKLOADS[trace]
    try:
        scenario = Scenario(
            workload,
            load_seconds=load_seconds,
            start_at=workload.start_at if start_at is None else start_at,
            minutes=minutes,
            mode=mode,
        )
        Session(scenario, Options(directory, record, picture, live=live), Console()).run()
    except (ValueError, BuildError, LabError, ManifestsError) as error:
        raise UsageError(str(error)) from error
    except (PartDiedError, ProcessError, ApiError, OSError) as error:
        raise FailureError(str(error)) from error
