"""Whether all objects around a pool are read: the ObjectsRead condition."""

from __future__ import annotations

from collections.abc import Sequence

from servingpool.adapters.cluster import input_limits
from servingpool.api.conditions import Reason
from servingpool.reconcile.collect import Collected


def judge_objects(seen: Collected) -> tuple[Reason, str] | None:
    """Reason and message; None where nothing is to be said."""
    targets = [target.workload for target in seen.targets]
    own = [f"{one.key}: {'; '.join(one.left_out)}" for one in targets if one.left_out]
    around, count = seen.left_out
    if count:
        objects = _named([*own, *(each for each in around if each not in own)], count)
        return Reason.UNREADABLE_OBJECTS, Reason.UNREADABLE_OBJECTS.message(objects=objects)
    target = next((target for target in seen.targets if target.strangers), None)
    if target is None:
        return None
    pods = _named(target.strangers, len(target.strangers))
    return Reason.PODS_OF_OTHERS, Reason.PODS_OF_OTHERS.message(target=target.workload.key, pods=pods)


def _named(found: Sequence[str], count: int) -> str:
    """The first of so many, and how many more there are."""
    told = found[: input_limits.TOLD]
    return "; ".join(told) + (f"; and {count - len(told)} more" if count > len(told) else "")
