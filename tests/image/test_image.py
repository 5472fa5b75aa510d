"""The operator's image: the same again from the same sources, and nothing in it that it does not need."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ..e2e.images import ROOT, build_operator, has_buildkit  # noqa: TID252, one way to build it for all tests
from ..e2e.shell import run  # noqa: TID252

TAGS = ("servingpool-operator:first", "servingpool-operator:second")
COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "tcc", "as", "ld", "make", "go", "rustc")


@pytest.fixture(scope="module")
def images() -> Iterator[tuple[str, str]]:
    """Built one after the other, neither from the cache."""
    for tag in TAGS:
        build_operator(tag, "--no-cache")
    yield TAGS
    run("docker", "image", "rm", *TAGS)


def inside(image: str, script: str) -> str:
    """Standard output of a shell in it, which reaches no network."""
    return run("docker", "run", "--rm", "--network=none", "--entrypoint=sh", image, "-c", script)


def layers(image: str) -> str:
    return run("docker", "image", "inspect", "--format={{.RootFS.Layers}}", image)


def test_the_same_sources_make_the_same_image(images: tuple[str, str]) -> None:
    # Names, contents, modes, owners and dates. By a file: a pipe would hide that tar has failed.
    archive = "cd /opt && tar --create --sort=name --numeric-owner --file=/tmp/tree servingpool && sha256sum /tmp/tree"
    first, second = (inside(image, archive) for image in images)
    assert first == second
    # Of BuildKit only the contents are promised: /opt above them may have the date of the build.
    if not has_buildkit():
        assert layers(images[0]) == layers(images[1])


def test_its_bill_names_what_the_lock_pins(images: tuple[str, str]) -> None:
    """`make sbom`: no package more, none less, each in the version that was locked, each with a licence."""
    run("make", "--directory", ROOT, "sbom", f"IMAGE={images[0]}")
    components = json.loads((ROOT / "build" / "sbom.cdx.json").read_text())["components"]
    listed = {canonicalize_name(each["name"]): each["version"] for each in components}
    assert listed.pop(canonicalize_name("servingpool-operator"))
    assert listed == locked()
    assert listed.keys().isdisjoint({"servingpool-simulation", "servingpool-lab"})
    assert [each["name"] for each in components if not each.get("licenses")] == []
    debian = dict(line.split("\t") for line in (ROOT / "build" / "sbom-debian.txt").read_text().splitlines())
    assert "libc6" in {name.partition(":")[0] for name in debian}


def test_it_holds_neither_simulation_nor_lab(images: tuple[str, str]) -> None:
    ours = inside(images[0], "cd /opt/servingpool/lib/python3*/site-packages && ls -d servingpool*").split()
    assert {name.partition("-")[0] for name in ours} == {"servingpool", "servingpool_operator"}
    parts = inside(images[0], "cd /opt/servingpool/lib/python3*/site-packages/servingpool && ls -d */").split()
    assert {"simulation/", "lab/"}.isdisjoint(parts)


def locked() -> dict[str, str]:
    """Name and version of what the lock asks for in the image."""
    there = {
        "python_version": "3.11",
        "python_full_version": "3.11.0",
        "sys_platform": "linux",
        "platform_system": "Linux",
    }
    lines = (ROOT / "tools/locks/operator.lock").read_text().splitlines()
    pins = [Requirement(line.rstrip(" \\")) for line in lines if line[:1].isalpha()]
    return {
        canonicalize_name(pin.name): str(next(iter(pin.specifier)).version)
        for pin in pins
        if pin.marker is None or pin.marker.evaluate(there)
    }


def test_there_is_no_compiler_in_it(images: tuple[str, str]) -> None:
    assert inside(images[0], "command -v sh").strip()
    found = inside(images[0], f"for each in {' '.join(COMPILERS)}; do command -v $each; done; true")
    assert found == ""
