"""Replicas over the afternoon, by who set them."""

from __future__ import annotations

from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from afternoon.evidence import HPA, phases
from afternoon.evidence import by_robots as robots
from afternoon.record import Record
from servingpool_simulation.report.drawing import Label, stacked, style, svg
from servingpool_simulation.report.palette import BLUE, FAINT, MUTED, ORANGE

RATE_SECONDS = 60.0


def picture(record: Record) -> str:
    """SVG: requests, and the replicas that each writer set."""
    wide = _minutes(record, record.marks["end"])
    with style():
        figure = stacked((_load, _replicas), record, wide=wide, below="minutes")
        return svg(figure, name="afternoon", title="Replicas over the afternoon, by who set them")


def _minutes(record: Record, at: float) -> float:
    return (at - record.marks["hpa"]) / 60


def _load(axes: Axes, record: Record) -> list[Label]:
    observations = record.observations
    begin, at, rate = 0, [], []
    for observation in observations:
        while observation.at - observations[begin].at > RATE_SECONDS:
            begin += 1
        if observation.at > observations[begin].at:
            at.append(_minutes(record, observation.at))
            rate.append((observation.arrived - observations[begin].arrived) / (observation.at - observations[begin].at))
    axes.fill_between(at, rate, color="#afb8c1", linewidth=0)
    axes.set_ylim(bottom=0)
    axes.set_title("Requests per second, mean of a minute")
    return [Label(rate[-1], "requests", MUTED)]


def _replicas(axes: Axes, record: Record) -> list[Label]:
    observations = record.observations
    at, ready = [_minutes(record, one.at) for one in observations], [one.ready for one in observations]
    axes.fill_between(at, ready, step="post", color=FAINT, linewidth=0)
    writes = robots(record)
    ends = [one.at for _, one in writes[1:]] + [record.marks["end"]]
    colors = {HPA: ORANGE}
    for (writer, one), end in zip(writes, ends, strict=True):
        span = [_minutes(record, one.at), _minutes(record, end)]
        axes.plot(span, [one.replicas] * 2, color=colors.get(writer, BLUE), linewidth=2.2, solid_capstyle="butt")
    for (_, before), (writer, after) in pairwise(writes):
        moment = [_minutes(record, after.at)] * 2
        axes.plot(moment, [before.replicas, after.replicas], color=colors.get(writer, BLUE), linewidth=1.0)
    wide = _minutes(record, record.marks["end"])
    for phase in phases(record)[1:]:
        axes.axvline(_minutes(record, phase.begin), color=MUTED, linewidth=0.8, linestyle=(0, (2.0, 2.0)))
    for phase in phases(record):
        axes.text(
            _minutes(record, phase.begin) + wide / 200, record.maximum + 0.25, phase.name, fontsize=8, color=MUTED
        )
    axes.set_ylim(0, record.maximum + 1)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    axes.set_title("Replicas")
    return [
        Label(record.maximum - 1.5, "set by the HPA", ORANGE, bold=True),
        Label(record.maximum - 3.0, "set by the operator", BLUE, bold=True),
        Label(record.maximum - 4.5, "ready", MUTED),
    ]
