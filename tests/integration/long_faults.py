"""Faults that take a minute or more, or stop the control plane's own parts, before one operator.

`make faults` names this file; `make test` does not collect it.
"""

from __future__ import annotations

import re

import pytest

from .fault_list import LONG
from .fault_stage import Fault, Stage, play, stage_in

stage = stage_in("long-faults")


@pytest.mark.parametrize("fault", LONG, ids=lambda fault: re.sub(r"\W+", "-", fault.name))
def test_a_long_fault_costs_nothing_that_is_needed_and_is_told(stage: Stage, fault: Fault) -> None:
    play(stage, fault)
