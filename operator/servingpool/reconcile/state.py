"""What the loop keeps of each pool between two ticks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from servingpool.api.conditions import Condition
from servingpool.api.serving_pool import ServingPool
from servingpool.api.status import Status
from servingpool.decision.decision import Decision
from servingpool.decision.miss_curve import MissCurve
from servingpool.decision.observation import Observation
from servingpool.decision.state import Memory, Profile
from servingpool.reconcile.contest import Contest

MODEL = "model"
"""Key in a kept profile. Speed and lengths are learned of one model: another's would size the fleet for it."""


@dataclass(slots=True)
class PoolState:
    """One pool. It goes when the pool does."""

    uid: str
    """Of the pool: one deleted and made again under its name starts afresh."""
    model: str
    """What was learned is about this model; another one starts afresh."""
    status: Status
    """As last written, or as found."""
    conditions: tuple[Condition, ...] = ()
    """As judged last, or as found: whether they could be written or not."""
    memory: Memory = field(default_factory=Memory.new)
    warm: bool = False
    """History was learned, or given up on."""
    unheard: int = 0
    """How often it was asked for in vain."""
    unsure: bool = False
    """Whether a write of it was begun of which no answer came: it may be applied, or not."""
    written_at: float = 0.0
    """Unix time in seconds of the last write of status."""
    scaled_at: float | None = None
    """Likewise, of the last order that is to be told of; None where there was none since the start."""
    unanswered: float | None = None
    """Likewise, of the last order, while it is not known whether it was done."""
    profile_at: float = 0.0
    """Likewise, of the last write of the learned profile."""
    profile_curve: MissCurve | None = None
    """What it held then."""
    conflicts: int = 0
    """Orders in a row that failed because the target was not as it had been seen."""
    refused_at: int | None = None
    """Replicas that it had then, as far as was known."""
    contest: Contest = field(default_factory=Contest)
    warned: dict[str, float] = field(default_factory=dict)
    """Unix time in seconds of the last warning event, by reason."""
    pool: ServingPool | None = None
    decision: Decision | None = None
    observation: Observation | None = None
    gpus: int = 0
    """Per replica."""

    @classmethod
    def found(cls, pool: ServingPool) -> tuple[PoolState, str | None]:
        """The state of a pool seen for the first time, resumed from its status; and why it could not be, if so."""
        found = pool.status
        state = cls(uid=pool.metadata.uid, model=pool.spec.model, status=found, conditions=found.conditions)
        kept = found.profile
        if kept is None:
            return state, None
        if kept.get(MODEL) != pool.spec.model:
            return state, f"it is of model {kept.get(MODEL)!r}, the pool's is {pool.spec.model!r} now"
        try:
            profile = Profile.from_dict(kept)
        except ValueError as error:
            return state, str(error)
        state.memory = Memory.resume(profile)
        # Not written again before it has changed: after a restart that would be every pool at once.
        state.profile_at, state.profile_curve = profile.at, profile.curve
        return state, None

    @property
    def settled(self) -> bool:
        """Calibration has ended, so what was learned is worth keeping."""
        return self.decision is not None and not self.decision.calibrating

    def kept(self) -> dict[str, Any]:
        """What was learned, in the form that `found` reads."""
        return self.memory.profile.to_dict() | {MODEL: self.model}

    def is_of(self, pool: ServingPool) -> bool:
        """Whether what is kept still speaks of this pool."""
        return (self.uid, self.model) == (pool.metadata.uid, pool.spec.model)
