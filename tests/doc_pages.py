"""What can be run and applied of the documentation's pages: console blocks, files, manifests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
SKIP = re.compile(r"<!-- e2e: skip, .+ -->")
BLOCK = re.compile(r"^(?P<indent> *)```(?P<kind>\w+)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (?P<name>[\w.-]+\.yaml)\n")
FOREIGN = (
    ("monitoring.coreos.com", "v1", "PodMonitor", "podmonitors"),
    ("monitoring.coreos.com", "v1", "PrometheusRule", "prometheusrules"),
    ("argoproj.io", "v1alpha1", "Application", "applications"),
    ("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects"),
)
"""Kinds of others on the pages, as (group, version, kind, plural)."""


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    kind: str
    """The word behind the fence."""
    text: str
    skipped: bool = False
    """The page says that the end-to-end test is not to run it."""


@dataclass(frozen=True)
class File:
    """A file that the reader saves: a YAML block whose first line is `# NAME.yaml`."""

    name: str
    text: str


@dataclass(frozen=True)
class Command:
    """One command that the reader types."""

    text: str


def blocks(page: str) -> list[Block]:
    """Every fenced block of a page, in its order, without its indent."""
    found, end = [], 0
    for match in BLOCK.finditer(page):
        before = page[end : match.start()].rstrip().rpartition("\n")[2].strip()
        found.append(Block(match["kind"], dedent(match["text"]), skipped=SKIP.fullmatch(before) is not None))
        end = match.end()
    return found


def steps(page: str) -> list[File | Command]:
    """What a reader does on a page, in order. A console block's `$ ` begins a command; what it prints is left out."""
    return list(_steps(page))


def _steps(page: str) -> Iterator[File | Command]:
    for block in blocks(page):
        name = FILE.match(block.text)
        if block.skipped:
            continue
        if block.kind == "console":
            yield from map(Command, commands(block.text))
        elif block.kind == "yaml" and name is not None:
            yield File(name["name"], block.text)


def commands(text: str) -> Iterator[str]:
    """The commands of a console block, each with its further lines after a backslash."""
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("$ "):
            command = line.removeprefix("$ ")
            while command.endswith("\\"):
                command = f"{command}\n{next(lines)}"
            yield command


def substituted(text: str, names: Mapping[str, str]) -> str:
    """A text with each of `names` in place of what the page has. The longest first, so that none eats another's part."""
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(name, names[name])
    return text


def definitions() -> list[dict[str, Any]]:
    """A CustomResourceDefinition for each of `FOREIGN`, which takes any field."""
    return [_definition(*each) for each in FOREIGN]


def _definition(group: str, version: str, kind: str, plural: str) -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [served]},
    }
