"""The commands on the pages that a newcomer follows, as they are written: first pool, install, upgrade and uninstall.

Last of all by its file's name and mark: it takes the shared release away and installs the pages' own.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from servingpool.api.crd import manifests
from servingpool_lab.binaries import ensure_binaries

from ..doc_pages import DOCS, File, definitions, steps, substituted  # noqa: TID252, tests are no package of an installed name
from . import prometheus
from .cluster import Cluster
from .images import ROOT, Images
from .release import OperatorRelease
from .results import Results
from .shell import run

pytestmark = pytest.mark.disruptive

PAGES = ("start/first-pool.md", "how-to/install.md", "how-to/upgrade.md")
"""In the order in which a newcomer reads them: each goes on where the one before it has ended."""


@pytest.fixture(scope="module")
def names(images: Images) -> dict[str, str]:
    """What is called otherwise on this cluster."""
    repository, _, tag = images.operator.rpartition(":")
    return {
        "servingpool-lab:0.1.0": images.lab,
        "your-registry/servingpool-operator": repository,
        "tag: 0.1.0": f"tag: {tag}",
        "image.tag=0.1.0": f"image.tag={tag}",
        "http://prometheus-operated.monitoring:9090": prometheus.URL,
        ".venv/bin/servingpool": f"{sys.executable} -m servingpool.cli.main",
    }


@pytest.fixture(scope="module")
def checkout(
    cluster: Cluster, operator: OperatorRelease, names: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The repository as far as the pages need it, and a cluster without the operator."""
    if operator.pods():
        operator.uninstall()
    for name in manifests():
        cluster.gone(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}")
    cluster.apply(definitions())
    folder = tmp_path_factory.mktemp("checkout")
    (folder / "charts").symlink_to(ROOT / "charts")
    samples = folder / "deploy" / "samples" / "kind"
    samples.mkdir(parents=True)
    for path in (ROOT / "deploy" / "samples" / "kind").iterdir():
        (samples / path.name).write_text(substituted(path.read_text(), names))
    programs = folder / "programs"
    programs.mkdir()
    for program, module in (("helm", "helm"), ("kubectl", "kubernetes")):
        (programs / program).symlink_to(shutil.which(program) or ensure_binaries(module)[program])
    return folder


@pytest.mark.parametrize("page", PAGES)
def test_a_page_works_as_it_is_written(
    page: str, checkout: Path, cluster: Cluster, names: dict[str, str], results: Results
) -> None:
    ran = 0
    for step in steps(substituted((DOCS / page).read_text(), names)):
        if isinstance(step, File):
            (checkout / step.name).write_text(step.text)
            continue
        path = f"{checkout / 'programs'}:{os.environ['PATH']}"
        run("bash", "-euc", f"cd {checkout}\n{step.text}", KUBECONFIG=str(cluster.kubeconfig), PATH=path)
        ran += 1
    assert ran
    results.add(scenario=f"docs/{page}, as it is written", outcome=f"{ran} commands")
