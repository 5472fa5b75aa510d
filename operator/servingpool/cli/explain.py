"""`servingpool explain`: the last decision on a pool, in full."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Annotated, Any, Literal, NoReturn

import typer
from pydantic import ValidationError
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from servingpool.adapters.cluster.pools import Pools
from servingpool.adapters.prometheus.own_record import Record
from servingpool.api.conditions import ConditionType, Reason
from servingpool.api.duration import brief
from servingpool.api.serving_pool import ServingPool, problems
from servingpool.api.spec import Slo
from servingpool.api.status import (
    BatchStatus,
    Change,
    Cost,
    LastDecision,
    Latency,
    RoleStatus,
    Status,
    TargetStatus,
    Throughput,
)
from servingpool.api.time import write
from servingpool.cli.kubectl import (
    Namespace,
    Output,
    PoolName,
    connect,
    named,
    place,
    printed,
    told,
)
from servingpool.cli.output import echo, terminal
from servingpool.cli.own_record import Asked, Match, Source, no_record, point_in_time
from servingpool.cli.source import Options, asks
from servingpool.cli.usage import wrong

ACTIONS = {reason.value: reason.action for reason in Reason}
"""What to do, by the reason of a condition."""
NO_DECISION, INVALID, INTERRUPTED = 3, 5, 130
"""Exit codes, besides those of `kubectl` and `own_record`."""
OLD = 720.0
"""Seconds after which a decision is old: each pool's status is written within ten minutes."""
UNSEEN = "No operator has read this pool: is one installed that watches this namespace? See `servingpool version`."
FUTURE = 60.0
"""Seconds after now that `--at` may be, for clocks that differ."""
Row = Callable[..., None]
"""Adds a figure: name, value or None, unit, and what is said beside it."""


@asks
def explain(
    pool: PoolName,
    *,
    namespace: Namespace = None,
    output: Annotated[
        Output | None, typer.Option("--output", "-o", help="Print the status, with every figure of the decision.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="A time, such as 2026-11-20T03:12 or 23:28 (UTC unless it has a zone), or -10m."
        ),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Explain each further decision until Ctrl-C.")] = False,
    options: Options,
    match: Match = None,
) -> None:
    """Show the last decision for a pool: raw need, each limit, the figures and the conditions.

    With --at it explains the decision of that time, from the operator's own metrics in Prometheus alone. A time that
    `servingpool history` prints gives the decision that made the change.

    Example: `servingpool explain chat`

    Example: `servingpool explain chat --at 2026-11-20T03:12`

    Exit codes: 0 explained, 1 no such pool, 2 wrong usage, 3 no decision yet, 4 the cluster did not answer,
    5 the pool is not valid, 6 Prometheus did not answer or several pools have this name in it, 130 a watch was ended.
    """
    if at is not None and watch:
        wrong("Give --at or --watch, not both")
    if match and at is None:
        wrong("--match chooses series in Prometheus: give --at too")
    if at is not None:
        source = Source(options, match)
        raise typer.Exit(_explain_past(named(pool, namespace, options.kubeconfig, options.context), at, output, source))
    with told():
        pools = connect(options.kubeconfig, options.context)
        where = place(pools, pool, namespace)
        raw = pools.read(*where)
        if nobody := pools.nobody_decides(time.time()):
            echo(nobody, err=True)
        found = _explain(raw, output)
        if watch:
            try:
                _watch(pools, where, raw, found, output)
            except KeyboardInterrupt:
                raise typer.Exit(INTERRUPTED) from None
    raise typer.Exit(0 if found.status.last_decision is not None else NO_DECISION)


def _read(raw: dict[str, Any]) -> ServingPool:
    """The pool. Ends the command where it is not valid."""
    try:
        return ServingPool.read(raw)
    except ValidationError as error:
        meta = raw["metadata"]
        echo(f"ServingPool {meta['namespace']}/{meta['name']} is not valid: {problems(error)}", err=True)
        raise typer.Exit(INVALID) from None


def _explain(raw: dict[str, Any], output: Output | None) -> ServingPool:
    """Print the pool's last decision."""
    found = _read(raw)
    if output is not None:
        printed(found.status.to_dict(), output)
    else:
        show(found)
    return found


def _watch(
    pools: Pools, where: tuple[str, str], raw: dict[str, Any], last: ServingPool, output: Output | None
) -> NoReturn:
    """Print each decision that says something else than the last; a tick's time alone is nothing new."""

    def said(pool: ServingPool) -> object:
        decision = pool.status.last_decision
        conditions = [(one.type, one.status, one.reason) for one in pool.status.conditions]
        return None if decision is None else (decision.replicas, decision.verdict, decision.reason), conditions

    for changed in pools.changes(*where, raw):
        found = _read(changed)
        if said(found) != said(last):
            last = _explain(changed, output)
    raise KeyboardInterrupt


def _explain_past(key: tuple[str, str], at: str, output: Output | None, source: Source) -> int:
    # The reader of the past imports most of the operator, and the last decision needs none of it.
    from servingpool.record.past import record_at, slo_of, status_of

    moment = point_in_time("--at", at, time.time())

    def read(asked: Asked) -> Record:
        if moment > asked.now + FUTURE:
            wrong(f"--at must be in the past, got '{at}' (a time without a zone is UTC)")
        return record_at(asked.record, moment)

    record = source.ask(key, read)
    status = status_of(record)
    if status is None:
        echo(no_record(key, f"at {at}"), err=True)
        return NO_DECISION
    if output is not None:
        printed(status.to_dict(), output)
    else:
        show_past(key, status, slo_of(record))
    return 0


def show(pool: ServingPool, console: Console | None = None) -> None:
    """Print the last decision, its figures and the conditions."""
    status, decision = pool.status, pool.status.last_decision
    # Not in the panel's title, which a terminal of 80 columns cuts off.
    targets = ", ".join(f"{target.kind} {target.name}" for target in pool.spec.targets)
    parts: list[RenderableType] = [Text(f"mode {pool.spec.mode.value}: {pool.spec.model} on {targets}")]
    if decision is not None:
        age = time.time() - decision.at.timestamp()
        told = f"decided {brief(max(0, round(age)))} ago ({write(decision.at)}), {decision.verdict}"
        parts += _explained(status, pool.spec.asked_slo, decision, Text(told, style="yellow" if age > OLD else "dim"))
    else:
        parts += [Text("No decision yet."), _conditions(status)] if status.conditions else [Text(UNSEEN)]
    _framed(console or terminal(), pool.key, parts)


def show_past(key: tuple[str, str], status: Status, slo: Slo | None) -> None:
    """Print a decision of the past, as far as metrics have it."""
    decision = status.last_decision
    assert decision is not None
    decided = Text(f"decided {write(decision.at)}, {decision.verdict}", style="dim")
    told = _explained(status, slo, decision, decided, "not recorded")
    parts = [Text("from the operator's metrics in Prometheus"), *told]
    _framed(terminal(), key, parts)


def _framed(console: Console, key: tuple[str, str], parts: Iterable[RenderableType]) -> None:
    """In a box on a terminal; in a pipe, where a program or grep reads it, without."""
    title = Text(f"ServingPool {'/'.join(key)}")
    if console.is_terminal:
        console.print(Panel(Group(*parts), title=title, title_align="left"))
    else:
        console.print(title, *parts, sep="\n")


def _explained(
    status: Status, slo: Slo | None, decision: LastDecision, decided: Text, lacking: str = "unknown"
) -> list[RenderableType]:
    return [
        *_cause(status),
        # Of a pool that cannot be judged the last decision is of another time.
        Text(decision.reason, style="dim" if status.fleet is None else "bold"),
        decided,
        Text(""),
        *(_roles(status.roles) if status.roles else (_steps(decision, status.replicas),)),
        Text(""),
        *((_targets(status.targets), Text("")) if status.targets else ()),
        _figures(status, slo, lacking),
        Text(""),
        _conditions(status),
        *(Text(f"! {warning}", style="yellow") for warning in decision.warnings),
        *((Text(""), changes(status.history)) if status.history else ()),
    ]


def _cause(status: Status) -> Iterator[RenderableType]:
    """The worst condition, since when, and what to do; nothing where the fleet is only limited."""
    cause = status.cause
    if cause is not None and cause.type is not ConditionType.SCALING_LIMITED:
        last, since = status.last_decision, cause.last_transition_time
        # No metric has the time, and that of a True is the beginning of all reasons that are no fault.
        known = cause.status is not cause.type.good and (last is None or last.at != since)
        when = f", since {write(since)}" if known else ""
        yield Text(f"{cause.reason}{when}: {cause.message}", style="yellow")
        yield Text(f"What to do: {ACTIONS.get(cause.reason, 'see the conditions')}", style="yellow")
        yield Text("")


def _roles(roles: Iterable[RoleStatus]) -> Iterator[RenderableType]:
    """Each role's steps from the need to its replicas."""
    for one in roles:
        if one.last_decision is not None:
            yield Text(one.role.value, style="bold")
            yield _steps(one.last_decision, one.replicas)
            load = _known(one.last_decision.load).append(_safe(one.last_decision, ", "), style="dim")
            yield Text("load ", style="dim").append(load)


def _table(*names: str, right: Container[str] = (), whole: Container[str] = ()) -> Table:
    """A table without rows. Columns in `right` hold figures, and cells in `whole` are not wrapped."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in names:
        justify: Literal["left", "right"] = "right" if name in right else "left"
        table.add_column(name, overflow="fold", justify=justify, no_wrap=name in whole)
    return table


def _steps(decision: LastDecision, replicas: int | None) -> Table:
    table = _table("step", "replicas", "why", right={"replicas"})
    need = "unknown" if decision.need is None else f"{decision.need:g}"
    table.add_row("raw need", need, "" if decision.need is not None else "Unknown: replicas stay as they are.")
    for limit in decision.limits:
        table.add_row(limit.name, f"{limit.before} -> {limit.after}", limit.reason)
    table.add_row(
        Text("desired", style="bold"),
        Text(str(decision.replicas), style="bold"),
        "" if replicas is None else f"{replicas} requested",
    )
    return table


def _targets(targets: Iterable[TargetStatus]) -> Table:
    """Table of the targets. Need, limits and forecast are counted in replicas of the target with speed 1."""
    figures = ("requested", "ready", "desired", "speed", "cold start")
    table = _table("target", *figures, "state", right=figures)
    for one in targets:
        speed = _known(None if one.speed is None else f"{one.speed:g}")
        state = "delivers" if one.stuck is None else Text(one.stuck, style="yellow")
        table.add_row(one.name, *map(str, (one.replicas, one.ready, one.desired)), speed, _known(one.cold_start), state)
    return table


def _figures(status: Status, slo: Slo | None, lacking: str) -> Table:
    decision, throughput = status.last_decision, status.throughput or Throughput()
    rows: list[tuple[str, Text | None]] = []

    def row(name: str, figure: object, unit: str = "", aside: str = "") -> None:
        rows.append((name, None if figure is None else Text(f"{figure}{unit}").append(aside, style="dim")))

    row("replicas", status.fleet, aside="  ready/desired/max")
    if (bounds := status.bounds) is not None:
        aside = "" if bounds.schedule is None else f"  by schedule {bounds.schedule}"
        row("bounds", f"{bounds.min} to {bounds.max}", aside=aside)
    if status.batch is not None:
        _of_batch(row, status.batch)
    if slo is not None:
        _of_slo(row, status, slo)
    row("output", throughput.generation_tokens_per_second, " tokens/s")
    row("output per GPU", throughput.tokens_per_second_per_gpu, " tokens/s")
    row("prompts", throughput.prompt_tokens_per_second, " tokens/s")
    if throughput.dollars_per_million_tokens is not None:
        price = f"  ${throughput.dollars_per_million_tokens:.2f} per million output tokens"
        row("output per dollar", f"{throughput.tokens_per_dollar:.0f}", " tokens", price)
    if status.cost is not None:
        _compare(row, status, status.cost)
    row("queue", status.queue_depth, " requests")
    if decision is not None and status.roles is None:
        row("load", decision.load, aside=_safe(decision, "  "))
        row("forecast", decision.forecast, " replicas kept busy", f"  in {decision.horizon}")
    row("cold start, measured", status.cold_start)
    return _folded(rows, lacking)


def _of_batch(row: Row, work: BatchStatus) -> None:
    """Add the backlog, the next deadline, and the time by which the desired replicas meet it."""
    row("backlog", None if work.backlog is None else f"{work.backlog:,.0f}", f" {work.unit}")
    if work.due_at is not None:
        row("due next", write(work.due_at), aside="" if work.due is None else f"  {work.due:,.0f} {work.unit}")
    if work.finishes_at is not None:
        rate = "" if work.per_second is None else f"  at {work.per_second:,.2f} {work.unit}/s"
        row("done by", write(work.finishes_at), aside=rate)


def _of_slo(row: Row, status: Status, slo: Slo) -> None:
    """Add the attainment beside the objective, and each latency beside its bound."""
    attained, decision, latency = status.attainment, status.last_decision, status.latency or Latency()
    share = None if attained is None else f"{attained:.4g}"
    row("attainment, last hour", share, "%", f"  objective {slo.attainment:g}%")
    for name, key in (("last 5 minutes", "attainmentNow"), ("last minute", "attainmentMinute")):
        recent = None if decision is None else decision.figures.get(key)
        row(f"attainment, {name}", None if recent is None else f"{100.0 * recent:.4g}", "%")
    percentile = f"p{slo.percentile(roles=status.roles is not None):.4g}"
    if slo.time_to_first_token is not None:
        row(f"TTFT {percentile}", latency.time_to_first_token, aside=f"  SLO {brief(slo.time_to_first_token)}")
    if slo.time_per_output_token is not None:
        row(f"TPOT {percentile}", latency.time_per_output_token, aside=f"  SLO {brief(slo.time_per_output_token)}")


def _folded(rows: list[tuple[str, Text | None]], lacking: str) -> Table:
    """The known figures, one a row, and a row with the names of the others, which are `lacking`."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="dim")
    table.add_column()
    missing = ", ".join(name for name, figure in rows if figure is None)
    for name, shown in (*rows, (lacking, Text(missing, style="yellow") if missing else None)):
        if shown is not None:
            table.add_row(name, shown)
    return table


def _compare(row: Row, status: Status, cost: Cost) -> None:
    """Cost of the fleet, and of its traffic at the hosted price."""
    row("cost", _dollars(cost.dollars_per_hour), " per hour")
    if cost.compared_to is None:
        return
    row(f"cost at {cost.compared_to}", _dollars(cost.compared_dollars_per_hour), " per hour", f"  noted {cost.noted}")
    decision, load = status.last_decision, cost.break_even_load
    aside = "" if load is None else f"  load {load}{_safe(decision, ', ')}"
    row("cheaper here from", cost.break_even_tokens_per_second, " output tokens/s", aside)


def _known(figure: object) -> Text:
    return Text("unknown", style="yellow") if figure is None else Text(str(figure))


def _safe(decision: LastDecision | None, before: str) -> str:
    """The load up to which the SLO holds, after a load; nothing where it is unknown."""
    return "" if decision is None or decision.safe_load is None else f"{before}safe up to {decision.safe_load}"


def _dollars(figure: float | None) -> str | None:
    return None if figure is None else f"${figure:.2f}"


def changes(history: Iterable[Change]) -> Table:
    """The changes of a target's replicas, one a row."""
    table = _table("changed", "replicas", "outcome", "by", "why", whole={"changed", "replicas"})
    for one in history:
        table.add_row(write(one.at), f"{one.from_} -> {one.to}", one.outcome or "", one.by, one.why)
    return table


def _conditions(status: Status) -> Table:
    table = _table("condition", "status", "reason", "message")
    for one in status.conditions:
        style = "green" if one.status == one.type.good else "yellow"
        table.add_row(one.type.value, Text(one.status.value, style=style), one.reason, one.message)
    return table
