"""Faults that take a minute or more, or stop the control plane's own parts, before one operator.

`make faults` names this file; `make test` does not collect it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from servingpool_lab.control_plane import ControlPlane
from servingpool_lab.prometheus import Prometheus

from .fault_list import LONG
from .fault_stage import Fault, Stage, play, staged
from .operators import cluster_in

pytestmark = pytest.mark.timeout(900, func_only=True)


@pytest.fixture(scope="module")
def stage(
    control_plane: ControlPlane,
    pod_metrics: dict[tuple[str, str], str],
    prometheus: Prometheus,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Stage]:
    with (
        cluster_in(control_plane, pod_metrics, "long-faults") as cluster,
        staged(cluster, prometheus, tmp_path_factory.mktemp("faults")) as found,
    ):
        yield found


@pytest.mark.parametrize("fault", LONG, ids=lambda fault: re.sub(r"\W+", "-", fault.name))
def test_a_long_fault_costs_nothing_that_is_needed_and_is_told(stage: Stage, fault: Fault) -> None:
    play(stage, fault, "integration/long_faults.py::test_a_long_fault_costs_nothing_that_is_needed_and_is_told")
