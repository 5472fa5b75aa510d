"""The images of a run: built here, never pulled, apart from the Python base."""

from __future__ import annotations

import ctypes
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from servingpool_lab.binaries import ensure_binaries

from ..vllm.engine import write_model  # noqa: TID252, tests are no package of an installed name
from .llama_server import write_model as write_gguf
from .shell import run, succeeds

ROOT = Path(__file__).parents[2]
DOCKERFILES = Path(__file__).parent / "images"
LOCAL_BASE = "local/python:3.11"
LAB_PACKAGES = (ROOT / "packages/simulation/servingpool_simulation", ROOT / "packages/lab/servingpool_lab")
"""What the lab's image has besides the operator's."""
NUMA = "libnuma.so.1"
"""vLLM's kernels need it from the system; slim base images lack it."""


@dataclass(frozen=True)
class Images:
    """Their tags."""

    operator: str = "servingpool-operator:e2e"
    lab: str = "servingpool-lab:e2e"
    """Emulated engine and load generator."""
    prometheus: str = "servingpool-prometheus:e2e"

    @property
    def all(self) -> tuple[str, ...]:
        """What the node needs."""
        return self.operator, self.lab, self.prometheus


def build() -> Images:
    """Build all; what has not changed comes from Docker's cache."""
    images = Images()
    build_operator(images.operator)
    _build_lab(images.lab, images.operator)
    prometheus = ensure_binaries("prometheus")["prometheus"]
    _build(DOCKERFILES / "prometheus.Dockerfile", images.prometheus, prometheus.parent)
    return images


def build_operator(tag: str, *flags: str) -> None:
    """The operator's image alone, with further flags of `docker build`."""
    _build_from_sources("Dockerfile", tag, *flags)


def build_backtest(operator: str, tag: str = "servingpool-backtest:e2e") -> str:
    """The operator's image with simulation and backtest. The tag."""
    _build_from_sources("backtest.Dockerfile", tag, f"--build-arg=OPERATOR={operator}")
    return tag


def _build_from_sources(dockerfile: str, tag: str, *flags: str) -> None:
    base = _base()
    options = _pip_options(base)
    arguments = [*base, *([f"PIP_OPTIONS={options}"] if options else [])]
    _build(ROOT / "deploy" / dockerfile, tag, ROOT, *(f"--build-arg={argument}" for argument in arguments), *flags)


def _build_lab(tag: str, base: str) -> None:
    """The operator's image with the packages that it does not have."""
    context = ROOT / "build" / "e2e" / "lab"
    shutil.rmtree(context, ignore_errors=True)
    for package in LAB_PACKAGES:
        shutil.copytree(package, context / "packages" / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(DOCKERFILES / "vllm", context / "vllm")
    _build(DOCKERFILES / "lab.Dockerfile", tag, context, f"--build-arg=BASE={base}")


def build_foreign(tag: str, binary: Path) -> None:
    """An image of a static engine alone."""
    context = ROOT / "build" / "e2e" / "foreign"
    context.mkdir(parents=True, exist_ok=True)
    # Docker would send the whole folder that a binary was built in.
    shutil.copy2(binary, context / "engine")
    _build(DOCKERFILES / "foreign.Dockerfile", tag, context)


def build_real_vllm(tag: str, vllm: Path, router: Path) -> None:
    """vLLM, a tiny model and `vllm-router`, from environments that have them, by their Pythons. 6 GB."""
    engine = f"{tag.partition(':')[0]}-base:e2e"
    base = (f"--build-arg={argument}" for argument in _base())
    _build(DOCKERFILES / "vllm-cpu.Dockerfile", engine, _packages(vllm), *base)
    context = ROOT / "build" / "e2e" / "real-vllm"
    shutil.rmtree(context, ignore_errors=True)
    write_model(context / "model")
    # What vLLM's own environment lacks. Its launcher is a package, the router a library beside it.
    for package in ("vllm_router", "vllm_router.libs", "orjson"):
        shutil.copytree(_packages(router) / package, context / "router" / package)
    shutil.copy2(_packages(router) / "vllm_router_rs.abi3.so", context / "router")
    (context / "lib").mkdir()
    shutil.copy2(_library(NUMA), context / "lib" / NUMA)
    _build(DOCKERFILES / "real-vllm.Dockerfile", tag, context, f"--build-arg=BASE={engine}")


def build_real_llamacpp(tag: str, server: Path, router: Path) -> None:
    """A static `llama-server`, a model, and `vllm-router` with what it imports, from an environment that has it."""
    context = ROOT / "build" / "e2e" / "real-llamacpp"
    shutil.rmtree(context, ignore_errors=True)
    context.mkdir(parents=True)
    shutil.copy2(server, context / "llama-server")
    write_gguf(context / "model.gguf")
    write_model(context / "model")
    _copy_router(router, context)
    base = (f"--build-arg={argument}" for argument in _base())
    _build(DOCKERFILES / "real-llamacpp.Dockerfile", tag, context, *base)


def build_router(tag: str, router: Path) -> None:
    """`vllm-router` with what it imports, from an environment that has it."""
    context = ROOT / "build" / "e2e" / "router"
    shutil.rmtree(context, ignore_errors=True)
    context.mkdir(parents=True)
    _copy_router(router, context)
    _build(DOCKERFILES / "router.Dockerfile", tag, context, *(f"--build-arg={argument}" for argument in _base()))


def _copy_router(router: Path, context: Path) -> None:
    packages = _packages(router)
    found = run(router, "-c", "import sys, vllm_router.launch_router; print(*(one for one in sys.modules))").split()
    wanted = {name.partition(".")[0] for name in found}
    for one in packages.iterdir():
        name = one.name.partition(".")[0]
        if name not in wanted or one.name.endswith(".dist-info"):
            continue
        if one.is_dir():
            shutil.copytree(one, context / "router" / one.name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (context / "router").mkdir(exist_ok=True)
            shutil.copy2(one, context / "router")


def _packages(python: Path) -> Path:
    return Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())


def _library(name: str) -> Path:
    """Where the loader has it on this machine."""
    ctypes.CDLL(name)
    maps = Path("/proc/self/maps").read_text().split()
    return next(Path(word) for word in maps if Path(word).name.startswith(name))


def sizes(image: str) -> tuple[float, float]:
    """MB of an image, and of that what lies on top of its base. By its history: a builder may not keep the base."""
    size = float(run("docker", "image", "inspect", "--format={{.Size}}", image))
    layers = run("docker", "history", "--human=false", "--format={{.Size}} {{.CreatedBy}}", "--no-trunc", image)
    copied = next(line for line in layers.splitlines() if "COPY" in line)
    return size / 1e6, float(copied.split()[0]) / 1e6


def has_buildkit() -> bool:
    """Debian's docker.io comes without buildx, and then only the classic builder is there."""
    return succeeds("docker", "buildx", "version")


def _build(dockerfile: Path, tag: str, context: Path, *flags: str) -> None:
    builder = _buildkit() if has_buildkit() else {"DOCKER_BUILDKIT": "0"}
    run("docker", "build", f"--file={dockerfile}", f"--tag={tag}", *flags, context, seconds=900, **builder)


def _buildkit() -> dict[str, str]:
    """The engine's own builder, which has its context's name: one in a container leaves no image in the engine.

    And no attestations: with them an engine on the containerd image store, Docker 29's default, makes an index, with
    parts that `kind load` does not find.
    """
    context = run("docker", "context", "show").strip()
    return {"BUILDX_BUILDER": context, "BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}


def _base() -> list[str]:
    """The base image as a build argument; none for the Dockerfile's public one."""
    chosen = os.environ.get("E2E_BASE") or (LOCAL_BASE if succeeds("docker", "image", "inspect", LOCAL_BASE) else "")
    return [f"BASE={chosen}"] if chosen else []


def _pip_options(base: list[str]) -> str:
    """`--no-index` where the wheels lie here, or where a local base says that containers reach nothing."""
    wheels = ROOT / "build" / "wheels"
    if not base and not wheels.is_dir():
        return ""
    locks = (ROOT / "tools" / "locks" / f"{name}.lock" for name in ("operator", "backtest", "build"))
    if not wheels.is_dir() or any(lock.stat().st_mtime > wheels.stat().st_mtime for lock in locks):
        run("make", "--directory", ROOT, "wheels", seconds=900)
        wheels.touch()
    return "--no-index"
