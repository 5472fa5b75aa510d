"""Requests, replicas of each target and GPUs under the budget, over the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from fleet_run.evidence import bound, gpus_of
from fleet_run.record import Record
from fleet_run.scene import GPUS, POOLS, Pool
from servingpool_simulation.report.drawing import Label, stacked, style, svg
from servingpool_simulation.report.palette import BLUE, FAINT, GREEN, INK, ORANGE, VERMILION

RATE_SECONDS = 60.0
COLORS: Mapping[str, str] = {
    "chat": BLUE,
    "chat-h100": BLUE,
    "chat-a100": VERMILION,
    "code": ORANGE,
    "code-a100": ORANGE,
    "batch": GREEN,
    "batch-a100": GREEN,
}


def picture(record: Record) -> str:
    """SVG."""
    panels: list[Callable[[Axes, Record], list[Label]]] = [_requests]
    panels += [_replicas(pool) for pool in POOLS]
    panels.append(_gpus)
    with style():
        figure = stacked(panels, record, wide=record.minute(record.end), below="minutes")
        return svg(figure, name="fleet-run", title="Requests, replicas of each target, and GPUs under the budget")


def _times(record: Record) -> list[float]:
    return [record.minute(one.at) for one in record.observations]


def _requests(axes: Axes, record: Record) -> list[Label]:
    labels = []
    for pool in POOLS:
        at, rate = zip(*_rates(record, pool.name), strict=True)
        axes.plot(at, rate, color=COLORS[pool.name], linewidth=1.4)
        labels.append(Label(rate[-1], pool.name, COLORS[pool.name]))
    axes.set_ylim(bottom=0)
    axes.set_title("Requests per second, mean of a minute")
    return labels


def _rates(record: Record, name: str) -> Iterator[tuple[float, float]]:
    observations, begin = record.observations, 0
    for observation in observations[1:]:
        while observation.at - observations[begin].at > RATE_SECONDS:
            begin += 1
        arrived = observation.pools[name].arrived - observations[begin].pools[name].arrived
        yield record.minute(observation.at), arrived / (observation.at - observations[begin].at)


def _replicas(pool: Pool) -> Callable[[Axes, Record], list[Label]]:
    """Ordered as lines, ready as what is filled below them."""

    def panel(axes: Axes, record: Record) -> list[Label]:
        at, labels, most = _times(record), [], 1
        for one in pool.targets:
            seen = [each.targets[one.name] for each in record.observations]
            color = COLORS[one.name]
            axes.fill_between(at, [each.ready for each in seen], step="post", color=color, alpha=0.22, linewidth=0)
            axes.step(at, [each.ordered for each in seen], where="post", color=color, linewidth=1.8)
            labels.append(Label(seen[-1].ordered, one.name, color, bold=True))
            most = max(most, *(each.ordered for each in seen))
        axes.set_ylim(0, most + 0.6)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
        axes.set_title(f"Replicas of {pool.name}, priority {pool.priority}: ordered (line), ready (area)")
        return labels

    return panel


def _gpus(axes: Axes, record: Record) -> list[Label]:
    at, below, labels = _times(record), [0] * len(record.observations), []
    for begin, end in bound(record):
        axes.axvspan(record.minute(begin), record.minute(end), color=FAINT, alpha=0.45, linewidth=0)
    for pool in POOLS:
        held = [gpus_of(observation, pool) for observation in record.observations]
        top = [one + more for one, more in zip(below, held, strict=True)]
        axes.fill_between(at, below, top, step="post", color=COLORS[pool.name], alpha=0.75, linewidth=0)
        labels.append(Label((below[-1] + top[-1]) / 2, pool.name, COLORS[pool.name]))
        below = top
    axes.axhline(GPUS, color=INK, linewidth=1.6)
    axes.set_ylim(0, GPUS + 2)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
    axes.set_title("GPUs held, loading and draining ones too; grey: a pool is kept from GPUs that it wants")
    return [*labels, Label(GPUS, f"budget of {GPUS}", INK, bold=True)]
