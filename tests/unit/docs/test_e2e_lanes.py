"""The page on which each end-to-end lane but `make e2e` writes its own section."""

from __future__ import annotations

from ...doc_pages import DOCS  # noqa: TID252, tests are no package of an installed name
from ...e2e.results import LANES, with_section  # noqa: TID252

PAGE = "# Lanes\n\nSaid.\n\n## make a\n\nOne.\n\n## make b\n\nTwo.\n"


def test_a_lane_replaces_its_own_section_alone() -> None:
    assert with_section(PAGE, "make a", "New.\n") == PAGE.replace("One.", "New.")


def test_a_new_lane_comes_last() -> None:
    assert with_section(PAGE, "make c", "Three.\n") == f"{PAGE}\n## make c\n\nThree.\n"


def test_the_committed_page_is_as_lanes_write_it() -> None:
    page = (DOCS / "records" / LANES).read_text()
    text = page.partition("## make e2e-drain\n\n")[2].partition("\n## ")[0]
    assert "in flight" in text
    assert with_section(page, "make e2e-drain", text) == page
