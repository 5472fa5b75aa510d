"""docs/records/run.md: the picture and the tables beside it are of one run."""

from __future__ import annotations

import html
import re
from collections import defaultdict
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs"
TEXT = re.compile(r'<text class="[^"]*" x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>')


def picture() -> str:
    """The text of the live view, line by line."""
    lines: defaultdict[float, list[tuple[float, str]]] = defaultdict(list)
    for x, y, text in TEXT.findall((DOCS / "images/live.svg").read_text()):
        lines[float(y)].append((float(x), html.unescape(text).replace("\xa0", " ")))
    return "\n".join("".join(text for _, text in sorted(lines[y])) for y in sorted(lines))


def beside() -> str:
    """What stands under the picture, up to the next heading."""
    _, found, after = (DOCS / "records/run.md").read_text().partition("](../images/live.svg)")
    assert found
    return after.partition("\n## ")[0]


def seconds(time: str) -> int:
    total = 0
    for part in time.split(":"):
        total = 60 * total + int(part)
    return total


def test_the_totals_agree() -> None:
    [(attained, _, spent)] = re.findall(r"\| \*\*([\d.]+)%\*\* \| \*\*([\d.]+)\*\* \| \*\*([\d.]+)\*\* \|", beside())
    shown = picture()
    [truth] = re.findall(r"attained\s*[\d.]+%\s*[\d.]+%\s*([\d.]+)%", shown)
    [hours] = re.findall(r"spent\s*([\d.]+) GPU-hours", shown)
    assert (attained, spent) == (truth, hours)


def test_the_scalings_agree() -> None:
    rows = re.findall(r"^\| (\d+:\d\d) \| (\d+) \|", beside(), re.MULTILINE)
    events = re.findall(r"(\d\d:\d\d:\d\d)\s+SuccessfulRescale\s+New size: (\d+)", picture())[::-1]
    assert events
    last = rows[-len(events) :]
    assert [size for _, size in last] == [size for _, size in events]
    begins = {seconds(at) - seconds(minute) for (minute, _), (at, _) in zip(last, events, strict=True)}
    assert len(begins) == 1, "the picture has the time of day, the table that since the start"
