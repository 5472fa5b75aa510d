"""The run over time: load, replicas, latency, attainment, one above the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from servingpool.decision.params import MINUTE
from servingpool_simulation.demo import Comparison, Role
from servingpool_simulation.report.drawing import Label, stacked, steps, style, svg
from servingpool_simulation.report.figures import latency, target
from servingpool_simulation.report.palette import AREA, BLUE, INK, MUTED, ORANGE, OUTPUT, PROMPTS, looks
from servingpool_simulation.tables import Floats

Panel = Callable[[Axes, Comparison], Sequence[Label]]


def picture(comparison: Comparison) -> str:
    """SVG of load, replicas and TTFT: what a README shows."""
    return _stack(comparison, (arrivals, replicas, first_tokens), name="picture")


def course(comparison: Comparison) -> str:
    """SVG of all panels."""
    panels = (arrivals, tokens, replicas, first_tokens, attainment)
    return _stack(comparison, panels, name="course")


def _stack(comparison: Comparison, panels: Sequence[Panel], *, name: str) -> str:
    with style():
        figure = stacked(panels, comparison, wide=comparison.setup.trace.duration / MINUTE, below="minutes")
        return svg(figure, name=name, title=f"{comparison.setup.trace.name}: course of the run")


def arrivals(axes: Axes, comparison: Comparison) -> Sequence[Label]:
    """Requests/s by minute of arrival."""
    at, rate = _by_minute(comparison, np.ones(len(comparison.setup.trace)))
    axes.fill_between(at, rate, step="post", color=AREA, linewidth=0)
    axes.set_ylim(bottom=0)
    axes.set_title("Load: requests that arrive each second, mean of a minute")
    axes.set_ylabel("requests/s")
    return [Label(float(rate[-1]), "arrivals", MUTED)]


def tokens(axes: Axes, comparison: Comparison) -> Sequence[Label]:
    """Prompt and output tokens/s that the requests of each minute ask for."""
    trace = comparison.setup.trace
    at, prompt = _by_minute(comparison, trace.prompt)
    _, output = _by_minute(comparison, trace.output)
    axes.fill_between(at, prompt, step="post", color=PROMPTS, linewidth=0)
    axes.fill_between(at, prompt, prompt + output, step="post", color=ORANGE, alpha=0.8, linewidth=0)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_title("Load: tokens that those requests ask for each second, by arrival")
    axes.set_ylabel("tokens/s")
    middle, top = float(prompt[-1]), float(prompt[-1] + output[-1])
    return [Label(middle / 2, "prompt", MUTED), Label((middle + top) / 2, "output, on top", OUTPUT)]


def replicas(axes: Axes, comparison: Comparison) -> Sequence[Label]:
    """What each policy asked for; ours with what was ready of it."""
    labels = []
    look = looks(comparison)
    for entry in comparison.entries:
        series, drawn = entry.result.series, look[entry]
        ours = entry.role is Role.OURS
        at = [*np.divide(series.time, MINUTE), comparison.setup.trace.duration / MINUTE]
        if ours:
            ready = [*series.ready, series.ready[-1]]
            axes.fill_between(at, ready, step="post", color=BLUE, alpha=0.16, linewidth=0)
        requested = [*series.requested, series.requested[-1]]
        axes.step(
            at,
            requested,
            where="post",
            color=drawn.color,
            linestyle=drawn.dash,
            linewidth=drawn.width,
            zorder=3 if ours else 2,
        )
        labels.append(Label(requested[-1], entry.label, drawn.color, bold=ours))
    axes.set_ylim(0, max(max(entry.result.series.requested) for entry in comparison.entries) * 1.12)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    axes.set_title(f"Replicas asked for; shaded: those of {comparison.ours.label} that were ready")
    axes.set_ylabel("replicas")
    return labels


def first_tokens(axes: Axes, comparison: Comparison) -> Sequence[Label]:
    """TTFT at the SLO's percentile over the last minute, against its bound."""
    slo = comparison.setup.pool.slo
    labels = _latencies(axes, comparison, [entry.result.series.ttft for entry in comparison.entries])
    bound = slo.time_to_first_token
    if bound is not None:
        low, high = axes.get_ylim()
        axes.set_ylim(low, max(high, bound * 1.25))
        axes.axhline(bound, color=INK, linewidth=1.0)
        labels.append(Label(bound, f"SLO: {latency(bound)}", INK))
    axes.set_title(f"TTFT that {target(slo)} of requests stayed within, last minute (log scale)")
    axes.set_ylabel("TTFT, s")
    return labels


def attainment(axes: Axes, comparison: Comparison) -> Sequence[Label]:
    """Share of the requests that ended so far which met the SLO."""
    look, goal = looks(comparison), comparison.setup.pool.slo.attainment
    labels, lowest = [], goal
    for entry in comparison.entries:
        share, drawn = steps(entry.result.series.attainment), look[entry]
        at = np.divide(entry.result.series.time, MINUTE)
        axes.plot(at, share, color=drawn.color, linestyle=drawn.dash, linewidth=drawn.width)
        labels.append(Label(float(share[-1]), entry.label, drawn.color, bold=entry.role is Role.OURS))
        lowest = min(lowest, float(share[-1]))
    axes.axhline(goal, color=INK, linewidth=1.0)
    labels.append(Label(goal, f"SLO: {target(comparison.setup.pool.slo)}", INK))
    # The first few requests swing between 0 and 100%; where a policy ends is what has to be seen.
    axes.set_ylim(max(0.0, lowest - 0.35 * (1.02 - lowest)), 1.0 + 0.03 * (1.02 - lowest))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_title("Attainment so far: share of ended requests within every bound")
    axes.set_ylabel("attainment")
    return labels


def _latencies(axes: Axes, comparison: Comparison, lines: Sequence[Sequence[float | None]]) -> list[Label]:
    """Those of policies that scale: fixed fleets would clutter what is compared."""
    labels, look = [], looks(comparison)
    axes.set_yscale("log")
    for entry, line in zip(comparison.entries, lines, strict=True):
        values = steps(line)
        seen = values[~np.isnan(values)]
        if entry.role in (Role.HINDSIGHT, Role.PEAK) or len(seen) == 0:
            continue
        drawn = look[entry]
        at = np.divide(entry.result.series.time, MINUTE)
        axes.plot(at, values, color=drawn.color, linestyle=drawn.dash, linewidth=min(drawn.width, 1.6))
        labels.append(Label(float(seen[-1]), entry.label, drawn.color, bold=entry.role is Role.OURS))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:g}" if f"{value:.0e}"[0] in "25" else ""))
    return labels


def _by_minute(comparison: Comparison, weights: NDArray[Any]) -> tuple[Floats, Floats]:
    """(minutes, rate per second); the last rate twice, to end the last step."""
    trace, begin = comparison.setup.trace, comparison.setup.options.history
    seconds = trace.duration - begin
    edges = np.linspace(0.0, seconds, max(1, round(seconds / MINUTE)) + 1)
    total, _ = np.histogram(trace.arrival - begin, bins=edges, weights=weights)
    rate = total / np.diff(edges)
    return edges / MINUTE, np.append(rate, rate[-1])
