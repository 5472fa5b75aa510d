"""Every ServingPool that a person may copy from this repository: its mode is written, its bounds are exact."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml

from servingpool.api.duration import parse
from servingpool.api.serving_pool import ServingPool
from servingpool.decision.roles import client_bound

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "tests/fixtures/vllm-0.32.0-metrics.txt").read_text()
HISTOGRAMS = {
    "timeToFirstToken": "vllm:time_to_first_token_seconds",
    "timePerOutputToken": "vllm:request_time_per_output_token_seconds",
}
PLACES = ("README.md", "charts", "crds", "deploy", "docs", "operator")
SUFFIXES = {".md", ".tpl", ".txt", ".yaml"}
ENDS = {"```", "---", "EOF"}


def written(text: str) -> Iterator[str]:
    """The pools in a text: whole files, and what stands in a block of a document or a template."""
    lines = text.splitlines()
    for at, line in enumerate(lines[:-1]):
        if line.strip().startswith("apiVersion: servingpool.dev/") and lines[at + 1].strip() == "kind: ServingPool":
            indent = len(line) - len(line.lstrip())
            block = [line]
            for each in lines[at + 1 :]:
                if each.strip() in ENDS or (each.strip() and len(each) - len(each.lstrip()) < indent):
                    break
                block.append(each)
            yield dedent("\n".join(block))


def examples() -> Iterator[tuple[str, str]]:
    """Where each stands, and its text."""
    for place in PLACES:
        files = sorted((ROOT / place).rglob("*")) if (ROOT / place).is_dir() else [ROOT / place]
        for path in files:
            if path.suffix in SUFFIXES and path.is_file():
                for text in written(path.read_text()):
                    yield str(path.relative_to(ROOT)), re.sub(r"\{\{.*?\}\}", "x", text)


EXAMPLES = list(examples())


def edges(histogram: str) -> set[float]:
    """The bounds that vLLM counts exactly."""
    return {float(le) for le in re.findall(rf'^{histogram}_bucket{{.*le="([0-9.]+)"', PAGE, re.MULTILINE)}


def test_all_places_are_looked_at() -> None:
    places = [place for place, _ in EXAMPLES]
    assert {"README.md", "charts/servingpool-operator/templates/NOTES.txt"} < set(places)
    assert {str(path.relative_to(ROOT)) for path in (ROOT / "deploy/samples").glob("servingpool-*")} < set(places)


@pytest.mark.parametrize(("place", "text"), EXAMPLES, ids=[place for place, _ in EXAMPLES])
def test_an_example_says_its_mode_and_its_bounds_end_at_buckets(place: str, text: str) -> None:
    pool: dict[str, Any] = yaml.safe_load(text)
    read = ServingPool.read(pool)
    assert "mode" in pool["spec"], f"{place} scales by default, and does not say so"
    bounds = {name: parse(bound) for name, bound in pool["spec"].get("slo", {}).items() if name in HISTOGRAMS}
    exact = {name: edges(HISTOGRAMS[name]) for name in bounds}
    if read.spec.has_roles:
        exact["timeToFirstToken"] = {client_bound(edge) for edge in exact["timeToFirstToken"]}
    estimated = [f"{name} {bound} s" for name, bound in bounds.items() if bound not in exact[name]]
    assert bounds or read.spec.asked_slo is None
    assert not estimated, f"{place}: no bucket of vLLM ends there, so misses are estimated"


@pytest.mark.parametrize("folder", ["", "deploy/samples/"])
def test_the_shortest_example_changes_nothing(folder: str) -> None:
    texts = [text for place, text in EXAMPLES if place.startswith(folder)]
    assert yaml.safe_load(min(texts, key=len))["spec"]["mode"] == "Recommend"


@pytest.mark.parametrize("name", HISTOGRAMS)
def test_the_edges_that_are_named_are_vllms(name: str) -> None:
    """In `kubectl explain` and in the full sample."""
    crd = yaml.safe_load((ROOT / "crds/servingpools.servingpool.dev.yaml").read_text())
    [version] = crd["spec"]["versions"]
    slo = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["slo"]["properties"]
    [named] = re.findall(r"\((.*?)\)", slo[name]["description"])
    assert {parse(edge) for edge in named.split(", ")} <= edges(HISTOGRAMS[name])
    full = (ROOT / "deploy/samples/servingpool-full.yaml").read_text()
    assert named in re.sub(r"\s*#", "", full)
