"""One page over the backtests of several pools: a line each, with a link to the pool's own page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from servingpool import __version__
from servingpool_backtest.report import environment, sentence
from servingpool_backtest.result import Backtest
from servingpool_simulation.report.figures import more_or_less, objective, percent

TARGET = re.compile(r"([a-z0-9][a-z0-9.-]{0,62})/([a-z0-9][a-z0-9.-]{0,126})(?: \(([A-Za-z0-9]{1,40})\))?")
"""Namespace, name and kind, as `Line.target` has them."""


@dataclass(frozen=True, slots=True)
class Line:
    """One pool's."""

    target: str
    """Namespace and name, with the kind where it is no Deployment; or the file where nothing more is known."""
    page: str = ""
    """Name of its page's file, beside the summary; empty where the backtest failed."""
    sentence: str = ""
    objective: str = ""
    held: bool = False
    doubts: tuple[str, ...] = ()
    """Why there is no verdict; empty where there is one."""
    was: float = 0.0
    """GPU-hours, as the next two."""
    auto: float = 0.0
    rule: float | None = None
    """Of the autoscaler's rule; None where there is none to replay, as in the next."""
    rule_attained: float | None = None
    observed: float | None = None
    """Attainment of the history, a share; None without a request, as in the next."""
    attained: float | None = None
    saved: float | None = None
    """Dollars; None without a price."""
    failed: str = ""
    """Why there is no backtest; empty where there is one."""

    def __post_init__(self) -> None:
        if self.page and self.page != page_of(self.target):
            raise ValueError(f"the page of {self.target!r} cannot be {self.page!r}")

    @classmethod
    def of(cls, found: Backtest) -> Line:
        """Of a backtest."""
        header, (was, auto), dollars = found.header, found.hours, found.dollars
        kind = "" if header.sort[1] == "Deployment" else header.sort[1]
        target = f"{header.namespace}/{header.target}{kind and f' ({kind})'}"
        return cls(
            target=target,
            page=page_of(target),
            sentence=sentence(found),
            objective=objective(found.question.pool.slo),
            held=found.held,
            doubts=found.doubts,
            was=was,
            auto=auto,
            rule=found.rule_hours,
            rule_attained=None if found.rule is None else found.rule.attainment,
            observed=found.observed.attainment(found.scored_from),
            attained=found.auto.attainment,
            saved=None if dollars is None else dollars[0] - dollars[1],
        )


def page_of(target: str) -> str:
    """The name of a page's file. Raises ValueError for what names no workload: it might name any file."""
    found = TARGET.fullmatch(target)
    if found is None:
        raise ValueError(f"{target[:200]!r} names no workload")
    namespace, name, kind = found.groups()
    return f"{namespace}.{kind.lower() + '.' if kind else ''}{name}.html"


def summary(lines: Sequence[Line], command: str) -> str:
    """The HTML; those that failed first, then those with the most to save."""
    done = sorted((one for one in lines if not one.failed and not one.doubts), key=lambda one: one.auto - one.was)
    was, auto = sum(one.was for one in done), sum(one.auto for one in done)
    saved = [one.saved for one in done if one.saved is not None]
    return (
        environment()
        .get_template("summary.html.j2")
        .render(
            done=done,
            failed=[one for one in lines if one.failed],
            doubted=[one for one in lines if one.doubts],
            said=said(lines),
            was=was,
            auto=auto,
            change=more_or_less(auto, was) if was else "",
            saved=sum(saved) if saved else None,
            missed=sum(not one.held for one in done),
            share=lambda one: "-" if one is None else percent(one),
            command=command,
            version=__version__,
        )
    )


def said(lines: Sequence[Line]) -> str:
    """All of them in one sentence."""
    done = [one for one in lines if not one.failed and not one.doubts]
    was, auto = sum(one.was for one in done), sum(one.auto for one in done)
    held = sum(one.held for one in done)
    parts = []
    if done:
        text = f"{_pools(len(done))}: Auto would have used {auto:,.1f} GPU-hours where {was:,.1f} were used"
        text += f" ({more_or_less(auto, was)})" if was else ""
        parts.append(f"{text}, and {held} would have kept the SLO")
    doubted, failed = sum(bool(one.doubts) for one in lines), sum(bool(one.failed) for one in lines)
    if doubted:
        parts.append(f"{_pools(doubted)} without a verdict yet")
    if failed or not parts:
        parts.append(f"{failed} could not be backtested")
    return ". ".join(parts)


def _pools(count: int) -> str:
    return "1 pool" if count == 1 else f"{count} pools"
