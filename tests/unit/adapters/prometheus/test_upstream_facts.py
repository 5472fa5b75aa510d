"""Each release that a profile names has a row in the table of what was compared with its source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from servingpool.adapters.prometheus.engines import shipped
from servingpool.adapters.prometheus.gateways import shipped_gateways

TABLE = Path(__file__).parents[4] / "docs" / "records" / "upstream-facts.md"
RELEASE = re.compile(r"\d+(?:\.\d+)+(?:\.post\d+)?|\d+\.x|[0-9a-f]{8}")
PROFILES = dict(shipped()) | dict(shipped_gateways())


def rows() -> set[tuple[str, str]]:
    """Name and release of each."""
    cells = (line.strip("|").split("|") for line in TABLE.read_text().splitlines() if line.startswith("| "))
    return {(each[0].strip(), each[1].strip()) for each in cells}


def named(name: str) -> Iterator[str]:
    """The releases in a profile's texts, as `0.16` or `3.x`."""
    profile = PROFILES[name]
    texts = [profile.versions, *(one.versions for series in profile.figures.values() for one in series)]
    for text in texts:
        yield from RELEASE.findall(text)


@pytest.mark.parametrize("name", PROFILES)
def test_every_release_that_a_profile_names_was_compared_or_said_not_to_be(name: str) -> None:
    assert PROFILES[name].versions, "a profile says which releases it was compared with"
    compared = {release for owner, release in rows() if owner == name}
    for release in named(name):
        wanted = release.removesuffix("x")
        assert any(one == release or one.startswith(f"{wanted.rstrip('.')}.") for one in compared), (name, release)


def test_no_row_is_of_a_profile_that_is_not_there() -> None:
    assert {owner for owner, _ in rows()} <= {*PROFILES, "keda", "engine or gateway"}
