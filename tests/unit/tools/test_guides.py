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


def test_each_promise_of_the_threat_model_has_a_test_that_exists() -> None:
    """`| promise | `file::test` |`, or a whole file."""
    text = (ROOT / "SECURITY.md").read_text()
    table = text.partition("### What is promised")[2].partition("### What is not promised")[0]
    rows = re.findall(r"^\| (?!promise|-)(.+?) \| (.+?) \|$", table, re.MULTILINE)
    assert len(rows) >= 10
    for promise, test in rows:
        named = re.fullmatch(r"`([\w/]+\.py)(?:::(test_\w+))?`", test)
        assert named is not None, promise
        source = (ROOT / named[1]).read_text()
        assert re.search(rf"^\s*(async )?def {named[2] or 'test_'}", source, re.MULTILINE), promise
