"""values.yaml documents itself: comments become the README's tables and the schema."""

from __future__ import annotations

from pathlib import Path

import pytest

from chart import readme
from chart.schema import schema
from chart.values import Value, ValuesError, read


def values(tmp_path: Path, text: str) -> list[Value]:
    (tmp_path / "values.yaml").write_text(text)
    return read(tmp_path / "values.yaml")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("# Known.\na: 1\nb: 2\n", "line 3: b has no comment above it"),
        ("# Known.\n# @schema {minimum: \na: 1\n", "above line 3"),
        ("# Known.\n# @schema none\na: 1\n", "takes a mapping, got 'none'"),
        ("- 1\n", "is no mapping"),
    ],
)
def test_an_unreadable_value_is_refused_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ValuesError, match=says):
        values(tmp_path, text)


def test_a_value_of_unclear_type_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValuesError, match="a: a type cannot be told from None"):
        schema(values(tmp_path, "# Known.\na:\n"), {})


def test_a_readme_without_its_marks_is_refused() -> None:
    with pytest.raises(ValuesError, match="needs the marks"):
        readme.updated("Before\n", [], {})
