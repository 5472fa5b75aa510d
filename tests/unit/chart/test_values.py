"""values.yaml documents itself: comments become the README's tables and the schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chart import readme
from chart.schema import schema
from chart.values import Value, ValuesError, read

VALUES = """\
# About the file.

## Pods

# How many run.
# One leads.
# @schema {minimum: 0}
replicas: 2

image:
  # Where it lies.
  repository: somewhere
  # Empty | none.
  # @schema {type: [string, integer]}
  tag:

# Free form.
labels: {a: b}

## Network

# Names the port.
# @schema {$ref: "#/definitions/port"}
port: 9090
"""


def values(tmp_path: Path, text: str = VALUES) -> list[Value]:
    (tmp_path / "values.yaml").write_text(text)
    return read(tmp_path / "values.yaml")


def test_each_key_with_a_comment_is_a_value_under_its_heading(tmp_path: Path) -> None:
    assert [(value.name, value.default, value.section) for value in values(tmp_path)] == [
        ("replicas", 2, "Pods"),
        ("image.repository", "somewhere", "Pods"),
        ("image.tag", None, "Pods"),
        ("labels", {"a": "b"}, "Pods"),
        ("port", 9090, "Network"),
    ]


def test_the_comment_is_the_description_and_adds_to_the_schema(tmp_path: Path) -> None:
    replicas = values(tmp_path)[0]
    assert (replicas.description, replicas.schema) == ("How many run. One leads.", {"minimum": 0})


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


def test_the_schema_knows_every_key_and_no_other(tmp_path: Path) -> None:
    made = schema(values(tmp_path), {"port": {"type": "integer"}})
    properties: dict[str, Any] = made["properties"]
    assert made["additionalProperties"] is False
    assert properties["replicas"] == {"description": "How many run. One leads.", "type": "integer", "minimum": 0}
    assert properties["image"]["additionalProperties"] is False
    assert properties["image"]["properties"]["tag"]["type"] == ["string", "integer"]
    assert properties["port"] == {"description": "Names the port.", "allOf": [{"$ref": "#/definitions/port"}]}
    assert properties.keys() == {"global", "replicas", "image", "labels", "port"}


def test_a_value_of_unclear_type_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValuesError, match="a: a type cannot be told from None"):
        schema(values(tmp_path, "# Known.\na:\n"), {})


def test_the_readme_keeps_the_text_around_the_tables(tmp_path: Path) -> None:
    backend = {"required": ["url"], "properties": {"url": {"description": "Where."}}}
    made = readme.updated(f"Before\n{readme.BEGIN}\nold\n{readme.END}\nafter\n", values(tmp_path), backend)
    assert made.startswith(f"Before\n{readme.BEGIN}\n")
    assert made.endswith(f"{readme.END}\nafter\n")
    assert "old" not in made
    assert "| `image.tag` | `null` | Empty \\| none. |" in made
    assert "| `url` | Where. Needed. |" in made
    assert readme.updated(made, values(tmp_path), backend) == made


def test_a_readme_without_its_marks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValuesError, match="needs the marks"):
        readme.updated("Before\n", values(tmp_path), {})
