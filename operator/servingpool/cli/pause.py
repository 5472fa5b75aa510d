"""`servingpool pause` and `resume`: stop scaling a pool, and go back to the mode before."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from servingpool.api.mode import Mode
from servingpool.cli.handover_check import mode_of
from servingpool.cli.kubectl import Context, Kubeconfig, Namespace, PoolName, connect, place, told
from servingpool.cli.output import echo

BEFORE = "servingpool.dev/mode-before-pause"
"""Annotation that keeps the mode for `resume`."""
UNKNOWN = 3
"""Exit code: the mode before is not known."""


class Resumed(StrEnum):
    """Modes that a pool can be resumed to."""

    AUTO = Mode.AUTO.value
    RECOMMEND = Mode.RECOMMEND.value


def pause(
    pool: PoolName, *, namespace: Namespace = None, context: Context = None, kubeconfig: Kubeconfig = None
) -> None:
    """Set a pool's mode to Paused: its replicas stay as they are, and the operator goes on observing.

    `servingpool resume` sets the mode that it had. If Git manages the pool, suspend its sync, or it sets the mode back.

    Example: `servingpool pause qwen3-8b -n chat`

    Exit codes: 0 paused, 1 no such pool, 2 wrong usage, 4 the cluster refused or did not answer, 5 the pool was
    changed at the same time.
    """
    with told():
        pools = connect(kubeconfig, context)
        where = place(pools, pool, namespace)
        found = pools.read(*where)
        mode = mode_of(found)
        if mode == Mode.PAUSED:
            echo(f"ServingPool {'/'.join(where)} is Paused already.")
            return
        pools.patch(*where, _change(found, Mode.PAUSED, mode))
    echo(f"ServingPool {'/'.join(where)}: {mode} -> Paused. Replicas stay as they are.")


def resume(
    pool: PoolName,
    *,
    mode: Annotated[
        Resumed | None,
        typer.Option(case_sensitive=False, help="The mode to resume in. Default: the one before the pause."),
    ] = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Set a paused pool's mode back to the one that it had before `servingpool pause`.

    Example: `servingpool resume qwen3-8b -n chat`

    Exit codes: 0 resumed or in that mode already, 1 no such pool, 2 wrong usage, 3 the mode before is not known or the
    pool is in mode Recommend, 4 the cluster refused or did not answer, 5 the pool was changed at the same time.
    """
    with told():
        pools = connect(kubeconfig, context)
        where = place(pools, pool, namespace)
        found = pools.read(*where)
        now = mode_of(found)
        if now != Mode.PAUSED:
            said = f"ServingPool {'/'.join(where)} is not paused, its mode is {now}."
            if now == Mode.RECOMMEND and mode is not Resumed.RECOMMEND:
                echo(f"{said} Use `servingpool adopt {where[1]} -n {where[0]}` to set Auto.", err=True)
                raise typer.Exit(UNKNOWN)
            echo(said)
            return
        before = mode or found["metadata"].get("annotations", {}).get(BEFORE)
        if before not in set(Resumed):
            echo(
                f"ServingPool {'/'.join(where)} was not paused by `servingpool pause`: "
                "give --mode Auto or --mode Recommend.",
                err=True,
            )
            raise typer.Exit(UNKNOWN)
        pools.patch(*where, _change(found, before, None))
    echo(f"ServingPool {'/'.join(where)}: Paused -> {before}.")


def _change(found: dict[str, Any], mode: str, before: str | None) -> dict[str, Any]:
    """The patch; refused if the pool is no longer as it was read."""
    version = found["metadata"]["resourceVersion"]
    return {"metadata": {"resourceVersion": version, "annotations": {BEFORE: before}}, "spec": {"mode": str(mode)}}
