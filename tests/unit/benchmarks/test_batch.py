"""Days of work with deadlines, without and with prices by the hour."""

from __future__ import annotations

import numpy as np
from batch import billed, prices, slow


def test_prices_that_are_known_cost_no_deadline_save_dollars_and_keep_starts_few() -> None:
    known, unknown = (
        np.sum([billed(slow(seed), prices(seed), told=told) for seed in range(3)], axis=0) for told in (True, False)
    )
    assert known[0] == unknown[0]
    assert known[1] < 0.9 * unknown[1]
    assert known[3] <= 1.5 * unknown[3]
