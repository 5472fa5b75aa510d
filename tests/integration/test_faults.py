"""Faults of the API server, of Prometheus, of the operator and of the world, one after the other before one operator.

Real API server and Prometheus, behind proxies. What has to hold after each of them is in `fault_stage`. `long_faults.py` has
one that takes longer; tests/unit/handlers has those of requests and streams.
"""

from __future__ import annotations

import re

import pytest

from .fault_list import QUICK
from .fault_stage import Fault, Stage, play, stage_in

stage = stage_in("faults")


@pytest.mark.parametrize("fault", QUICK, ids=lambda fault: re.sub(r"\W+", "-", fault.name))
def test_a_fault_costs_nothing_that_is_needed_and_is_told(stage: Stage, fault: Fault) -> None:
    play(stage, fault)
