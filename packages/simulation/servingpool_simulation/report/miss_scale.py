"""The axes of a frontier: misses on a logarithmic scale, so that 99% and 99.9% can be told apart."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from servingpool.decision.pool import Slo
from servingpool_simulation.report.figures import target
from servingpool_simulation.report.palette import FAINT, INK

_TICKS = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0001)


def misses(attainment: float, requests: int) -> float:
    """Their share; half a request where there is none, for a logarithm."""
    return max(1 - attainment, 0.5 / max(requests, 1))


def miss_scale(axes: Axes, slo: Slo, shares: Sequence[float], least: float = 0.0) -> None:
    """Axes for these shares of misses (see `misses`) against GPU-hours, with the SLO's target; none below `least`."""
    goal = 1 - slo.attainment
    axes.set_yscale("log")
    axes.set_ylim(min(1.0, max(shares) * 1.3), max(min(*shares, goal) * 0.4, least))
    axes.yaxis.set_major_locator(FixedLocator(_TICKS))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * (1 - share):g}%"))
    axes.axhline(goal, color=INK, linewidth=1.0)
    axes.axhspan(1.0, goal, color=FAINT, alpha=0.35, linewidth=0, zorder=0)
    axes.annotate(
        f"SLO missed: below {target(slo)}",
        (1.0, goal),
        xycoords=("axes fraction", "data"),
        xytext=(-6, -13),
        textcoords="offset points",
        ha="right",
        fontsize=9,
        color=INK,
    )
    axes.set_xlabel("GPU-hours")
    axes.set_ylabel("requests within the SLO")
