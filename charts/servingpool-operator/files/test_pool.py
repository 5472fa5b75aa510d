"""What `helm test` runs second: a pool in Recommend mode is accepted, judged by the operator, and deleted."""

import os
import sys
import time
from typing import Any

from servingpool.adapters.cluster.pools import Pools, pool_path
from servingpool.api.group import API_VERSION, KIND


def manifest(name: str, backend: str) -> dict[str, Any]:
    """A pool of a Deployment that does not exist: the operator has to say so."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name},
        "spec": {
            "model": "helm-test",
            "mode": "Recommend",
            "slo": {"timeToFirstToken": "2500ms"},
            "metrics": {"backend": backend},
            "targets": [{"name": name, "max": 1}],
        },
    }


def conditions(pool: dict[str, Any]) -> str:
    """The conditions in one line; empty before the operator has judged."""
    found = pool.get("status", {}).get("conditions", [])
    return ", ".join(f"{one['type']}={one['status']} ({one['reason']})" for one in found)


def judged(pools: Pools, namespace: str, name: str, seconds: float) -> str:
    """The conditions as soon as there are any; empty if there are none in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        said = conditions(pools.read(namespace, name))
        if said:
            return said
        time.sleep(1)
    return ""


def main() -> int:
    """Create, wait, delete."""
    namespace, name, backend = (os.environ[f"POOL_{part}"] for part in ("NAMESPACE", "NAME", "BACKEND"))
    seconds = float(os.environ["TIMEOUT_SECONDS"])
    pools = Pools.connect(None, None)
    pools.request("POST", pool_path(namespace, None), f"create ServingPool {name}", manifest(name, backend))
    try:
        said = judged(pools, namespace, name, seconds)
    finally:
        pools.request("DELETE", pool_path(namespace, name), f"delete ServingPool {name}")
    sys.stdout.write(f"{said or f'The operator set no conditions within {seconds:g} s.'}\n")
    return 0 if said else 1


if __name__ == "__main__":
    sys.exit(main())
