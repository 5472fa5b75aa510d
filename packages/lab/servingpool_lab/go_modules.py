"""The Go modules that the control plane is built from: versions, programs, flags."""

import hashlib
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

KUBERNETES_VERSION = "1.36.3"
# Prometheus 3.15.0 is v0.315.0 as a Go module.
PROMETHEUS_VERSION = "3.15.0"
HELM_VERSION = "3.22.0"

OF_ONE_LANE = ("thanos", "victoria-metrics")
"""Modules that are built only where they are named, by `make test-backends`."""
OPTIONAL = ("lws", "crane", "krew", *OF_ONE_LANE)
"""Modules without which the tests run, less those that need them. `crane` and `krew` are for `make release`."""
LAB = ("etcd", "kubernetes", "prometheus")
"""The modules that `make run` needs. Helm serves the chart and its tests only."""


class BuildError(RuntimeError):
    """A program could not be built; the message says what to do or carries the compiler's."""


@dataclass(frozen=True)
class Program:
    """One binary: its file name, its Go package and its size."""

    name: str
    package: str
    megabytes: int
    fits: tuple[tuple[int, int], tuple[int, int]] | None = None
    """A program of this name on PATH does as well from the first version on, below the second. None: none does."""
    version: tuple[str, ...] = ("--version",)
    """Arguments with which it says its version."""


@dataclass(frozen=True)
class ToolModule:
    """One Go module below `tools/` and how to build it."""

    name: str
    programs: tuple[Program, ...]
    linker_flags: str = "-s -w"
    tags: str = ""

    @property
    def directory(self) -> Path:
        """The folder with go.mod and go.sum."""
        return tools_directory() / self.name

    def build_flags(self) -> list[str]:
        """Arguments to `go build`, the output and the package aside."""
        flags = ["-trimpath", "-buildvcs=false", f"-ldflags={self.linker_flags}"]
        return [*flags, f"-tags={self.tags}"] if self.tags else flags

    def digest(self) -> str:
        """Changes whenever the binaries would: versions, flags, or the platform."""
        content = hashlib.sha256()
        for part in (
            (self.directory / "go.mod").read_bytes(),
            (self.directory / "go.sum").read_bytes(),
            "\n".join([*self.build_flags(), *(p.package for p in self.programs)]).encode(),
            f"{platform.system()} {platform.machine()}".encode(),
        ):
            content.update(hashlib.sha256(part).digest())
        return content.hexdigest()[:16]

    def output_directory(self) -> Path:
        """Where finished binaries lie."""
        return cache_directory() / "bin" / f"{self.name}-{self.digest()}"


def _kubernetes_linker_flags() -> str:
    # Without these kube-apiserver reports v0.0.0-master, and clients compare versions.
    major, minor, _ = KUBERNETES_VERSION.split(".")
    flags = ["-s", "-w"]
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
        for variable, value in (
            ("gitVersion", f"v{KUBERNETES_VERSION}"),
            ("gitMajor", major),
            ("gitMinor", minor),
            ("gitTreeState", "clean"),
        ):
            flags.append(f"-X {package}.{variable}={value}")
    return " ".join(flags)


def _helm_linker_flags() -> str:
    # Without these Helm renders for Kubernetes 1.20, which the chart refuses.
    major, minor, _ = KUBERNETES_VERSION.split(".")
    flags = ["-s", "-w", f"-X helm.sh/helm/v3/internal/version.version=v{HELM_VERSION}"]
    for package in ("chartutil", "lint/rules"):
        for variable, value in (("k8sVersionMajor", major), ("k8sVersionMinor", minor)):
            flags.append(f"-X helm.sh/helm/v3/pkg/{package}.{variable}={value}")
    return " ".join(flags)


_MINOR = int(KUBERNETES_VERSION.split(".")[1])
_SAME_MINOR = ((1, _MINOR), (1, _MINOR + 1))
_NEXT_MINOR = ((1, _MINOR - 1), (1, _MINOR + 2))
"""kubectl's: Kubernetes promises that a minor version of difference is none."""

MODULES: Mapping[str, ToolModule] = {
    module.name: module
    for module in (
        ToolModule("etcd", (Program("etcd", "go.etcd.io/etcd/server/v3", 25, ((3, 5), (4, 0))),)),
        ToolModule(
            "kubernetes",
            (
                Program("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver", 106, _SAME_MINOR),
                Program("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager", 96, _SAME_MINOR),
                Program("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler", 73, _SAME_MINOR),
                Program("kubectl", "k8s.io/kubernetes/cmd/kubectl", 60, _NEXT_MINOR, ("version", "--client")),
                Program("kwok", "sigs.k8s.io/kwok/cmd/kwok", 64, ((0, 8), (0, 9))),
            ),
            linker_flags=_kubernetes_linker_flags(),
        ),
        ToolModule(
            "prometheus",
            (Program("prometheus", "github.com/prometheus/prometheus/cmd/prometheus", 75, ((3, 0), (4, 0))),),
            linker_flags=f"-s -w -X github.com/prometheus/common/version.Version={PROMETHEUS_VERSION}",
            # All service discoveries but the one for Kubernetes: half the size and build time.
            tags="remove_all_sd,enable_kubernetes_sd",
        ),
        # What it renders depends on its version.
        ToolModule("helm", (Program("helm", "helm.sh/helm/v3/cmd/helm", 60),), linker_flags=_helm_linker_flags()),
        ToolModule("crane", (Program("crane", "github.com/google/go-containerregistry/cmd/crane", 17),)),
        ToolModule("krew", (Program("krew", "sigs.k8s.io/krew/cmd/krew", 18),)),
        ToolModule("lws", (Program("lws", "sigs.k8s.io/lws/cmd", 54),)),
        # Without the tag its labels are not those that its Prometheus packages have, and its sidecar panics.
        ToolModule("thanos", (Program("thanos", "github.com/thanos-io/thanos/cmd/thanos", 98),), tags="slicelabels"),
        ToolModule(
            "victoria-metrics",
            (
                Program("victoria-metrics", "github.com/VictoriaMetrics/VictoriaMetrics/app/victoria-metrics", 18),
                Program("vmauth", "github.com/VictoriaMetrics/VictoriaMetrics/app/vmauth", 10),
            ),
        ),
    )
}


def tools_directory() -> Path:
    """The folder with the Go modules: $SERVINGPOOL_TOOLS, else `tools/` of this checkout.

    Raises:
        BuildError: there is none, as in an installed wheel.
    """
    configured = os.environ.get("SERVINGPOOL_TOOLS")
    directory = Path(configured) if configured else Path(__file__).resolve().parents[3] / "tools"
    if not (directory / "kubernetes" / "go.mod").is_file():
        raise BuildError(
            f"no Go modules in {directory}: run from a checkout of the repository, "
            "or set SERVINGPOOL_TOOLS to its tools/ folder"
        )
    return directory


def cache_directory() -> Path:
    """$SERVINGPOOL_CACHE, else `servingpool` in the user's cache folder."""
    configured = os.environ.get("SERVINGPOOL_CACHE")
    if configured:
        return Path(configured).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "servingpool"
