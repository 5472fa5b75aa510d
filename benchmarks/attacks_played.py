"""The attacks by size of the review that led to SECURITY.md, S3 to S15: what only a real process under them shows.

The others are told by the tests that docs/records/gates.md names.

An attack is played up to a `yield` of the seconds for which the victim is watched then. What it returns is what was
seen besides.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from attacks_stage import POOLS, VICTIM, Stage, Tenant
from tests.integration.operators import serving_pool

from servingpool_lab.processes import wait_until

Played = Generator[float, None, str]
SIX_TICKS, LONG = 90.0, 200.0
SETS, DEPLOYMENTS = "/apis/apps/v1/namespaces/{}/statefulsets", "/apis/apps/v1/namespaces/{}/deployments"


@dataclass(frozen=True)
class Attack:
    """One row of the table."""

    name: str
    what: str
    play: Callable[[Stage, Tenant], Played]
    first: bool = False
    """It is played before the operator starts."""


def nothing(_: Stage, __: Tenant) -> Played:
    yield SIX_TICKS
    return ""


def script(tenant: Tenant, name: str, size: int) -> dict[str, Any]:
    word = "'" + "a" * size + " '"
    labels = {"app": name}
    made = container(command=["sh", "-c"], args=[word])
    template = {"metadata": {"labels": labels}, "spec": {"containers": [made]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": name, "namespace": tenant.namespace}, "spec": spec}


def s3(_: Stage, tenant: Tenant) -> Played:
    tenant.create(DEPLOYMENTS, (script(tenant, f"long-{number}", 1_250_000) for number in range(4)))
    yield SIX_TICKS
    return ""


def own_page(stage: Stage, tenant: Tenant, more: str, **spec: Any) -> None:
    """A pool of the tenant's, whose pod has these lines on its page too."""
    tenant.serve("own")
    tenant.pool("own", **spec)
    stage.more[tenant.namespace] = more


def s5(_: Stage, tenant: Tenant) -> Played:
    chosen = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a"] * 400_000}]}
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [container()]}}
    spec = {"replicas": 0, "serviceName": "a", "selector": chosen, "template": template}
    tenant.create(SETS, [{"metadata": {"name": "wide"}, "spec": spec}])
    tenant.pool("wide", targets=[{"kind": "StatefulSet", "apiVersion": "apps/v1", "name": "wide", "max": 2}])
    yield SIX_TICKS
    return ""


def s6(stage: Stage, tenant: Tenant) -> Played:
    labels = {"app": "held"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container()]}}
    spec = {"replicas": 1, "serviceName": "a", "selector": {"matchLabels": labels}, "template": template}
    path = SETS.format(VICTIM)
    stage.plane.client.create(path, {"metadata": {"name": "held"}, "spec": spec})
    tenant.create(POOLS, (far(tenant, number) for number in range(1_500)))
    target = {"kind": "StatefulSet", "apiVersion": "apps/v1", "name": "held", "min": 3, "max": 4}
    stage.plane.apply(serving_pool(VICTIM, "held", behavior={}, targets=[target]))
    began = time.monotonic()
    held = f"{path}/held"
    wait_until(
        lambda: stage.plane.client.get(held)["spec"]["replicas"] == 3, 200, "the victim's StatefulSet at its min"
    )
    took = time.monotonic() - began
    yield LONG
    stage.plane.client.delete(f"{POOLS.format(VICTIM)}/held")
    stage.plane.client.delete(held)
    return f"the victim's new StatefulSet pool was scaled after {took:.0f} s"


def far(tenant: Tenant, number: int) -> dict[str, Any]:
    """A pool whose eight targets do not exist."""
    names = [f"none-{number}-{place}" for place in range(8)]
    targets = [{"kind": "StatefulSet", "apiVersion": "apps/v1", "name": one, "max": 1} for one in names]
    return serving_pool(tenant.namespace, f"far-{number:04d}", mode="Recommend", behavior={}, targets=targets)


def s10_names(stage: Stage, tenant: Tenant) -> Played:
    """44 MB."""
    tenant.serve("own")
    names = (f"{number:06d}-{'x' * 380}" for number in range(100_000))
    stage.more[tenant.namespace] = "".join(f'vllm:num_requests_running{{model_name="{one}"}} 1\n' for one in names)
    yield SIX_TICKS
    tenant.pool("own")
    yield SIX_TICKS
    return f"its own pool: {stage.conditions(tenant.namespace, 'own')['MetricsAvailable'][:100]}"


def s10_labels(stage: Stage, tenant: Tenant) -> Played:
    names = (letter * 5_000_000 for letter in "xyz")
    own_page(stage, tenant, "".join(f'vllm:num_requests_running{{model_name="{one}"}} 1\n' for one in names))
    yield SIX_TICKS
    return ""


def s15(_: Stage, tenant: Tenant) -> Played:
    labels = {f"{'x' * 240}.com/{number:05d}": "y" * 63 for number in range(3_700)}
    pools = [serving_pool(tenant.namespace, f"labels-{number}", behavior={}) for number in range(60)]
    for one in pools:
        one["metadata"]["labels"] = labels
    tenant.create(POOLS, pools)
    yield SIX_TICKS
    return ""


def container(**more: Any) -> dict[str, Any]:
    return {"name": "vllm", "image": "vllm/vllm-openai:latest", **more}


ATTACKS = (
    Attack("none", "no attack", nothing),
    Attack("s3", "4 Deployments with a word of 1,250,000 characters", s3),
    Attack("s3-start", "the same, there when the operator starts", s3, first=True),
    Attack("s5", "a selector of 400,000 values", s5),
    Attack("s6", "1,500 pools with 8 unreadable targets each", s6),
    Attack("s10-names", "100,000 model names of 400 bytes, first without a pool", s10_names),
    Attack("s10-labels", "3 labels of 5 MB", s10_labels),
    Attack("s15", "60 pools with 1.15 MB of labels each", s15),
)
