"""The parts of the screen, each from a snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from servingpool_lab.record import static_gpu_hours
from servingpool_lab.scenario import Scenario
from servingpool_lab.snapshot import Snapshot
from servingpool_lab.view import words
from servingpool_lab.view.chart import clock, fit, latest, mean, sparkline, stacked

_READY, _LOADING, _ARRIVALS = "green", "yellow", "cyan"
_VERDICTS = {"ScaleUp": "bold yellow", "ScaleDown": "bold cyan", "Hold": "bold green"}


def header(snapshot: Snapshot, scenario: Scenario) -> RenderableType:
    """What runs, and for how long."""
    workload = scenario.workload
    line = Table.grid(expand=True)
    line.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    line.add_column(justify="right", no_wrap=True)
    line.add_row(
        f"[bold]servingpool lab[/]  {workload.model} on {workload.hardware}, {workload.title}",
        f"[bold]{clock(snapshot.elapsed)}[/]",
    )
    return line


def replicas(snapshot: Snapshot, scenario: Scenario, width: int, rows: int) -> Panel:
    """Replicas over time in `rows` lines, with the arrivals below."""
    series = snapshot.series
    span = max(10, width - 12)
    # The largest of a column would add a replica that loads to the one that it has become a moment later.
    ready, loading = (fit(series.get(name, []), span, latest) for name in ("ready", "loading"))
    arrivals = fit(series.get("arrivals", []), span, mean)
    peak = int(max((a + b for a, b in zip(ready, loading, strict=True)), default=0))
    top = rows * max(1, -(-peak // rows))
    static = (snapshot.truth or {}).get("static")
    mark = static["replicas"] if static else None
    lines = stacked(ready, loading, styles=(_READY, _LOADING), height=rows, top=top, mark=mark)
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(justify="right", style="dim", width=6)
    table.add_column(no_wrap=True)
    for row, line in enumerate(lines):
        at = top - row * top // rows
        table.add_row(f"{at:d}", line if ready else _before_the_first_request(snapshot, scenario, row))
    table.add_row("req/s", sparkline(arrivals, _ARRIVALS))
    table.add_row("", _axis(snapshot.seconds, len(arrivals)))
    legend = f"[{_READY}]█[/] ready  [{_LOADING}]█[/] loading" + (
        f"  ▁ best static fleet in hindsight: {mark}" if mark else ""
    )
    return _panel(table, _fleet(snapshot, scenario), subtitle=legend)


def _fleet(snapshot: Snapshot, scenario: Scenario) -> str:
    counts: Mapping[str, int] = (snapshot.truth or {}).get("replicas", {})
    status = snapshot.pool.status if snapshot.pool else None
    desired = status.desired_replicas if status else None
    parts = [f"[b {_READY}]{counts.get('ready', words.UNKNOWN)} ready[/]"]
    if counts.get("loading"):
        parts.append(f"[{_LOADING}]{counts['loading']} loading[/]")
    if counts.get("draining"):
        parts.append(f"{counts['draining']} draining")
    parts.append(f"desired [b]{words.UNKNOWN if desired is None else desired}[/]")
    parts.append(f"max {scenario.workload.maximum}")
    return "[b]Replicas[/]  " + ", ".join(parts)


def _before_the_first_request(snapshot: Snapshot, scenario: Scenario, row: int) -> Text:
    if row != 1 or snapshot.seconds > 0:
        return Text("")
    count, seconds = scenario.workload.initial, scenario.load_seconds
    return Text(f"{count} replicas load for about {seconds:g} s; the requests begin when they are ready", "dim")


def _axis(seconds: float, width: int) -> Text:
    begin, end = "0:00", clock(seconds)
    if width < len(begin) + len(end) + 2:
        return Text(end if width else "", "dim")
    return Text(begin + " " * (width - len(begin) - len(end)) + end, "dim")


def objective(snapshot: Snapshot, scenario: Scenario, gap: int) -> Panel:
    """The SLO: what the operator sees, and what is true; `gap` blanks between the columns."""
    slo = scenario.workload.slo
    truth: Mapping[str, Any] = snapshot.truth or {}
    status = snapshot.pool.status if snapshot.pool else None
    latency = status.latency if status else None
    at = words.percentile(slo.attainment)
    table = Table.grid(padding=(0, gap, 0, 0), expand=True)
    table.add_column(no_wrap=True)
    for _ in range(3):
        table.add_column(justify="right", no_wrap=True)
    table.add_row("", "[dim]SLO[/]", "[dim]operator[/]", "[dim]truth[/]")
    for name, bound, told, true in (
        ("TTFT", slo.time_to_first_token, latency and latency.time_to_first_token, truth.get("ttft")),
        ("TPOT", slo.time_per_output_token, latency and latency.time_per_output_token, truth.get("tpot")),
    ):
        if bound is not None:
            good = true is None or true <= bound
            table.add_row(
                f"{name} {at}", words.seconds(bound), told or words.UNKNOWN, _judged(words.seconds(true), good)
            )
    attained = truth.get("attainment")
    told_share = None if status is None or status.attainment is None else status.attainment / 100
    table.add_row(
        "attained",
        words.percent(slo.attainment),
        words.percent(told_share),
        _judged(words.percent(attained), attained is None or attained >= slo.attainment),
    )
    lost = truth["ended"]["lost"] if truth else None
    table.add_row("lost", "0", words.UNKNOWN, _judged(words.UNKNOWN if lost is None else str(lost), not lost))
    return _panel(table, "[b]Objective[/]  [dim](5 min, truth 1 min)[/]")


def _judged(text: str, good: bool) -> str:
    return f"[b {'green' if good else 'red'}]{text}[/]"


def work(snapshot: Snapshot) -> Panel:
    """Traffic, tokens, queue and what it costs."""
    table = Table.grid(padding=(0, 2, 0, 0), expand=True)
    table.add_column(no_wrap=True, style="dim")
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    for name, text in (_work(snapshot.truth) if snapshot.truth else _NOTHING_YET).items():
        table.add_row(name, text)
    return _panel(table, "[b]Work and cost[/]")


_NOTHING_YET = dict.fromkeys(("requests", "tokens", "queue", "spent", "static"), words.UNKNOWN)


def _work(truth: Mapping[str, Any]) -> dict[str, str]:
    queue, door, ended = truth["queue"], truth["front_door"], sum(truth["ended"].values())
    waiting = f"[b {'yellow' if queue else 'green'}]{queue}[/] waiting"
    written = words.rate(truth["output_tokens"], "tok/s")
    return {
        "requests": f"{words.rate(truth['arrivals'], 'req/s')}, {truth['in_flight']} in flight, {ended:,} done",
        "tokens": f"[b]{written}[/] out, {words.rate(truth['prompt_tokens'], 'in')}",
        "queue": waiting + (f", {door} of them with no replica ready" if door else ""),
        "spent": f"[b]{truth['gpu_hours']:.2f} GPU-hours[/]",
        "static": _static(truth),
    }


def _static(truth: Mapping[str, Any]) -> str:
    static, hours = truth.get("static"), static_gpu_hours(truth)
    if static is None or not hours:
        return words.UNKNOWN
    saved = words.saving(truth["gpu_hours"], hours)
    return f"{hours:.2f} with {static['replicas']}: [b]{saved}[/], attains {words.percent(static['attainment'])}"


def decision(snapshot: Snapshot, lines: int) -> Panel:
    """The last decision and why."""
    last = snapshot.pool.status.last_decision if snapshot.pool else None
    title = "[b]Last decision[/]"
    if last is None:
        body: RenderableType = Text("none yet", "dim")
    else:
        ago = max(0.0, snapshot.unix - last.at.timestamp())
        first = "" if snapshot.first_decision is None else f", first one {snapshot.first_decision:.0f} s after start"
        title += (
            f"  [{_VERDICTS.get(last.verdict, 'bold')}]{escape(last.verdict)}[/] at {last.replicas}"
            f" [dim]({clock(ago)} ago{first})[/]"
        )
        limits = [Text(f"{limit.name} {limit.before} → {limit.after}: {limit.reason}", "dim") for limit in last.limits]
        warnings = [Text(warning, "yellow") for warning in last.warnings]
        body = Group(Text(last.reason), *limits, *warnings)
    return _panel(body, title, height=lines + 2)


def events(snapshot: Snapshot, lines: int) -> Panel:
    """The newest events of the pool, newest first."""
    written = []
    for event in list(reversed(snapshot.events))[:lines]:
        at = datetime.fromtimestamp(event.at, UTC).astimezone().strftime("%H:%M:%S")
        line = Text.assemble((f"{at}  ", "dim"), (f"{event.reason}  ", "red" if event.warning else ""), event.message)
        line.no_wrap, line.overflow = True, "ellipsis"
        written.append(line)
    body = Group(*written or [Text("none yet", "dim")])
    return _panel(body, "[b]Events[/]", height=lines + 2)


def footer(snapshot: Snapshot, hints: Sequence[str]) -> RenderableType:
    """What runs, and what to type elsewhere."""
    health = Text("  ").join(
        Text.assemble(("● ", "green") if runs else ("✗ ", "bold red"), name) for name, runs in snapshot.parts.items()
    )
    return Group(health, *(Text(hint, "dim", no_wrap=True, overflow="ellipsis") for hint in hints))


def _panel(body: RenderableType, title: str, *, subtitle: str | None = None, height: int | None = None) -> Panel:
    return Panel(
        body,
        # A title takes the border's style where it has none of its own.
        title=f"[default]{title}[/]",
        title_align="left",
        subtitle=subtitle and f"[default]{subtitle}[/]",
        subtitle_align="right",
        border_style="bright_black",
        padding=(0, 1),
        height=height,
    )
