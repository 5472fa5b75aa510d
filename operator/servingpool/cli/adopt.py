"""`servingpool adopt` and `release`: from an HPA or KEDA to Auto, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from servingpool.adapters.cluster.autoscaling import bounds_of, paused
from servingpool.adapters.cluster.handover import GROUPS, PLURALS, Handover, Scene, named
from servingpool.adapters.cluster.objects import FIELD_MANAGER, holders
from servingpool.api.group import GROUP, PLURAL
from servingpool.cli.handover import Adoption, Exit, Release, Step, Stopped, carry_out
from servingpool.cli.handover_check import Level, findings, mode_of, refusal
from servingpool.cli.kubectl import Context, Kubeconfig, Namespace, PoolName, connect, place, told
from servingpool.cli.output import echo, table

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before each step.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check and print the steps; change nothing.")]


def adopt(
    pool: PoolName,
    *,
    yes: Yes = False,
    accept: Annotated[bool, typer.Option("--accept", help="Go on in spite of doubts that the check has.")] = False,
    dry_run: DryRun = False,
    watch: Annotated[bool, typer.Option(help="Watch the first decision and a full window.")] = True,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Hand the pool's target over from its HPA or ScaledObject to mode Auto, step by step.

    It checks what could go wrong, shows Auto's first answer, keeps a copy of the HPA in the pool, sets mode Auto, and
    deletes the HPA or pauses the ScaledObject. Until that is gone, the operator stands by. Run again after an
    interruption, it goes on where it stopped. `servingpool release` gives all of it back.

    Example: `servingpool adopt qwen3-8b -n chat --dry-run`

    Exit codes: 0 adopted, or nothing else scales, 1 no such pool or target, 2 wrong usage, 3 the check or a person
    has stopped it, 4 the cluster refused or did not answer, 5 an object was changed at the same time, 6 a step took too
    long.
    """
    with told():
        pools = connect(kubeconfig, context)
        cluster = Handover(pools, place(pools, pool, namespace))
        scene = cluster.look()
        echo(_headline(cluster, scene))
        if not scene.contended and mode_of(scene.pool) == "Auto":
            echo("It is in mode Auto, and nothing else scales its target.")
            return
        said = refusal(scene)
        if said is not None:
            echo(said, err=True)
            raise typer.Exit(3)
        doubts = _check(cluster, scene)
        steps = Adoption(cluster, scene, watch=watch).steps
        _proceed(steps, doubts=doubts, yes=yes, accept=accept, dry_run=dry_run)


def release(
    pool: PoolName,
    *,
    yes: Yes = False,
    dry_run: DryRun = False,
    wait: Annotated[
        bool, typer.Option(help="Wait until the operator has observed the mode. --no-wait if it is not running.")
    ] = True,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Give the pool's target back to the HPA or ScaledObject that `servingpool adopt` took it from.

    It sets mode Recommend, waits until the operator has observed it, and creates the HPA from its copy or gives the
    ScaledObject its former annotations. Run again after an interruption, it goes on where it stopped.

    Example: `servingpool release qwen3-8b -n chat`

    Exit codes: 0 given back, or nothing to give back, 1 no such pool or target, 2 wrong usage, 3 a person has
    stopped it or there is no copy, 4 the cluster refused or did not answer, 5 an object was changed at the same time,
    6 a step took too long.
    """
    with told():
        pools = connect(kubeconfig, context)
        cluster = Handover(pools, place(pools, pool, namespace))
        scene = cluster.look()
        echo(_headline(cluster, scene))
        _tell_owner(scene)
        if scene.kept is None:
            if mode_of(scene.pool) == "Recommend":
                echo("It is in mode Recommend, and no copy of an autoscaler is kept: nothing to give back.")
                return
            echo(
                "No copy of an autoscaler is kept. `servingpool pause` stops scaling; then apply your autoscaler.",
                err=True,
            )
            raise typer.Exit(3)
        _proceed(Release(cluster, scene.kept, wait=wait).steps, doubts=0, yes=yes, accept=True, dry_run=dry_run)


def _headline(cluster: Handover, scene: Scene) -> str:
    by = [f"{named(raw)} ({bounds_of(raw)[0]} to {bounds_of(raw)[1]})" for raw in scene.autoscalers if not paused(raw)]
    scaled = f"scaled by {' and '.join(by)}" if by else "scaled by no HPA or ScaledObject"
    return (
        f"ServingPool {'/'.join(cluster.key)}, mode {mode_of(scene.pool)}. "
        f"{scene.key} has {scene.replicas} replicas, {scaled}."
    )


def _tell_owner(scene: Scene) -> None:
    """How a manifest gets the number of replicas back: the operator has no right to give it up."""
    if any(each.get("manager") == FIELD_MANAGER for each in holders(scene.target["metadata"], *scene.path)):
        echo(
            f"{FIELD_MANAGER} owns {'.'.join(scene.path)}: a server-side apply of another number is a conflict. "
            "To take it back by a manifest, apply it once with --server-side --force-conflicts."
        )


def _check(cluster: Handover, scene: Scene) -> int:
    """Print the findings. Returns the number of doubts; Exit where a finding forbids to go on."""
    found = list(findings(scene, _rights(cluster, scene)))
    echo("\nCheck")
    table([("", each.level.value, each.subject, each.text) for each in found])
    if any(each.level is Level.STOP for each in found):
        echo("\nNothing was changed. Correct what says stop, and run the command again.", err=True)
        raise typer.Exit(3)
    return sum(each.level is Level.DOUBT for each in found)


def _rights(cluster: Handover, scene: Scene) -> dict[str, bool]:
    """Rights that adopt and release need, and whether each is granted."""
    asked = [("patch", GROUP, PLURAL, cluster.key[1])]
    for raw in scene.autoscalers:
        group, plural = GROUPS[raw["kind"]].partition("/")[0], PLURALS[raw["kind"]]
        verbs = ("patch",) if raw["kind"] == "ScaledObject" else ("delete", "create")
        asked += [(verb, group, plural, "" if verb == "create" else raw["metadata"]["name"]) for verb in verbs]
    return {f"{verb} {plural}": cluster.may(verb, group, plural, name) for verb, group, plural, name in asked}


def _proceed(steps: Sequence[Step], *, doubts: int, yes: bool, accept: bool, dry_run: bool) -> None:
    """Print the steps, and do one after the other as far as they are confirmed."""
    echo("\nSteps")
    for number, step in enumerate(steps, 1):
        echo(f"  {number}. {step.text}")
    echo("")
    unchanged = "Dry run: nothing was changed." if dry_run else "Nothing was changed."
    if doubts and not accept and (dry_run or yes):
        echo(f"{unchanged} The check has {_count(doubts)}: accept with --accept.", err=True)
        raise typer.Exit(Exit.STOPPED)
    if dry_run:
        echo(unchanged)
        return
    if doubts and not accept:
        _confirm(f"Go on in spite of {_count(doubts)}?", unchanged)
    done: list[str] = []
    for number, step in enumerate(steps, 1):
        if not yes:
            so_far = f"Steps done: {', '.join(done)}. Run the command again to go on." if done else ""
            _confirm(f"Step {number}?", so_far or unchanged)
        _run(number, step)
        done.append(str(number))
    echo("Done.")


def _run(number: int, step: Step) -> None:
    try:
        echo(f"  {number}. {carry_out(step)}.")
    except Stopped as stopped:
        echo(f"Step {number}: {stopped}", err=True)
        raise typer.Exit(stopped.code) from None


def _confirm(question: str, otherwise: str) -> None:
    try:
        agreed = typer.confirm(question)
    except typer.Abort:
        echo("\nGive --yes where nobody can answer.", err=True)
        agreed = False
    if not agreed:
        echo(f"Stopped. {otherwise}", err=True)
        raise typer.Exit(3)


def _count(doubts: int) -> str:
    return "1 doubt" if doubts == 1 else f"{doubts} doubts"
