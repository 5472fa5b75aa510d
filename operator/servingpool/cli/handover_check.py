"""Checks before a pool takes a workload over from its autoscaler."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from servingpool.adapters.cluster.autoscaling import bounds_of, controller_of, managers, manifest_writers
from servingpool.adapters.cluster.handover import Scene, named
from servingpool.adapters.cluster.objects import Raw, autoscaler
from servingpool.api.mode import Mode

GUIDE = "docs/how-to/gitops.md"
AUTO_WOULD_BE = re.compile(r"Auto would be (?P<effect>blocked|limited) \((?P<reason>\w+)\): (?P<message>.*)", re.DOTALL)
"""Beginning of a sentence in the message of Ready, beside an autoscaler."""
OWNED = {"OwnedByHPA", "OwnedByKEDA"}
"""Reasons of Ready while another autoscaler scales the target."""
MAY_GO_ON = {"ReplicasContested", "Unschedulable"}
"""Reasons of Ready False with which the operator scales nevertheless."""
REMEDIES = (
    ("argocd", f"Remove replicas from Git, or let Argo CD ignore the field: {GUIDE}."),
    ("helm", f"Use a chart value that leaves replicas out: {GUIDE}."),
    ("kustomize", f"Give the field a second owner, then remove it from Git: {GUIDE}."),
    ("kubectl", f"Remove replicas from the manifest, by `kubectl apply edit-last-applied` first: {GUIDE}."),
)
"""Remedies by the beginning of a field manager's name."""
OTHER_REMEDY = f"Have it leave that field out: {GUIDE}."


class Level(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    NOTE = "note"
    DOUBT = "doubt"
    """Goes on if it is accepted."""
    STOP = "stop"
    """Does not go on."""


class Finding(NamedTuple):
    """Result of a check."""

    level: Level
    subject: str
    text: str


def refusal(scene: Scene) -> str | None:
    """Why this is nothing to hand over at all; None where it can be checked further."""
    if mode_of(scene.pool) == Mode.PAUSED:
        meta = scene.pool["metadata"]
        resume = f"servingpool resume {meta['name']} -n {meta['namespace']} --mode Recommend"
        return f"The pool is Paused. Set it to Recommend first: {resume}."
    if len(scene.pool["spec"]["targets"]) > 1:
        return (
            "The pool has several targets, and adopt hands over one. "
            "Delete or pause the autoscalers of all targets, then set the pool's mode to Auto."
        )
    if len(scene.autoscalers) > 1:
        names = ", ".join(named(each) for each in scene.autoscalers)
        return f"{names} all scale {scene.key}. Delete all but one first."
    if not scene.autoscalers and scene.namesakes and scene.kept is None:
        raw = scene.namesakes[0]
        scaled = autoscaler(raw)
        what = "nothing" if scaled is None else scaled.target
        return f"{named(raw)} scales {what}, not {scene.key}. Correct spec.targets of the pool."
    for raw in scene.autoscalers:
        controller = controller_of(raw)
        if controller is not None:
            return f"{controller} makes {named(raw)} and would make it again. Switch autoscaling off there."
    return None


def findings(scene: Scene, rights: Mapping[str, bool]) -> Iterator[Finding]:
    """Findings of all checks, in the order of output. `rights`: the required rights, as sentences."""
    missing = [right for right, allowed in rights.items() if not allowed]
    if missing:
        yield Finding(Level.STOP, "rights", f"You may not {', nor '.join(missing)}.")
    else:
        yield Finding(Level.OK, "rights", "You may do all that adopt and release do.")
    meta, status = scene.pool["metadata"], scene.pool.get("status", {})
    if status.get("observedGeneration") != meta.get("generation") or "lastDecision" not in status:
        yield Finding(Level.STOP, "operator", "It has not decided for this pool as it is now: is it running?")
        return
    yield _ready(scene)
    work = bool({"batch", "throughput"} & scene.pool["spec"].keys())
    # At 0 replicas such a pool has neither metrics nor anything to learn from, and needs none.
    yield _condition(scene, "metrics", "MetricsAvailable", "True", *["NoReadyReplicas"] * work)
    yield _condition(scene, *(("work", "SLOMet", "True") if work else ("calibration", "Calibrating", "False")))
    yield _condition(scene, "drain", "DrainReady", "True")
    yield from _bounds(scene)
    yield from _owners(scene)
    yield _first_answer(scene)


def mode_of(pool: Raw) -> str:
    """The pool's mode."""
    return str(pool["spec"].get("mode", Mode.AUTO))


def condition_of(pool: Raw, type_: str) -> Mapping[str, Any]:
    """The pool's condition of this type; empty where it was not judged yet."""
    return next((one for one in pool.get("status", {}).get("conditions", ()) if one["type"] == type_), {})


def _ready(scene: Scene) -> Finding:
    ready = condition_of(scene.pool, "Ready")
    reason, said = str(ready.get("reason")), str(ready.get("message"))
    blocked = ready.get("status") != "True" and reason not in MAY_GO_ON
    limited = ready.get("status") != "True"
    would = AUTO_WOULD_BE.search(said)
    if would is not None:
        reason, said = would["reason"], would["message"]
        blocked, limited = would["effect"] == "blocked", True
    if reason in OWNED or not limited:
        return Finding(Level.OK, "operator", "It decides for this pool, and nothing else blocks mode Auto.")
    return Finding(Level.STOP if blocked else Level.DOUBT, "operator", f"{reason}: {said}")


def _condition(scene: Scene, subject: str, type_: str, *good: str) -> Finding:
    """`good`: the status, or a reason, with which it goes on."""
    found = condition_of(scene.pool, type_)
    level = Level.OK if {found.get("status"), found.get("reason")} & {*good} else Level.DOUBT
    return Finding(level, subject, str(found.get("message", "Not known yet.")))


def _bounds(scene: Scene) -> Iterator[Finding]:
    target = scene.pool["spec"]["targets"][0]
    low, high = int(target.get("min", 1)), int(target["max"])
    text = f"The pool's bounds are {low} to {high}."
    now = scene.pool["status"].get("bounds") or {}
    if now.get("schedule"):
        text += f" Those in force by schedule '{now['schedule']}' are {now['min']} to {now['max']}."
        low, high = int(now["min"]), min(high, int(now["max"]))
    if not scene.autoscalers:
        yield Finding(Level.OK, "bounds", text)
        return
    raw = scene.autoscalers[0]
    theirs = bounds_of(raw)
    text += f" Those of {named(raw)} are {theirs[0]} to {theirs[1]}."
    if high < theirs[1]:
        yield Finding(Level.DOUBT, "bounds", f"{text} Auto could not grow as far.")
    elif theirs[0] == 0 < low:
        needs = "" if "batch" in scene.pool["spec"] else ", which needs a gateway"
        yield Finding(Level.DOUBT, "bounds", f"{text} Auto keeps {low}. For 0, set min: 0{needs}.")
    else:
        level = Level.OK if (low, high) == theirs else Level.NOTE
        yield Finding(level, "bounds", text)


def _owners(scene: Scene) -> Iterator[Finding]:
    found = False
    for writer in manifest_writers(scene.target, scene.path):
        found = True
        remedy = next((text for start, text in REMEDIES if writer.lower().startswith(start)), OTHER_REMEDY)
        said = f"{writer} sets the replicas of {scene.key} and would set it again. {remedy}"
        yield Finding(Level.DOUBT, "owners", said)
    for manager in () if found else managers(scene.target):
        # An autoscaler that has scaled since took the field over, so its manager no longer tells.
        found = True
        said = f"{manager} manages {scene.key}. Make sure that its manifest sets no replicas: {GUIDE}."
        yield Finding(Level.NOTE, "owners", said)
    for raw in scene.autoscalers:
        for manager in managers(raw):
            found = True
            if raw["kind"] == "ScaledObject":
                said = f"{manager} manages {named(raw)}. Its manifest must not set the annotation that pauses it."
                yield Finding(Level.NOTE, "owners", said)
                continue
            said = f"{manager} manages {named(raw)} and would create it again. The operator then stops scaling."
            yield Finding(Level.DOUBT, "owners", f"{said} Remove it there too, at the latest right after adopt.")
    for manager in managers(scene.pool):
        found = True
        said = f"{manager} manages the pool and may set its mode back. Write mode: Auto there too."
        yield Finding(Level.NOTE, "owners", said)
    if not found:
        yield Finding(Level.OK, "owners", f"No manifest sets the replicas of {scene.key}.")


def _first_answer(scene: Scene) -> Finding:
    status = scene.pool["status"]
    wanted = status.get("desiredReplicas")
    if wanted is None:
        return Finding(Level.DOUBT, "first answer", "Auto's first answer is not known: the last decision had none.")
    if wanted == scene.replicas:
        return Finding(Level.OK, "first answer", f"Auto would keep the {wanted} replicas.")
    why = status["lastDecision"].get("reason", "")
    said = f"Auto would change {scene.replicas} replicas to {wanted} at once. {why}"
    return Finding(Level.DOUBT, "first answer", said)
