"""What a reader may copy from the documentation, before a real API server: every YAML block, and the samples."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from servingpool_lab.control_plane import ControlPlane

from ..doc_pages import DOCS, blocks, definitions  # noqa: TID252, tests are no package of an installed name

ROOT = DOCS.parent
CHART = ROOT / "charts" / "servingpool-operator"
PAGES = [*sorted(DOCS.rglob("*.md")), ROOT / "README.md", CHART / "README.md"]
FOLDERS = ("chat", "team-a", "argocd", "monitoring", "servingpool-system")
"""Namespaces that the pages take for granted."""


def written() -> Iterator[tuple[str, str]]:
    """Where each text stands, and the text."""
    for page in PAGES:
        texts = [block.text for block in blocks(page.read_text()) if block.kind == "yaml"]
        yield from ((f"{page.relative_to(ROOT)}-{count}", text) for count, text in enumerate(texts))
    for sample in sorted((ROOT / "deploy" / "samples").rglob("*.yaml")):
        yield str(sample.relative_to(ROOT)), sample.read_text()


TEXTS = dict(written())
OBJECTS = {place: text for place, text in TEXTS.items() if "\nkind: " in text}
VALUES = {place: text for place, text in TEXTS.items() if place not in OBJECTS}


@pytest.fixture(scope="module", autouse=True)
def known(control_plane: ControlPlane) -> None:
    """Our own definitions, those of others, and the namespaces."""
    for definition in (ROOT / "crds").glob("*.yaml"):
        control_plane.apply(definition)
    control_plane.apply(definitions())
    for name in FOLDERS:
        control_plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


def dry_run(control_plane: ControlPlane, manifest: dict[str, Any]) -> None:
    """As `kubectl apply --server-side --dry-run=server` does it: an unknown or doubled field is an error."""
    path = f"{control_plane.client.path_of(manifest)}?dryRun=All&fieldValidation=Strict&fieldManager=docs&force=true"
    control_plane.client.request("PATCH", path, manifest, content_type="application/apply-patch+yaml")


def test_pages_have_examples_of_both_kinds() -> None:
    assert len(OBJECTS) > 8
    assert len(VALUES) > 1


@pytest.mark.parametrize("place", OBJECTS)
def test_the_api_server_takes_a_block(control_plane: ControlPlane, place: str) -> None:
    for manifest in yaml.safe_load_all(OBJECTS[place]):
        dry_run(control_plane, manifest)


@pytest.mark.parametrize("place", VALUES)
def test_a_block_without_a_kind_is_values_that_the_chart_takes(
    control_plane: ControlPlane, binaries: dict[str, Path], place: str, tmp_path: Path
) -> None:
    """And the API server takes what the chart makes of them."""
    values = tmp_path / "values.yaml"
    values.write_text(VALUES[place])
    more = ("--namespace=servingpool-system", "--set=image.repository=any", f"--values={values}")
    command: list[str | Path] = [binaries["helm"], "template", "x", CHART, *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for manifest in yaml.safe_load_all(done.stdout):
        if manifest is not None and "helm.sh/hook" not in manifest["metadata"].get("annotations", {}):
            dry_run(control_plane, manifest)
