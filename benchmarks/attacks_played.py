"""The attacks of the review that led to SECURITY.md, S1 to S17, each at its full size.

An attack is played up to a `yield` of the seconds for which the victim is watched then. What it returns is what was
seen besides.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from attacks_stage import POOLS, RATE, VICTIM, Stage, Tenant
from tests.integration.operators import deployment, serving_pool

from servingpool_lab.processes import wait_until

Played = Generator[float, None, str]
TWO_TICKS, SIX_TICKS, LONG = 30.0, 90.0, 200.0
SETS, DEPLOYMENTS = "/apis/apps/v1/namespaces/{}/statefulsets", "/apis/apps/v1/namespaces/{}/deployments"
TTFT = "vllm:time_to_first_token_seconds_bucket"
GATEWAY = {"name": "inference-extension", "namespace": "gateways", "models": {VICTIM: [VICTIM]}}
"""Every namespace may use it; the victim's model is the victim's."""


@dataclass(frozen=True)
class Attack:
    """One row of the table."""

    name: str
    what: str
    play: Callable[[Stage, Tenant], Played]
    first: bool = False
    """It is played before the operator starts."""
    query_wait: float = 0.0
    """Seconds by which Prometheus' answers are late."""
    gateway: Mapping[str, Any] | None = None
    """Gateway of the backend `shared` in the operator's configuration."""
    grows: int = 0
    """Replicas that the victim rightly gets meanwhile at most."""


def nothing(_: Stage, __: Tenant) -> Played:
    yield SIX_TICKS
    return ""


def s1(stage: Stage, tenant: Tenant) -> Played:
    floor = {"namespace": VICTIM, "pool": VICTIM, "gpus": 4}
    stage.budget(16, floors=[floor])
    for name, gpus, mode in (("hog", "16", "Paused"), ("typo", "999", "Recommend")):
        tenant.deploy(name, 1, containers=[container(resources={"limits": {"nvidia.com/gpu": gpus}})])
        tenant.pool(name, mode=mode, priority=9, targets=[{"name": name, "min": 1, "max": 9}])
    yield SIX_TICKS
    return ""


def s2(stage: Stage, tenant: Tenant) -> Played:
    tenant.serve("own", replicas=2, containers=[container(resources={"limits": {"nvidia.com/gpu": "1"}})])
    tenant.pool("own", targets=[{"name": "own", "min": 2, "max": 4}])
    stage.budget(0, tenant.namespace)
    wait_until(lambda: stage.replicas(tenant.namespace, "own") == 0, 120, "0 replicas by the budget")
    stage.budget(8, tenant.namespace)
    began = time.monotonic()
    wait_until(lambda: stage.replicas(tenant.namespace, "own") >= 1, 120, "the first replica again")
    back = time.monotonic() - began
    yield TWO_TICKS
    return f"back from 0 after {back:.0f} s"


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


def s4(stage: Stage, tenant: Tenant) -> Played:
    labels = ('le="abc"', "", 'le=""', 'le="2_.5"')
    own_page(stage, tenant, "".join(f'{TTFT}{{model_name="x",{one}}} 1\n' for one in labels))
    yield SIX_TICKS
    return ""


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


def s7(stage: Stage, tenant: Tenant) -> Played:
    stage.budget(16)
    nothing_there = {"kind": "ReplicaSet", "apiVersion": "apps/v1", "name": "nothing", "max": 9}
    for mode in ("Auto", "Paused", "Recommend"):
        tenant.pool(f"nothing-{mode.lower()}", mode=mode, targets=[nothing_there])
    tenant.deploy("claims", 0, resourceClaims=[{"name": "g", "resourceClaimName": "none"}])
    tenant.pool("claims", targets=[{"name": "claims", "max": 9}])
    yield TWO_TICKS
    before = stage.replicas()
    stage.load(2.0 * RATE)
    began = time.monotonic()
    wait_until(lambda: stage.replicas() > before, 120, "the victim grows")
    took = time.monotonic() - began
    yield SIX_TICKS
    return f"at twice the load it grew after {took:.0f} s, to {stage.replicas()}"


def s8(stage: Stage, tenant: Tenant) -> Played:
    meta = {"name": "own-5d4f", "namespace": tenant.namespace, "finalizers": ["tenant.example/hold"]}
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "own", "uid": stage.deployment()["metadata"]["uid"]}
    template = {"metadata": {"labels": {"app": "own"}}, "spec": {"containers": [container()]}}
    spec = {"replicas": 0, "selector": {"matchLabels": {"app": "own"}}, "template": template}
    path = f"/apis/apps/v1/namespaces/{tenant.namespace}/replicasets"
    tenant.create(path, [{"metadata": {**meta, "ownerReferences": [{**owner, "controller": True}]}, "spec": spec}])
    one = f"{path}/own-5d4f"
    wait_until(lambda: "deletionTimestamp" in tenant.client.get(one)["metadata"], 60, "the collector deletes it")
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "own-5d4f", "controller": True}
    owners = [{**reference, "uid": tenant.client.get(one)["metadata"]["uid"]}]
    pods = ({"metadata": {"name": f"fakepod{n}", "ownerReferences": owners}, "spec": pod()} for n in range(5))
    tenant.create("/api/v1/namespaces/{}/pods", pods)
    yield SIX_TICKS
    count = len(tenant.client.items(f"/api/v1/namespaces/{tenant.namespace}/pods"))
    conditions = stage.conditions(VICTIM, VICTIM)
    named = [name for name, text in conditions.items() if "fakepod" in text or "RolloutInProgress" in text]
    return f"{count} such pods stood; in {len(named)} of the victim's conditions"


def s9(stage: Stage, tenant: Tenant) -> Played:
    bounds = [c * (1 + step / 200) for c in (2.0, 4.0, 1.0, 8.0, 0.5) for step in range(-4, 5)]
    own_page(stage, tenant, "".join(f'{TTFT}{{model_name="own",le="{one:.4f}"}} 0\n' for one in bounds))
    yield SIX_TICKS
    return f"SLOMet: {stage.conditions(VICTIM, VICTIM)['SLOMet'].partition(':')[0]}"


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


def s10_answers(_: Stage, tenant: Tenant) -> Played:
    for number in range(8):
        tenant.serve(f"own-{number}")
        metrics = {"backend": "hostile", "matchLabels": {"team": str(number)}}
        tenant.pool(f"own-{number}", metrics=metrics)
    yield SIX_TICKS
    return ""


def s11(stage: Stage, _: Tenant) -> Played:
    for name, value in (("num_requests_waiting", "1000000"), ("prompt_tokens_total", "1e12")):
        stage.once[VICTIM] = lambda page, name=name, value=value: "".join(  # type: ignore[misc]
            f"{line.rpartition(' ')[0]} {value}\n" if line.startswith(f"vllm:{name}") else f"{line}\n"
            for line in page.splitlines()
        )
        yield LONG
    return ""


def s12(stage: Stage, _: Tenant) -> Played:
    yield TWO_TICKS
    stage.load(2.2 * RATE)
    yield 75.0
    stage.clock.write_text("-600")
    yield LONG
    return f"{stage.replicas()} replicas at 2.2 times the load"


def s14(stage: Stage, tenant: Tenant) -> Played:
    stage.plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gateways"}})
    stage.plane.apply(deployment("gateways", "epp", 1))
    queue = 'inference_extension_flow_control_queue_size{fairness_id="a",priority="0"} 77\n'
    sent = f'inference_objective_request_total{{model_name="{VICTIM}",target_model_name="{VICTIM}"}} 600\n'
    stage.more["gateways"] = f"# TYPE inference_objective_request_total counter\n{sent}{queue}"
    owner = replace(tenant, namespace=VICTIM, client=stage.plane.client)
    for one in (tenant, owner):
        one.serve("own", model=VICTIM)
        one.pool("own", model=VICTIM, metrics={"backend": "shared"})
    yield SIX_TICKS
    queues = [
        stage.plane.client.get(f"{POOLS.format(one.namespace)}/own")["status"].get("queueDepth")
        for one in (tenant, owner)
    ]
    stage.plane.client.delete(f"{POOLS.format(VICTIM)}/own")
    stage.plane.client.delete(f"{DEPLOYMENTS.format(VICTIM)}/own")
    del stage.traffic.services[VICTIM, "own"]
    result = "" if queues[0] is None and queues[1] == 77 else "FAILED: "
    return (
        f"{result}waiting at the gateway, as the victim's pool reads it: {queues[1]}; as the tenant's does: {queues[0]}"
    )


def s15(_: Stage, tenant: Tenant) -> Played:
    labels = {f"{'x' * 240}.com/{number:05d}": "y" * 63 for number in range(3_700)}
    pools = [serving_pool(tenant.namespace, f"labels-{number}", behavior={}) for number in range(60)]
    for one in pools:
        one["metadata"]["labels"] = labels
    tenant.create(POOLS, pools)
    yield SIX_TICKS
    return ""


def s17(_: Stage, tenant: Tenant) -> Played:
    pools = [
        serving_pool(tenant.namespace, f"set-{n}", behavior={}, metrics={"matchLabels": {"team": str(n)}})
        for n in range(500)
    ]
    tenant.create(POOLS, pools)
    yield LONG
    return ""


def container(**more: Any) -> dict[str, Any]:
    return {"name": "vllm", "image": "vllm/vllm-openai:latest", **more}


def pod() -> dict[str, Any]:
    return {"terminationGracePeriodSeconds": 1, "containers": [container()]}


ATTACKS = (
    Attack("none", "no attack", nothing),
    Attack("s1", "Deployments of 16 and 999 GPUs, Pending, in Paused and Recommend", s1),
    Attack("s2", "a budget set to 0 and back to 8", s2),
    Attack("s3", "4 Deployments with a word of 1,250,000 characters", s3),
    Attack("s3-start", "the same, there when the operator starts", s3, first=True),
    Attack("s4", "4 buckets with a bad le", s4),
    Attack("s5", "a selector of 400,000 values", s5),
    Attack("s6", "1,500 pools with 8 unreadable targets each", s6),
    Attack("s7", "4 pools whose GPUs are unknown", s7, grows=4),
    Attack("s8", "a ReplicaSet and 5 pods with the victim's uid", s8),
    Attack("s9", "45 buckets around the victim's bound", s9),
    Attack("s10-names", "100,000 model names of 400 bytes, first without a pool", s10_names),
    Attack("s10-labels", "3 labels of 5 MB", s10_labels),
    Attack("s10-answers", "a Prometheus that answers with 250 MB, plain and packed", s10_answers),
    Attack("s11", "one scrape with a queue of 10^6, one with 10^12 tokens", s11, grows=1),
    Attack("s12", "the system clock is set back by 600 s while the load rises", s12, grows=4),
    Attack("s14", "a pool that names the victim's model; both are behind one gateway", s14, gateway=GATEWAY),
    Attack("s15", "60 pools with 1.15 MB of labels each", s15),
    Attack("s17", "500 label sets without targets, 50 ms a query", s17, query_wait=0.05),
)
