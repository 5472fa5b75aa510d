"""Real vLLM processes on one GPU, or on CPUs, come and go as the operator decides, and lose nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..e2e.results import Results  # noqa: TID252, tests are no package of an installed name
from .course import Programs, play
from .scene import machine

APART = 5.0
"""Points between attainment in the status and the clients', as in `make e2e-vllm`."""
CLAIM_SECONDS = 60.0
"""For which SLOMet may be True at most while the clients are below the SLO, as there."""


@pytest.mark.timeout(3000)
def test_engines_grow_with_the_load_and_go_again_and_the_status_says_what_aiperf_saw(
    programs: Programs, results: Results, tmp_path: Path
) -> None:
    course = play(programs, results, tmp_path)
    where, turns = machine(), course.turns
    assert turns[0] == turns[-1] == 1
    assert where.needed <= max(turns) <= where.most
    assert max(sample.ready for sample in course.samples) >= where.needed
    assert not [record for record in course.records if record.failed]
    assert course.judged is not None
    assert abs(course.judged - course.good) < APART
    assert course.claimed < CLAIM_SECONDS
    results.verdict = "Passed."
