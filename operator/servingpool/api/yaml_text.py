"""YAML that somebody else wrote, into data: whatever is wrong with it is one kind of error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

MOST_BYTES = 4 * 2**20
"""Of a file: a manifest or a configuration is far smaller."""


class NotYaml(ValueError):
    """The text cannot be used; the message says why, in one line."""


def read_documents(path: Path) -> list[Any]:
    """All documents of a file that are not empty. Raises OSError and NotYaml."""
    with path.open("rb") as file:
        raw = file.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        raise NotYaml(f"it is larger than {MOST_BYTES // 2**20} MiB")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise NotYaml("it is not UTF-8") from error
    return parse_documents(text)


def read_yaml(path: Path) -> Any:
    """The one document of a file; None where it is empty. Raises OSError and NotYaml."""
    found = read_documents(path)
    if len(found) > 1:
        raise NotYaml(f"it holds {len(found)} documents, where one is wanted")
    return found[0] if found else None


def parse_documents(text: str) -> list[Any]:
    """All documents of a text that are not empty. Raises NotYaml."""
    try:
        return [one for one in yaml.safe_load_all(text) if one is not None]
    except RecursionError as error:
        raise NotYaml("it is nested too deeply") from error
    except (yaml.YAMLError, ValueError, TypeError, OverflowError) as error:  # the latter of dates that are none
        raise NotYaml(" ".join(str(error).split())) from error
