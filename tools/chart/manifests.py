"""deploy/: the chart as plain manifests, for `kubectl apply -k`."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

NAMESPACE = "servingpool-system"
RELEASE = "servingpool-operator"
FILES = ("rbac", "admissionpolicy", "config", "deployment", "networkpolicy", "poddisruptionbudget")
"""Templates of the chart that have a file of the same name in deploy/; the namespace is not the chart's."""

_HEADER = "# Generated from charts/servingpool-operator by `make generate`.\n"
_EDITED = "# Before `kubectl apply -k deploy/`, write your Prometheus into this file, under `backends`.\n"
_OF_HELM = re.compile(r"^ *(helm\.sh/chart|app\.kubernetes\.io/(managed-by|instance)): .*\n", re.MULTILINE)
"""Labels that say Helm did it, or which release it was. Without the latter, selectors are as they ever were: they
cannot be changed on a Deployment that runs."""
_SOURCE = re.compile(r"^---\n# Source: .*\n", re.MULTILINE)


def render(helm: Path, chart: Path, values: Path) -> dict[str, str]:
    """Text by file name.

    Raises:
        RuntimeError: Helm refused; the message is its own.
    """
    heads = dict.fromkeys(FILES, _HEADER) | {"config": _HEADER + _EDITED}
    return {f"{name}.yaml": head + _plain(_template(helm, chart, values, name)) for name, head in heads.items()}


def _template(helm: Path, chart: Path, values: Path, name: str) -> str:
    where = [f"--namespace={NAMESPACE}", f"--values={values}", f"--show-only=templates/{name}.yaml"]
    done = subprocess.run(  # noqa: S603 - Helm, as built; no shell
        [str(helm), "template", RELEASE, str(chart), *where], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    return done.stdout


def _plain(rendered: str) -> str:
    documents = [part.strip("\n") for part in _SOURCE.split(_OF_HELM.sub("", rendered)) if part.strip()]
    return "\n---\n".join(documents) + "\n"
