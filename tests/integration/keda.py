"""Real KEDA beside the local control plane, where its operator was built (`make keda`)."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from keda_process import USER, crds, operator
from servingpool_lab.control_plane import ControlPlane
from servingpool_lab.processes import SupervisedProcess

__all__ = ["USER", "keda"]


@contextlib.contextmanager
def keda(plane: ControlPlane, namespace: str, directory: Path) -> Iterator[SupervisedProcess]:
    """Its operator, for one namespace. It serves no metrics: its HPAs know none, and keep replicas within their bounds."""
    certificates = directory / "keda-certificates"
    certificates.mkdir()
    for source, name in (("ca.crt", "ca.crt"), ("apiserver.crt", "tls.crt"), ("apiserver.key", "tls.key")):
        shutil.copy(plane.directory / source, certificates / name)
    process, _ = operator(plane, namespace, certificates, directory / "keda.log")
    process.start()
    try:
        process.wait_ready()
        yield process
    finally:
        process.stop()
        for crd in crds():
            plane.client.delete(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{_name(crd)}")


def _name(crd: Path) -> str:
    """The files are called keda.sh_scaledobjects.yaml."""
    group, _, plural = crd.stem.partition("_")
    return f"{plural}.{group}"
