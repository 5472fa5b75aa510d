"""The README's picture: a day of requests, and the replicas of ServingPool, an HPA and the best fixed fleet.

`python benchmarks/control/day_picture.py` writes docs/images/day.svg; about a minute.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from cases import CASES, Case
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from servingpool_simulation.baselines import hpa
from servingpool_simulation.policies import Ours, Policy, Static
from servingpool_simulation.report.drawing import Label, label_lines, style, svg
from servingpool_simulation.report.palette import BLUE, MUTED, VERMILION
from servingpool_simulation.run import Result, SimulationOptions, best_static, simulate
from servingpool_simulation.tables import Floats
from servingpool_simulation.traces import Trace

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "day.svg"
CASE = "clients-day"
HOUR = 3600.0
BIN = 600.0
"""Seconds over which requests are averaged."""
LOOKS = {
    "ServingPool": (BLUE, "-", 2.0),
    "HPA": (VERMILION, (0, (4.0, 1.5)), 1.2),
    "fixed": (MUTED, (0, (1.0, 1.5)), 1.4),
}


def runs(case: Case) -> Mapping[str, Result]:
    """By name. Every policy starts with the best fixed fleet, and with nothing known."""
    trace, pool = case.trace(0), case.pool()
    found = best_static(trace, case.profile, pool, SimulationOptions(seed=0))
    assert found is not None, "every case of the catalogue has a fixed fleet that holds its SLO"
    size = found.score.peak_replicas
    options = SimulationOptions(seed=0, initial_replicas=size)
    policies: dict[str, Policy] = {"ServingPool": Ours(), "HPA": hpa.on_running(), "fixed": Static(size)}
    return {name: simulate(trace, case.profile, pool, policy, options) for name, policy in policies.items()}


def changes(result: Result) -> tuple[Floats, Floats]:
    """Hours and replicas asked for, where they change: a point a decision would make the file fifty times as large."""
    time, asked = np.asarray(result.series.time) / HOUR, np.asarray(result.series.requested, dtype=np.float64)
    kept = np.flatnonzero(np.diff(asked, prepend=-1.0))
    return np.append(time[kept], time[-1]), np.append(asked[kept], asked[-1])


def picture(case: Case) -> str:
    """SVG of two panels, requests above replicas."""
    trace, found = case.trace(0), runs(case)
    with style():
        figure = Figure(figsize=(9.6, 4.0))
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1.0, 1.6))
        figure.subplots_adjust(left=0.06, right=0.70, top=0.93, bottom=0.11, hspace=0.35)
        requests(above, trace)
        replicas(below, found)
        below.set_xlim(0.0, trace.duration / HOUR)
        below.set_xlabel("hours")
        return svg(figure, name="day", title=f"{case.title}: requests, and replicas of three policies")


def requests(axes: Axes, trace: Trace) -> None:
    """Requests each second, averaged."""
    edges = np.linspace(0.0, trace.duration, round(trace.duration / BIN) + 1)
    counts, _ = np.histogram(trace.arrival, bins=edges)
    rate = counts / np.diff(edges)
    axes.fill_between(edges / HOUR, np.append(rate, rate[-1]), step="post", color="#afb8c1", linewidth=0)
    axes.set_ylim(bottom=0.0)
    axes.margins(x=0)
    axes.set_title("Requests each second, 10-minute mean")


def replicas(axes: Axes, found: Mapping[str, Result]) -> None:
    """Replicas asked for, and what each policy cost and attained."""
    labels = []
    for name, result in found.items():
        color, dash, width = LOOKS[name]
        at, asked = changes(result)
        axes.step(
            at,
            asked,
            where="post",
            color=color,
            linestyle=dash,
            linewidth=width,
            zorder=3 if name == "ServingPool" else 2,
        )
        score = result.score
        said = {"fixed": f"best fixed fleet ({score.peak_replicas})"}.get(name, name)
        labels.append(
            Label(
                asked[-1],
                f"{said}: {score.gpu_hours:.0f} GPU-h, {score.attainment:.1%}",
                color,
                bold=name == "ServingPool",
            )
        )
    axes.set_ylim(0.0, max(max(result.series.requested) for result in found.values()) * 1.08)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    axes.set_title("Requested replicas")
    label_lines(axes, labels)


def main() -> int:
    """Write the picture."""
    PICTURE.write_text(picture(CASES[CASE]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
