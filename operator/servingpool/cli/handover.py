"""The steps of `servingpool adopt` and `release`.

Each looks at the cluster first, so that a call goes on where the one before it was cut off.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

from servingpool.adapters.cluster.autoscaling import PAUSED, copy_of, pause_asked
from servingpool.adapters.cluster.errors import Conflict, NotFound
from servingpool.adapters.cluster.handover import KEPT, Handover, Scene, named
from servingpool.adapters.cluster.objects import Raw, autoscaler, unix
from servingpool.api.duration import brief, parse
from servingpool.api.mode import Mode
from servingpool.cli.handover_check import OWNED, condition_of, mode_of
from servingpool.cli.output import echo

POLL = 1.0
"""Seconds between two looks while it waits."""
OBSERVED, GONE, TAKEN_UP, DECIDED = 120.0, 120.0, 60.0, 180.0
"""Seconds that it waits at most: for the operator to observe a mode (it looks every 15 s, and may write for 30 s); for
an HPA to be gone; for an HPA's controller, which looks every 15 s; for the first decision."""
TRIES = 5
"""Times that a step is begun anew because an object was changed between its look and its write: the operator, KEDA and
the HPA's controller write statuses every few seconds."""
WINDOW, COLD_STARTS = "2m", 2.0
"""Default of behavior.scaleDownWindow, and the cold starts that the operator waits at least before a scale-down."""

T = TypeVar("T")


class Exit(IntEnum):
    """Exit codes besides those of `kubectl`."""

    STOPPED = 3
    TOO_LATE = 6


class Stopped(Exception):
    """A step cannot be done or may not be. The message is for the person who called."""

    def __init__(self, message: str, code: Exit = Exit.STOPPED) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a handover."""

    text: str
    """Action of the step, as an order."""
    run: Callable[[], str]
    """Does the step, or finds it done; returns the state that it leaves."""


def carry_out(step: Step) -> str:
    """Result of a step. The step begins anew if an object was changed meanwhile. Raises Stopped, ClusterError."""
    for _ in range(TRIES - 1):
        with suppress(Conflict):
            return step.run()
    return step.run()


def wait_for(what: str, look: Callable[[], T | None], seconds: float) -> T:
    """Result of `look` once it is true. Stopped if that takes too long."""
    until = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() >= until:
            raise Stopped(f"{what} takes more than {brief(seconds)}. Run the command again to go on.", Exit.TOO_LATE)
        time.sleep(POLL)
    return found


class Adoption:
    """The steps from an autoscaler to Auto."""

    def __init__(self, cluster: Handover, scene: Scene, *, watch: bool) -> None:
        self._cluster = cluster
        self._before = scene.replicas
        self.steps = [Step("Set mode Auto.", self._auto)]
        # Without an autoscaler there may be the copy of one that an earlier call has removed.
        other = scene.autoscalers[0] if scene.autoscalers else scene.kept
        if other is not None:
            name, keep, end = named(other), named(other), f"Delete {named(other)}, and wait until it is gone"
            if other["kind"] == "ScaledObject":
                keep = f"the annotations of {name} that pause it"
                end = f"Pause {name} by KEDA's annotation {PAUSED}, and wait until its HPA is gone"
            self.steps = [
                Step(f"Keep a copy of {keep} in the pool's annotation {KEPT}.", self._keep),
                Step(f"Set mode Auto. The operator stands by while {name} scales.", self._auto),
                Step(f"{end}. Replicas stay as they are.", self._remove),
            ]
        if watch:
            self.steps.append(Step("Watch the operator's first decision, and a full window after it.", self._watch))

    def _keep(self) -> str:
        scene = self._cluster.look()
        for raw in scene.autoscalers:
            if not self._is_kept(scene.kept, raw):
                self._cluster.keep(scene.pool, copy_of(raw))
                return "The copy is kept"
        return "The copy was kept before"

    @staticmethod
    def _is_kept(kept: Raw | None, raw: Raw) -> bool:
        """Whether the copy is of this autoscaler. A pause that an earlier call has set is not what it was before."""
        if kept is not None and pause_asked(raw):
            return named(kept) == named(raw)
        return kept == copy_of(raw)

    def _auto(self) -> str:
        scene = self._cluster.look()
        pool, standing = scene.pool, scene.contended
        if standing and mode_of(pool) == Mode.AUTO:
            # Set by an earlier call or by hand: only a new change shows that the operator is still running.
            pool = self._cluster.set_mode(pool, Mode.RECOMMEND)
        if mode_of(pool) != Mode.AUTO:
            pool = self._cluster.set_mode(pool, Mode.AUTO)
        pool = wait_observed(self._cluster, pool)
        ready = condition_of(pool, "Ready")
        if ready.get("reason") in OWNED:
            return "The mode is Auto; the operator stands by"
        if standing and self._cluster.look().contended:
            raise Stopped(
                f"The operator does not stand by: {ready.get('reason')}: {ready.get('message')} "
                f"{named(scene.autoscalers[0])} goes on scaling. `servingpool release` sets the mode back."
            )
        return "The mode is Auto, and nothing else scales"

    def _remove(self) -> str:
        scene = self._cluster.look()
        if not scene.autoscalers:
            return "It is gone"
        raw = scene.autoscalers[0]
        if not self._is_kept(scene.kept, raw):
            self._cluster.keep(scene.pool, copy_of(raw))
        if raw["kind"] == "ScaledObject":
            return self._pause(raw)
        self._cluster.delete(raw)
        wait_for(f"Deleting {named(raw)}", lambda: self._gone(raw), GONE)
        return f"{named(raw)} is gone"

    def _pause(self, raw: Raw) -> str:
        if not pause_asked(raw):
            self._cluster.pause(raw)
        wait_for(
            "KEDA's pause, which only a running KEDA carries out,", lambda: not self._cluster.look().contended, GONE
        )
        return "It is paused, and its HPA is gone"

    def _gone(self, raw: Raw) -> bool:
        found = self._cluster.find(raw)
        return found is None or bool(found["metadata"]["uid"] != raw["metadata"]["uid"])

    def _watch(self) -> str:
        pool = wait_for("The operator's first decision", self._decided, DECIDED)
        status = pool["status"]
        said = status["lastDecision"].get("reason", "")
        echo(f"     {self._before} -> {status.get('replicas')} replicas. {said}")
        window = window_of(pool)
        until = time.monotonic() + window
        shown = status.get("replicas")
        while time.monotonic() < until:
            time.sleep(POLL)
            pool = self._cluster.pool()
            self._still_ours(pool)
            now = pool.get("status", {}).get("replicas")
            if now != shown:
                latest: Raw = next(iter(pool["status"].get("history", ())), {})
                echo(f"     {shown} -> {now} replicas, by {latest.get('by')}. {latest.get('why', '')}")
                shown = now
        ready = condition_of(pool, "Ready")
        trouble = "" if ready.get("status") == "True" else f". {ready.get('message', '')}".rstrip(".")
        return f"{brief(window)} in Auto: {self._before} -> {shown} replicas{trouble}"

    def _decided(self) -> Raw | None:
        """The pool, once the operator has decided and nothing blocks it."""
        pool = self._cluster.pool()
        self._still_ours(pool)
        status, ready = pool.get("status", {}), condition_of(pool, "Ready")
        behind = status.get("observedGeneration") != pool["metadata"]["generation"]
        if behind or ready.get("reason") in OWNED or "lastDecision" not in status:
            return None
        at = unix(str(status["lastDecision"]["at"]))
        return pool if at >= unix(str(ready["lastTransitionTime"])) else None

    def _still_ours(self, pool: Raw) -> None:
        if mode_of(pool) != Mode.AUTO:
            raise Stopped(f"Somebody has set the pool's mode to {mode_of(pool)}. Write mode: Auto where it is managed.")
        ready = condition_of(pool, "Ready")
        # The status may be older than the removal: what stands counts.
        if ready.get("reason") in OWNED and self._cluster.look().contended:
            raise Stopped(
                f"The autoscaler is back, so the operator does not scale: {ready.get('message')} "
                "Remove it where it is managed, and run the command again; or give back: servingpool release."
            )


class Release:
    """The steps back from Auto."""

    def __init__(self, cluster: Handover, kept: Raw, *, wait: bool) -> None:
        self._cluster, self._kept, self._wait = cluster, kept, wait
        name, keda = named(kept), kept["kind"] == "ScaledObject"
        back = f"Give {name} its former annotations, and wait for its HPA." if keda else f"Create {name} from its copy."
        observed = ", and wait until the operator has observed it" if wait else ""
        self.steps = [
            Step(f"Set mode Recommend{observed}. Replicas stay as they are.", self._recommend),
            Step(back, self._unpause if keda else self._create),
            Step(f"Remove the copy from the pool's annotation {KEPT}.", self._forget),
        ]

    def _recommend(self) -> str:
        pool = self._cluster.pool()
        if mode_of(pool) != Mode.RECOMMEND:
            pool = self._cluster.set_mode(pool, Mode.RECOMMEND)
        if self._wait:
            wait_observed(self._cluster, pool)
        return "The mode is Recommend; the operator changes no replicas"

    def _create(self) -> str:
        found = self._cluster.find(self._kept)
        if found is None:
            try:
                self._cluster.create(self._kept)
            except Conflict:  # somebody else has, meanwhile
                found = self._cluster.find(self._kept)
        if found is not None and autoscaler(found) != autoscaler({**self._kept, "metadata": found["metadata"]}):
            raise Stopped(f"{named(self._kept)} exists and scales something else. Delete or rename it, and run again.")
        try:
            wait_for("The HPA controller's first look", self._taken_up, TAKEN_UP)
        except Stopped:
            return "It exists; no controller has looked at it yet"
        return "It existed already" if found is not None else "It exists and scales"

    def _taken_up(self) -> object:
        return ((self._cluster.find(self._kept) or {}).get("status") or {}).get("conditions")

    def _unpause(self) -> str:
        former = self._kept["metadata"]["annotations"]
        try:
            self._cluster.annotate(self._kept, former)
        except NotFound:
            raise Stopped(f"{named(self._kept)} does not exist. Apply it, and run the command again.") from None
        if any(value is not None for value in former.values()):
            return "It has its former annotations"
        wait_for("KEDA's HPA, which only a running KEDA creates,", lambda: self._cluster.look().keda_hpas, GONE)
        return "It scales"

    def _forget(self) -> str:
        self._cluster.keep(self._cluster.pool(), None)
        return "The copy is removed"


def wait_observed(cluster: Handover, written: Raw) -> Raw:
    """The pool, once the operator has decided on the written spec: from then on it scales by no older spec."""
    generation = written["metadata"]["generation"]

    def look() -> Raw | None:
        pool = cluster.pool()
        return pool if pool.get("status", {}).get("observedGeneration", 0) >= generation else None

    return wait_for("The operator's look at the new mode, which only a running operator takes,", look, OBSERVED)


def window_of(pool: Raw) -> float:
    """Seconds after which a scale-down may come at the latest: the window, or two cold starts."""
    window = parse(str(pool["spec"].get("behavior", {}).get("scaleDownWindow", WINDOW)))
    try:
        return max(window, COLD_STARTS * parse(str(pool["status"].get("coldStart"))))
    except ValueError:  # not measured yet
        return window
