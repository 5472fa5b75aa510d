"""What `helm test` runs second: a pool in Recommend mode is accepted, judged by the operator, and deleted."""

import os
import sys
import time
from typing import Any

from kubernetes import client, config

GROUP, VERSION, PLURAL = "servingpool.dev", "v1alpha1", "servingpools"
TIMEOUT = 10
"""Seconds for one request."""


def manifest(name: str, backend: str) -> dict[str, Any]:
    """A pool of a Deployment that does not exist: the operator has to say so."""
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "ServingPool",
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


def judged(pools: client.CustomObjectsApi, where: tuple[str, str, str, str], name: str, seconds: float) -> str:
    """The conditions as soon as there are any; empty if there are none in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        said = conditions(pools.get_namespaced_custom_object(*where, name, _request_timeout=TIMEOUT))
        if said:
            return said
        time.sleep(1)
    return ""


def main() -> int:
    """Create, wait, delete."""
    name, backend = os.environ["POOL_NAME"], os.environ["POOL_BACKEND"]
    where = (GROUP, VERSION, os.environ["POOL_NAMESPACE"], PLURAL)
    seconds = float(os.environ["TIMEOUT_SECONDS"])
    try:
        config.load_incluster_config()
    except config.ConfigException:
        config.load_kube_config()
    pools = client.CustomObjectsApi()
    pools.create_namespaced_custom_object(*where, manifest(name, backend), _request_timeout=TIMEOUT)
    try:
        said = judged(pools, where, name, seconds)
    finally:
        pools.delete_namespaced_custom_object(*where, name, _request_timeout=TIMEOUT)
    sys.stdout.write(f"{said or f'The operator set no conditions within {seconds:g} s.'}\n")
    return 0 if said else 1


if __name__ == "__main__":
    sys.exit(main())
