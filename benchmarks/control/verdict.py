"""A verdict on today's core: its figures beside those that landed last, and beside an anchor.

`landed/guard.json` holds what landed last, and whoever lands a core that moved its figures writes it anew.
`landed/guard-anchor.json` holds an older core, for many small losses that are each within the limits; it moves only
with a reason. Of the odd engines likewise. The same core has the same figures, to the last digit.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Self

import store

LANDED = store.ROOT / "benchmarks" / "control" / "landed"
FALL, RISE = 0.0015, 0.005
"""Of the mean attainment over all cases, and of the GPU-hours' geometric mean: a core may lose that much."""
ROW_FALL, ROW_RISE = 0.01, 0.05
"""Of one row's attainment, and of its replicas over the best fixed fleet: an odd engine's row may lose that much."""

Seed = list[float]
"""Share attained, cost, and the share that the objective asks for."""
Rows = dict[str, list[Seed]]
"""The seeds of each row: `with history: ramp`."""
Judge = Callable[[Rows, Rows], tuple[str, list[str]]]
"""From figures before and now: what to say of them, and what is beyond the limits."""


@dataclass(frozen=True, slots=True)
class Landed:
    """The figures of one core."""

    core: str
    """Its last commit."""
    sources: str
    """A hash of all that the figures depend on."""
    reason: str
    """Why a person accepted them, where they were beyond the limits."""
    rows: Rows

    @classmethod
    def read(cls, text: str | bytes) -> Self:
        """From a file's text."""
        found = json.loads(text)
        return cls(found.pop("core"), found.pop("sources"), found.pop("reason"), found)

    def save(self, file: Path) -> None:
        """A row a line, so that a diff shows which one moved."""
        items = {"core": self.core, "sources": self.sources, "reason": self.reason, **self.rows}.items()
        file.parent.mkdir(exist_ok=True)
        file.write_text("{\n" + ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in items) + "\n}\n")


def seed(attained: float, cost: float, target: float) -> Seed:
    """Rounded to what two processors agree on."""
    return [round(attained, 7), round(cost, 6), target]


def together(before: Rows, now: Rows) -> tuple[str, list[str]]:
    """The guard's limits: means over all cases, and no seed or case may change from held to missed."""
    past, present = (fmean(map(_attained, rows.values())) for rows in (before, now))
    more = geometric_mean(_cost(now[row]) / _cost(before[row]) for row in now) - 1.0
    broken = [f"attainment fell by more than {FALL:.2%}"] if past - present > FALL else []
    broken += [f"GPU-hours rose by more than {RISE:.1%}"] if more > RISE else []
    broken += [f"{row}, {what}, no longer holds" for row in now for what in _flips(before[row], now[row])]
    return f"attained {past:.3%} -> {present:.3%}, GPU-hours {more:+.2%}", broken


def by_row(before: Rows, now: Rows) -> tuple[str, list[str]]:
    """The odd engines' limits, of each row's mean over its seeds."""
    falls = {row: _attained(before[row]) - _attained(now[row]) for row in now}
    rises = {row: (_cost(now[row]) - _cost(before[row])) / len(now[row]) for row in now}
    broken = [f"{row} attains {100 * fall:.2f} points less" for row, fall in falls.items() if fall > ROW_FALL]
    broken += [f"{row} takes {rise:.3f} replicas more" for row, rise in rises.items() if rise > ROW_RISE]
    worst, most = (max(losses, key=lambda row: losses[row]) for losses in (falls, rises))
    said = f"largest fall {100 * falls[worst]:.2f} points ({worst}), largest rise {rises[most]:.3f} ({most})"
    return f"{said}, attained on the mean {-100 * fmean(falls.values()):+.3f} points", broken


def _flips(before: list[Seed], now: list[Seed]) -> Iterator[str]:
    for number, (old, new) in enumerate(zip(before, now, strict=True)):
        if old[0] >= old[2] and new[0] < new[2]:
            yield f"seed {number} ({old[0]:.3%} -> {new[0]:.3%})"
    past, present = _attained(before), _attained(now)
    if past >= before[0][2] and present < now[0][2]:
        yield f"the mean ({past:.3%} -> {present:.3%})"


def _attained(seeds: Iterable[Seed]) -> float:
    return fmean(attained for attained, _, _ in seeds)


def _cost(seeds: Iterable[Seed]) -> float:
    return sum(cost for _, cost, _ in seeds)


def moved(before: Rows, now: Rows) -> Iterator[str]:
    """A line for each row that differs."""
    for row, seeds in now.items():
        if (old := before.get(row, [])) != seeds:
            attained = (", ".join(f"{one[0]:.3%}" for one in each) or "new" for each in (old, seeds))
            yield f"{row}: {' -> '.join(attained)}; cost {_cost(old):.3f} -> {_cost(seeds):.3f}"


def verdict(base: Landed, now: Rows, judge: Judge, name: str) -> bool:
    """Print it in one line. Whether all is within the limits; rows that only one of them has are left out."""
    said, broken = [], []
    for group in dict.fromkeys(row.partition(": ")[0] for row in now):
        shared = [row for row in now if row.startswith(f"{group}: ") and row in base.rows]
        words, beyond = judge(*({row: rows[row] for row in shared} for rows in (base.rows, now)))
        said.append(f"{group}: {words}")
        broken += beyond
    words = "every figure is the same" if base.rows == now else "; ".join(said)
    print(f"Verdict against {name} (core {base.core}): {'WORSE: ' + '; '.join(broken) if broken else 'held'}. {words}.")
    return not broken


def add_options(parser: argparse.ArgumentParser) -> None:
    """Those of the verdict."""
    parser.add_argument(
        "--against",
        nargs="?",
        const="",
        metavar="BASE",
        help="give a verdict: exit 1 where the core is worse than what landed last, or as of BASE, a commit or a file",
    )
    parser.add_argument("--publish", action="store_true", help="let today's figures be those that landed, if they hold")
    parser.add_argument("--reason", default="", help="publish them though they do not hold, and move the anchor")


@dataclass(frozen=True, slots=True)
class Scale:
    """One of the two pages that give a verdict."""

    name: str
    sources: tuple[str, ...]
    judge: Judge

    @property
    def file(self) -> Path:
        """What landed last."""
        return LANDED / f"{self.name}.json"

    @property
    def anchor(self) -> Path:
        """What must not drift away."""
        return LANDED / f"{self.name}-anchor.json"

    def hash(self) -> str:
        """Of all that the figures depend on."""
        return store.place("", (), self.sources).stem.strip("-")

    def known(self) -> Rows | None:
        """Figures of a core that means the same as today's, if those are what landed last."""
        landed = Landed.read(self.file.read_bytes()) if self.file.exists() else None
        if landed is None or landed.sources != self.hash():
            return None
        print(f"{self.name}: today's core means the same as core {landed.core}, whose figures landed last.")
        return landed.rows

    def conclude(self, rows: Rows, asked: argparse.Namespace) -> bool:
        """Print the verdict; publish where that is asked for. Whether today's core is no worse."""
        base, name = self._base(asked.against)
        for line in moved(base.rows, rows):
            print(line)
        held = verdict(base, rows, self.judge, name)
        held &= verdict(Landed.read(self.anchor.read_bytes()), rows, self.judge, "the anchor")
        if not asked.cases and (asked.reason or (asked.publish and held)):
            now = Landed(store.core_commit(), self.hash(), asked.reason, rows)
            now.save(self.file)
            if asked.reason:
                now.save(self.anchor)
        return held or bool(asked.reason)

    def _base(self, against: str) -> tuple[Landed, str]:
        if not against or Path(against).exists():
            return Landed.read(Path(against or self.file).read_bytes()), against or "what landed last"
        place = f"{against}:{self.file.relative_to(store.ROOT)}"
        shown = subprocess.run(("git", "show", place), cwd=store.ROOT, stdout=subprocess.PIPE, check=True)
        return Landed.read(shown.stdout), against
