"""Figures of the benchmark pages as JSON, and texts that state them: `make evidence` writes both, a test compares them.

`docs/benchmarks/figures` has a file for each page: the core's commit and the day of the run, the minutes it took, and
every table and line with figures of the page. `claims.py` says which text states which of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "benchmarks"
FIGURES = PAGES / "figures"
MISSED = re.compile(r"[\d%s]!|\*\*(?:missed|not reached)\*\*")
"""How the pages mark what misses the SLO or a bar."""
STAMP = re.compile(r"^These figures were computed with core commit .*\n(?:[^\n]+\n)*\n", re.MULTILINE)

Row = list[str]
Tables = dict[str, list[Row]]
"""Rows of tables, and lines of lists that have figures, by the heading above them."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What one run left of a page."""

    core: str
    """The last commit of the decision core that the figures are of."""
    day: str
    """Of the run."""
    minutes: float
    """Of the run, of all pages that it writes; what was known from before took none."""
    inputs: str = ""
    """A hash of sources and arguments; empty where it is not known, so the next `make evidence` runs."""
    worse: list[str] = field(default_factory=list)
    """Rows with more misses than in the run before."""
    before: str = ""
    """The core of the run before."""
    figures: Tables = field(default_factory=dict)

    @classmethod
    def load(cls, name: str) -> Kept:
        return cls(**json.loads((FIGURES / f"{name}.json").read_text()))

    def save(self, name: str) -> None:
        """A row a line, so that a diff shows which figure moved."""
        FIGURES.mkdir(exist_ok=True)
        head = asdict(self)
        tables = head.pop("figures")
        lines = [f" {_json(key)}: {_json(value)}," for key, value in head.items()]
        parts = [
            f"  {_json(heading)}: [\n" + ",\n".join(f"   {_json(row)}" for row in rows) + "\n  ]"
            for heading, rows in tables.items()
        ]
        text = "\n".join(["{", *lines, ' "figures": {', ",\n".join(parts), " }", "}"])
        (FIGURES / f"{name}.json").write_text(f"{text}\n")

    @property
    def written(self) -> str:
        """The day, as texts have it."""
        day = date.fromisoformat(self.day)
        return f"{day.day} {day:%B %Y}"

    def row(self, heading: str, first: str) -> Row:
        """The cells beside the first one."""
        for row in self.figures.get(heading, []):
            if row[0] == first:
                return row[1:]
        raise LookupError(f"no row {first!r} below {heading!r}: change benchmarks/claims.py with the page")

    def lines(self, heading: str) -> list[str]:
        """The lists' lines under a heading."""
        return [row[0] for row in self.figures.get(heading, []) if len(row) == 1]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def tables(page: str) -> Tables:
    """Of a page's text."""
    found: Tables = {}
    heading = ""
    for line in page.splitlines():
        if named := re.fullmatch(r"#+ (.+)", line):
            heading = named[1]
        elif re.fullmatch(r"[|:\- ]+", line):
            continue
        elif line.startswith("|"):
            found.setdefault(heading, []).append([cell.strip() for cell in line.strip().strip("|").split("|")])
        elif line.startswith("- ") and re.search(r"\d", line):
            found.setdefault(heading, []).append([line[2:]])
    return found


def worse(now: Tables, before: Tables) -> list[str]:
    """First cells of the rows that have more misses than before; a row that is new is no worse."""
    past, present = (_misses(each) for each in (before, now))
    return list(dict.fromkeys(key[1] for key, misses in present.items() if misses > past.get(key, misses)))


def _misses(found: Tables) -> dict[tuple[str, str], int]:
    counts: dict[tuple[str, str], int] = {}
    for heading, rows in found.items():
        for row in rows:
            key = heading, row[0] if len(row) > 1 else row[0].partition(":")[0]
            counts[key] = counts.get(key, 0) + sum(len(MISSED.findall(cell)) for cell in row)
    return counts


def stamped(page: str, kept: Kept) -> str:
    """The page with core and day below its title, and what became worse."""
    said = f"These figures were computed with core commit {kept.core} on {kept.day}."
    said += " `make evidence` computes them again."
    if kept.worse:
        said += f"\nMore misses than with core {kept.before}: {', '.join(kept.worse)}."
    title, _, rest = STAMP.sub("", page).partition("\n\n")
    return f"{title}\n\n{said}\n\n{rest}"


@dataclass(frozen=True, slots=True)
class Claim:
    """A place in a text that states figures."""

    text: str
    """The file, from the root of the repository."""
    words: str
    """The place, with `{}` for each figure; any white space is as good as a blank. It ends in no figure."""
    page: str
    """Whose figures they are."""
    read: Callable[[Kept], Sequence[str | None]]
    """The figures as the text should have them; None for one that another claim has."""

    def compared(self, text: str, kept: Kept) -> tuple[str, str]:
        """The text with the figures that it should have, and what of it is wrong; empty where it agrees."""
        parts = [r"\s+".join(map(re.escape, part.split(" "))) for part in self.words.split("{}")]
        found, expected = re.search(r"([^|]{1,30}?)".join(parts), text), self.read(kept)
        if found is None:
            return text, f"no such place: {self.words}: change benchmarks/claims.py with the text"
        stated = [" ".join(each.split()) for each in found.groups()]
        both = enumerate(zip(expected, stated, strict=True))
        wrong = [place for place, (each, said) in both if each not in {None, said}]
        for place in reversed(wrong):
            text = text[: found.start(place + 1)] + str(expected[place]) + text[found.end(place + 1) :]
        moved = ", ".join(f"{stated[place]} should be {expected[place]}" for place in wrong)
        return text, f"{self.words}: {moved}" if moved else ""


def compared(claims: Sequence[Claim], *, write: bool = False) -> list[str]:
    """What texts say otherwise than the JSON, to which `write` sets them. A page without JSON yet is left out."""
    said = []
    for claim in claims:
        if (FIGURES / f"{claim.page}.json").exists():
            file = ROOT / claim.text
            text, wrong = claim.compared(file.read_text(), Kept.load(claim.page))
            if wrong:
                said.append(f"{claim.text}: {wrong}")
            if wrong and write:
                file.write_text(text)
    return said


def edited(pages: Collection[str]) -> list[str]:
    """Those of these pages that differ from their JSON: edited by hand, or written without `make evidence`."""
    said = []
    for file in sorted(file for file in FIGURES.glob("*.json") if file.stem in pages):
        kept, page = Kept.load(file.stem), PAGES / f"{file.stem}.md"
        if page.exists() and page.read_text() != stamped(page.read_text(), kept):
            said.append(f"{page.relative_to(ROOT)}: its commit or day is not that of {file.name}: run make evidence")
        if page.exists() and tables(page.read_text()) != kept.figures:
            said.append(f"{page.relative_to(ROOT)}: a table differs from {file.name}: run make evidence")
    return said
