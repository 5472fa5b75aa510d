"""What the status says of the targets of a pool: each of several, whether all deliver, and whether all can drain."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from servingpool.api.conditions import Reason, Truth
from servingpool.api.duration import brief
from servingpool.api.status import TargetStatus
from servingpool.catalogue.notes import Note
from servingpool.decision.observation import Unknown
from servingpool.decision.parts import Part
from servingpool.reconcile.draining import judge_drain
from servingpool.reconcile.targets import SeenTarget


def targets_of(parts: Sequence[Part], *, done: bool) -> tuple[TargetStatus, ...]:
    """Each target. `done`: all that was decided was ordered just now.

    Of orders that were carried out in part the next tick tells which.
    """
    return tuple(
        TargetStatus(
            name=one.target,
            replicas=one.replicas if done else one.requested,
            ready=one.ready,
            desired=one.replicas,
            speed=None if isinstance(one.speed, Unknown) else round(one.speed, 2),
            cold_start=brief(one.cold_start),
            stuck=one.stuck,
        )
        for one in parts
    )


def judge_drains(targets: Sequence[SeenTarget], busy: Collection[float]) -> tuple[Reason, str]:
    """Reason and message of DrainReady: of the first target where it is not True, else of the first."""
    judged = [(one.name, *judge_drain(one.workload.drain, busy)) for one in targets]
    ranked = sorted(judged, key=lambda one: (Truth.FALSE, Truth.UNKNOWN, Truth.TRUE).index(one[1].status))
    name, reason, said = ranked[0]
    return reason, said if len(targets) == 1 or reason.status is Truth.TRUE else f"{name}: {said}"


def judge_targets(parts: Sequence[Part]) -> tuple[Reason, str]:
    """Reason and message of TargetsAvailable."""
    stuck = [f"{one.target}: {one.stuck}" for one in parts if one.stuck is not None]
    if not stuck:
        return Reason.TARGETS_DELIVER, Reason.TARGETS_DELIVER.message(targets=len(parts))
    others = [f"{one.replicas} of {one.target}" for one in parts if one.stuck is None and one.replicas > 0]
    instead = Note.IN_ITS_PLACE.message(others=", ".join(others)) if others else Note.NO_OTHER_TARGET.message()
    said = Reason.TARGET_NOT_DELIVERING.message(stuck=". ".join(stuck), instead=instead)
    return Reason.TARGET_NOT_DELIVERING, said
