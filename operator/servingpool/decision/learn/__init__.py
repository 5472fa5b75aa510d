"""Learn: from the increases of one observation to the memory of the pool.

In: an observation, the pool and its `Memory`. Out: an `UpdateResult`: the next memory, the demand and the step time.
`updating` (the entry), `memory` (what is remembered); `step_time`, `kinds` (what a request costs, on each target),
`queue_in_ttft` (which histogram tells), `miss_curve` (which load breaks the SLO), `forecast` (what comes next),
`error_budget` (what may be missed), `lost_caches` (whether the router forgets).
"""

from __future__ import annotations

from servingpool.decision.learn.error_budget import Calibration, ErrorBudget
from servingpool.decision.learn.forecast import FORECASTS_KEPT, HIDDEN, SPACING, Forecast, Outlook, WorkForecast
from servingpool.decision.learn.kinds import (
    LONGEST_COLD_START,
    MOST_SPEED,
    ColdStart,
    Kind,
    best_known,
    kind_of,
    shortages_seen,
    weights,
)
from servingpool.decision.learn.lost_caches import CHANGES_KEPT, LostCaches
from servingpool.decision.learn.memory import Memory, Profile, UpdateResult
from servingpool.decision.learn.miss_curve import (
    BINS,
    Curve,
    MissCurve,
    has_evidence,
    posterior,
    tpot_infeasible,
)
from servingpool.decision.learn.queue_in_ttft import PAIRS, QueueInTtft
from servingpool.decision.learn.step_time import LEAST_SECONDS, NOISE, Saturation, StepTimeFit
from servingpool.decision.learn.updating import update

__all__ = [
    "BINS",
    "CHANGES_KEPT",
    "FORECASTS_KEPT",
    "HIDDEN",
    "LEAST_SECONDS",
    "LONGEST_COLD_START",
    "MOST_SPEED",
    "NOISE",
    "PAIRS",
    "SPACING",
    "Calibration",
    "ColdStart",
    "Curve",
    "ErrorBudget",
    "Forecast",
    "Kind",
    "LostCaches",
    "Memory",
    "MissCurve",
    "Outlook",
    "Profile",
    "QueueInTtft",
    "Saturation",
    "StepTimeFit",
    "UpdateResult",
    "WorkForecast",
    "best_known",
    "has_evidence",
    "kind_of",
    "posterior",
    "shortages_seen",
    "tpot_infeasible",
    "update",
    "weights",
]
