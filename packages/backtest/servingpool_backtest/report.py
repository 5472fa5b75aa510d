"""The report of a backtest: one HTML file that needs nothing besides itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from servingpool import __version__
from servingpool.api.duration import brief
from servingpool.recording.verdict import band
from servingpool_backtest.curves import Curves
from servingpool_backtest.drawing import course
from servingpool_backtest.result import Backtest
from servingpool_simulation.changes import Change
from servingpool_simulation.report.figures import latency, more_or_less, objective, percent, target
from servingpool_simulation.report.palette import themed

FREQUENT = 20.0
"""Seconds between scrapes up to which the first of the two errors holds."""


OFTEN = "each 15 s, none lost: GPU-hours 3.1% off (18% at worst), attainment 0.5 (1.8) points"
"""How far backtests of sixteen histories were off, 8 cases of `benchmarks/backtest.py` with two fleets each, at the
mean and at worst; `make evidence` sets them."""
RARELY = "each 30 s, 5% lost, ten minutes missing: GPU-hours 7.2% off (33% at worst), attainment 0.6 (1.6) points"


@dataclass(frozen=True, slots=True)
class Row:
    """One scale change."""

    at: str
    before: int
    after: int
    ready: int
    reason: str


@dataclass(frozen=True, slots=True)
class Shown:
    """All that a page shows, as texts and numbers: the markup is made where the page is written."""

    title: str
    objective: str
    held: bool | None
    """None without a verdict."""
    sentence: str
    cards: tuple[tuple[str, str, str], ...]
    """Figure, what it is, what stands beside it."""
    rows: tuple[tuple[str, str, str, str], ...]
    """What, GPU-hours, attained, where it comes from."""
    curves: Curves
    changes: tuple[Row, ...]
    unknowns: tuple[str, ...]
    ruled: str | None
    """Name of the autoscaler whose rule was replayed."""
    ground: tuple[tuple[str, str], ...]
    command: str
    """What a person types to get it again."""
    version: str = __version__


def shown(found: Backtest, command: str) -> Shown:
    """What the page of a backtest shows."""
    return Shown(
        title=f"{found.header.namespace}/{found.header.target}",
        objective=objective(found.question.pool.slo),
        held=None if found.doubts else found.held,
        sentence=sentence(found),
        cards=tuple(_cards(found)),
        rows=tuple(_rows(found)),
        curves=Curves.of(found),
        changes=tuple(_change(at, change) for at, change in found.auto.changes),
        unknowns=tuple(found.unknowns()),
        ruled=None if found.rule is None or found.question.rule is None else found.question.rule.name,
        ground=tuple(_ground(found)),
        command=command,
    )


def page(one: Shown) -> str:
    """The HTML."""
    return environment().get_template("backtest.html.j2").render(one=one, course=themed(course(one.curves)))


def environment() -> Environment:
    """The templates of a backtest, and the style that all reports share."""
    return Environment(
        loader=ChoiceLoader(
            [PackageLoader("servingpool_backtest", ""), PackageLoader("servingpool_simulation.report", "")]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def sentence(found: Backtest) -> str:
    """The answer in one sentence; without a verdict why, when to ask again, and bands in place of figures."""
    was, auto = found.hours
    if found.doubts:
        low, high = found.hours_band
        attained = found.auto.attainment
        served = "" if attained is None else f", with {band(attained, found.history.apart)} of requests within the SLO"
        return (
            f"No verdict yet. {' '.join(found.doubts)} Auto may have used {low:,.1f} to {high:,.1f} GPU-hours where "
            f"{was:,.1f} were used{served}"
        )
    attained = found.auto.attainment
    said = "no request came" if attained is None else f"{percent(attained)} of requests within the SLO"
    spared = None if found.dollars is None else found.dollars[0] - found.dollars[1]
    saved = "" if spared is None else f", ${abs(spared):,.0f} {'less' if spared >= 0.0 else 'more'}"
    return (
        f"Auto would have used {auto:,.1f} GPU-hours where {was:,.1f} were used "
        f"({more_or_less(auto, was)}{saved}), with {said}"
    )


def _cards(found: Backtest) -> Iterator[tuple[str, str, str]]:
    """Figure, what it is, what stands beside it."""
    was, auto = found.hours
    observed = found.observed.attainment(found.scored_from)
    slo = found.question.pool.slo
    what, beside = "within the SLO with Auto", f"observed {_share(observed)}, objective {target(slo)}"
    if found.doubts:
        low, high = found.hours_band
        attained = found.auto.attainment
        yield "-" if attained is None else band(attained, found.history.apart), what, beside
        yield f"{low:,.1f} to {high:,.1f}", "GPU-hours with Auto", f"{was:,.1f} were used"
        return
    yield _share(found.auto.attainment), what, beside
    yield f"{auto:,.1f}", "GPU-hours with Auto", f"{was:,.1f} were used"
    if found.dollars is not None:
        yield f"${found.dollars[1]:,.2f}", "cost with Auto", f"${found.dollars[0]:,.2f} were spent"
    quantiles = found.auto.quantiles()
    yield latency(quantiles["ttft"]["p95"]), "TTFT at p95", _bound(slo.time_to_first_token)
    yield latency(quantiles["tpot"]["p95"]), "TPOT at p95", _bound(slo.time_per_output_token)
    yield str(len(found.auto.changes)), "scale changes", f"{max(found.auto.requested)} replicas at most"


def _rows(found: Backtest) -> Iterator[tuple[str, str, str, str]]:
    """What, GPU-hours, attained, where it comes from."""
    was, auto = found.hours
    hours, share = f"{auto:,.1f}", _share(found.auto.attainment)
    if found.doubts and found.auto.attainment is not None:
        low, high = found.hours_band
        hours, share = f"{low:,.1f} to {high:,.1f}", band(found.auto.attainment, found.history.apart)
    yield "as it was, observed", f"{was:,.1f}", _share(found.observed.attainment(found.scored_from)), "Prometheus"
    replayed, origin = f"{found.was.replica_seconds / 3600 * found.header.gpus:,.1f}", "the same fleet in the model"
    yield (
        "as it was, replayed",
        replayed,
        _share(found.was.attainment),
        f"{origin}; how far off is the model's error here",
    )
    if found.rule is not None and found.question.rule is not None:
        rule = found.question.rule
        origin = f"its rule in charge: {rule.described()}"
        yield f"{rule.name}, replayed", f"{found.rule_hours:,.1f}", _share(found.rule.attainment), origin
    yield "Auto, replayed", hours, share, "the operator's decision core in charge"


def _ground(found: Backtest) -> Iterator[tuple[str, str]]:
    engine = found.engine
    yield "Error", error(found.scrape_interval)
    yield "Scored", f"{_time(found.scored_from)} to {_time(found.scored_until)}; the time before it taught the core"
    if len(found.auto_hours) > 1:
        least, most = found.auto_hours[0], found.auto_hours[-1]
        yield (
            "Replays",
            f"{len(found.auto_hours)} draws, {least:,.1f} to {most:,.1f} GPU-hours; the middle one is shown",
        )
    yield "Requests", f"{len(found.arrivals.at):,}, reconstructed from counters and queues, scrape by scrape"
    per_prompt = f"{brief(1000 * engine.per_prefill_token)} for 1,000 prompt tokens"
    yield "Step", f"{brief(engine.base)} + {brief(engine.per_request)} for each decoding request + {per_prompt}"
    yield (
        "Fit",
        f"{engine.rows:,} intervals, error {engine.error:.1%}; {engine.cached:.0%} of prompts from the prefix cache",
    )
    yield "Bursts", f"{found.clump:.1f} requests come together, by which the model's TTFT is the observed one"
    yield "Full batch", f"{engine.batch} requests; the largest mean batch in the history was {engine.most_decoding:.0f}"
    yield "Cold start", f"{brief(found.cold_start)}, evenly between 20% less and 20% more"
    pool = found.question.pool
    schedules = ", ".join(sorted({window.schedule for window in pool.windows}))
    others = f"; others by schedule {schedules}" if schedules else ""
    yield "Bounds", f"{pool.min_replicas} to {pool.max_replicas} replicas of {found.header.gpus} GPUs{others}"


def error(interval: float) -> str:
    """How far off a backtest may be, by the seconds between its history's scrapes."""
    far = OFTEN if interval <= FREQUENT else f"{RARELY}. This history's scrapes are {brief(interval)} apart"
    return f"on sixteen simulated histories whose truth is known, scraped {far}"


def _change(at: float, change: Change) -> Row:
    return Row(_time(at), change.before, change.after, change.ready, change.reason)


def _time(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _share(share: float | None) -> str:
    return "-" if share is None else percent(share)


def _bound(seconds: float | None) -> str:
    return "no bound" if seconds is None else f"SLO {latency(seconds)}"
