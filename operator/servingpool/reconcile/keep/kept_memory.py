"""The core's memory of a pool, by role, and the part of it that the status keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from servingpool.decision.learn.kinds import Kind
from servingpool.decision.learn.memory import Memory, Profile
from servingpool.decision.learn.miss_curve import MissCurve
from servingpool.decision.roles import DECODE, PREFILL
from servingpool.decision.zero import Vanished
from servingpool.reconcile.keep import learned_profile

NO_ROLE = ""
"""Key for the role of a pool without roles."""
MODEL, ROLES = "model", "roles"
"""Keys in a kept profile. Speed and lengths are learned of one model: another's would size the fleet for it. Where
targets have roles, each has a profile."""
_ANY = dict.fromkeys((*learned_profile.KEYS, MODEL), ...)
ANY_PROFILE: Mapping[str, Any] = _ANY | {ROLES: dict.fromkeys((PREFILL, DECODE), _ANY)}
"""A kept profile with every key of both forms: a profile that replaces it must not leave a key of the other form.

`...` equals no value: a field that is None replaces it too.
"""
PROFILE_AFTER = 600.0
"""Seconds between two writes of the learned profile, the first one when calibration ends.

What a crash would lose is in Prometheus's history."""


class Written(NamedTuple):
    """Figures that change when a profile has changed since it was written."""

    curve: MissCurve | None = None
    vanished: Vanished | None = None

    @classmethod
    def of(cls, profile: Profile) -> Written:
        """The figures of a memory now."""
        return cls(profile.curve, profile.vanished)


@dataclass(slots=True)
class KeptMemory:
    """The core's memory of a pool, by role, and the part of it that was written. Only its methods change it."""

    model: str
    """The model that was learned."""
    memories: dict[str, Memory] = field(default_factory=lambda: {role: Memory() for role in (NO_ROLE, PREFILL, DECODE)})
    in_use: tuple[str, ...] = (NO_ROLE,)
    """The roles that were decided on last, or resumed. Only they are written."""
    written: dict[str, Written] = field(default_factory=dict)
    """Profiles in the status, by role."""
    written_at: float = 0.0
    """Unix time in seconds of the last write of the learned profile."""

    def resume(self, kept: Mapping[str, Any]) -> None:
        """Resume the profile that `dump` returned. ValueError says why it cannot be used."""
        if kept.get(MODEL) != self.model:
            raise ValueError(f"learned for model {kept.get(MODEL)!r}, spec.model is now {self.model!r}")
        if ROLES in kept:
            found = kept[ROLES] if isinstance(kept[ROLES], Mapping) else {}
            self.learn({role: Memory(learned_profile.load(found.get(role))) for role in (PREFILL, DECODE)})
        else:
            self.learn({NO_ROLE: Memory(learned_profile.load(kept))})
        # Not written before it changes: else a restart would write every pool at once.
        self.profile_written(max(each.at for each in self._profiles.values()))

    def dump(self) -> dict[str, Any]:
        """The learned profile, in the form that `resume` reads."""
        found = {role: learned_profile.dump(each) for role, each in self._profiles.items()}
        return found.get(NO_ROLE, {ROLES: found}) | {MODEL: self.model}

    def keep_starts(self, former: KeptMemory) -> None:
        """Start-up times of the pool when its model had another name: they are the workload's. What is known stays."""
        for role, memory in former.memories.items():
            if not self.memories[role].profile.kinds:
                kinds = tuple(Kind(one.target, cold_start=one.cold_start) for one in memory.profile.kinds)
                self.memories[role] = Memory(Profile(kinds=kinds, reference=memory.profile.reference))

    @property
    def pressing(self) -> bool:
        """Whether the profile is to be written at once: without it, a restarted operator would go to zero again."""
        return any(each.vanished != self.written.get(role, Written()).vanished for role, each in self._profiles.items())

    def due(self, now: float, *, settled: bool) -> bool:
        """Whether the learned profile is to be written: it changed some time ago. `settled`: calibration ended."""
        return self.pressing or (settled and now - self.written_at >= PROFILE_AFTER and self._changed)

    @property
    def unsaved(self) -> bool:
        """Whether anything was learned since the profile was last written."""
        return any(each.learned > 0.0 for each in self._profiles.values()) and self._changed

    def profile_written(self, now: float) -> None:
        """The API server has the profile as it is."""
        self.written, self.written_at = {role: Written.of(each) for role, each in self._profiles.items()}, now

    def learn(self, memories: Mapping[str, Memory]) -> None:
        """Memories of the roles that are in use."""
        self.memories |= memories
        self.in_use = tuple(memories)

    @property
    def _profiles(self) -> dict[str, Profile]:
        return {role: self.memories[role].profile for role in self.in_use}

    @property
    def _changed(self) -> bool:
        return any(each.curve != self.written.get(role, Written()).curve for role, each in self._profiles.items())
