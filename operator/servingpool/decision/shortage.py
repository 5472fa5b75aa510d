"""Whether a target delivers what was ordered."""

from __future__ import annotations

from dataclasses import dataclass

from servingpool.catalogue.notes import Note
from servingpool.decision.observation import Observation, Replica
from servingpool.decision.params import Params


@dataclass(frozen=True, slots=True)
class Shortage:
    """What one target was seen to deliver."""

    target: str
    """Its name."""
    reached: int = 0
    """Most Ready replicas under an order no smaller than today's."""
    uncreated_since: float | None = None
    """Unix time in seconds since when fewer pods exist than were ordered; None where none is missing."""

    def seen(self, ordered: int, ready: int, starting: int, now: float, *, in_turn: bool = False) -> Shortage:
        """After another observation: so many replicas are ordered, Ready, and not Ready yet.

        `in_turn`: they start one after another, so that while one loads the others have no pod.
        """
        missing = ordered > ready + starting and not (in_turn and starting)
        since = min(now, now if self.uncreated_since is None else self.uncreated_since) if missing else None
        return Shortage(self.target, min(ordered, max(self.reached, ready)), since)

    def refused(self, now: float, params: Params) -> bool:
        """Whether pods are missing for so long that they are not late: a quota refuses them, for example."""
        return self.uncreated_since is not None and now - self.uncreated_since > params.uncreated_after

    def stuck(
        self, ready: int, without_node: tuple[Replica, ...], missing: int, now: float, params: Params
    ) -> str | None:
        """Why the target does not deliver, once that is certain; None where it does.

        A new node takes minutes to come, so a pod that finds none is given that time, and one that does not exist some
        seconds. Not where fewer replicas are Ready than were: a node was taken away, as spot nodes are, and the
        capacity is missing now.
        """
        lost = ready < self.reached
        if any(lost or pod.age > params.unschedulable_after for pod in without_node):
            return Note.NO_NODE.message(pods=len(without_node))
        if self.uncreated_since is not None and (lost or self.refused(now, params)):
            return Note.NOT_CREATED.message(replicas=missing)
        return None


def seen(shortages: tuple[Shortage, ...], observation: Observation, now: float) -> tuple[Shortage, ...]:
    """Of each target, after another observation."""
    known = {one.target: one for one in shortages}
    return tuple(
        known.get(order.target, Shortage(order.target)).seen(
            order.replicas,
            sum(replica.target == order.target for replica in observation.ready),
            sum(replica.target == order.target for replica in observation.starting),
            now,
            in_turn=order.in_turn,
        )
        for order in observation.orders
    )
