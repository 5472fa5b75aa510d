"""Keep the site's search to the pages of its navigation: records and benchmarks answer no user's question."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml


def navigated(entries: list[Any]) -> Iterator[str]:
    """The pages of a navigation, by their paths in docs/."""
    for entry in entries:
        [value] = entry.values()
        if isinstance(value, str):
            yield value
        else:
            yield from navigated(value)


def keep_navigated(configuration: Path) -> None:
    """Leave the pages of the navigation alone in the index of the site that was built from this mkdocs.yml."""
    site = yaml.safe_load(configuration.read_text(encoding="utf-8"))
    pages = {page.removesuffix(".md").removesuffix("index") for page in navigated(site["nav"])}
    path = configuration.parent / site["site_dir"] / "search.json"
    index = json.loads(path.read_text(encoding="utf-8"))
    index["items"] = [item for item in index["items"] if item["location"].partition("#")[0].rstrip("/") in pages]
    path.write_text(json.dumps(index), encoding="utf-8")


if __name__ == "__main__":
    keep_navigated(Path(sys.argv[1]))
