"""The version stands in servingpool/__init__.py; every other place follows."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from chart.version import updated
from servingpool import __version__

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        ("charts/servingpool-operator/Chart.yaml", r"^(?:version|appVersion): (.+)$"),
        ("deploy/deployment.yaml", r"image: servingpool-operator:(\S+)"),
        ("deploy/kustomization.yaml", r"newTag: (\S+)"),
        ("deploy/krew/servingpool.yaml", r"\bv(\d\S+\.\d+)"),
        ("docs/start/first-pool.md", r"servingpool-operator:(\d[\w.-]*\w)"),
        ("docs/how-to/install.md", r"servingpool-operator:(\d[\w.-]*\w)"),
        ("docs/how-to/upgrade.md", r"servingpool-operator:(\d[\w.-]*\w)"),
        ("CHANGELOG.md", rf"^## ({re.escape(__version__)}) - \d{{4}}-\d\d-\d\d$"),
    ],
)
def test_a_place_that_names_the_version_has_the_projects(path: str, pattern: str) -> None:
    assert set(re.findall(pattern, (ROOT / path).read_text(), re.MULTILINE)) == {__version__}


def test_make_and_the_release_read_it_from_there() -> None:
    done = subprocess.run(["make", "--silent", "version"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == __version__


def test_generate_writes_both_versions_of_the_chart_and_nothing_else() -> None:
    chart = "name: a\nversion: 0.1.0\nappVersion: 0.1.0\nkubeVersion: '>=1.29'\n"
    assert updated(chart, "2.0.0") == "name: a\nversion: 2.0.0\nappVersion: 2.0.0\nkubeVersion: '>=1.29'\n"
    with pytest.raises(ValueError, match="needs one line version"):
        updated("name: a\nversion: 0.1.0\n", "2.0.0")
