"""CONTRIBUTING.md and SECURITY.md name what is there."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
SOURCES = "operator/servingpool"


@pytest.mark.parametrize("guide", ["CONTRIBUTING.md", "SECURITY.md"])
def test_files_that_a_guide_names_exist(guide: str) -> None:
    """A path in backticks is one of the repository, or of the operator's package."""
    named = re.findall(r"`([\w.-]+/[\w./-]*)`", (ROOT / guide).read_text())
    assert named
    assert [path for path in named if not (ROOT / path).exists() and not (ROOT / SOURCES / path).exists()] == []


def test_the_rights_that_are_explained_are_those_that_the_manifests_grant() -> None:
    table = re.findall(r"^\| ([\w.]+) \| ([\w/]+) \| ([a-z, ]+) \|", (ROOT / "SECURITY.md").read_text(), re.MULTILINE)
    explained = {
        ("" if group == "core" else group, resource): set(verbs.split(", ")) for group, resource, verbs in table
    }
    granted: dict[tuple[str, str], set[str]] = defaultdict(set)
    for role in yaml.safe_load_all((ROOT / "deploy/rbac.yaml").read_text()):
        if role["kind"].endswith("Role") and "aggregate" not in str(role["metadata"]):
            for rule in role["rules"]:
                for group in rule["apiGroups"]:
                    for resource in rule["resources"]:
                        granted[group, resource] |= set(rule["verbs"])
    assert explained == granted
