"""Recorded pages of other engines: each is a Prometheus page and says where it is from."""

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

FIXTURES = Path(__file__).parents[1] / "fixtures" / "engines"
PAGES = sorted(FIXTURES.glob("*.txt"), key=lambda file: file.name)
ORIGINS = ("tools/engine_pages", "a real ", "by hand from ")
"""What a header says of its page's origin: this project's script, a process that ran, or sources that were read."""


@pytest.mark.parametrize("page", PAGES, ids=lambda file: file.name)
def test_a_page_parses_and_its_header_says_version_and_origin(page: Path) -> None:
    text = page.read_text()
    header = "".join(line for line in text.splitlines(keepends=True)[:4] if re.match("# (?!HELP |TYPE )", line))
    version = page.stem.removeprefix("gateway-").split("-")
    assert any(part in header for part in version if re.search(r"\d", part)), "no version in its header"
    assert any(origin in header for origin in ORIGINS), "no origin in its header"

    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    assert samples
    assert len({(sample.name, tuple(sorted(sample.labels.items()))) for sample in samples}) == len(samples)


def test_there_are_pages() -> None:
    assert PAGES
