"""The workflows: actions that nobody can move, few rights, an end to every job, each Python that is promised."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_by_commit_with_its_version_beside_it(path: Path) -> None:
    used = re.findall(r"uses: (.+)", path.read_text())
    assert used
    assert [line for line in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", line)] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_read_only_and_every_job_ends(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    assert "group" in workflow["concurrency"]
    assert [name for name, job in workflow["jobs"].items() if "timeout-minutes" not in job] == []


def test_every_python_since_the_oldest_supported_one_is_tested() -> None:
    jobs: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/ci.yaml").read_text())["jobs"]
    tested = [tuple(map(int, version.split("."))) for version in jobs["python"]["strategy"]["matrix"]["python-version"]]
    oldest = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert oldest == f">={tested[0][0]}.{tested[0][1]}"
    assert tested == [(3, minor) for minor in range(tested[0][1], tested[-1][1] + 1)]


def test_a_release_signs_by_digest_each_image_and_chart_that_it_pushes() -> None:
    text = (ROOT / ".github/workflows/release.yaml").read_text()
    assert len(re.findall("push: true|helm push", text)) == len(re.findall('cosign sign --yes "[^"@]+@', text)) == 3
