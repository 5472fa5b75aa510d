"""The rivals' HPAs and ScaledObjects. KEDA makes an HPA of each ScaledObject; one controller scales by all HPAs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rivals.custom_metrics import RUNNING, TOKENS, WAITING
from rivals.scene import LEAST, MOST, PROFILE, SLO
from servingpool_lab.workload import Manifest
from servingpool_simulation.baselines import hpa, keda, llmd
from servingpool_simulation.baselines.measured import generation_rate

EACH = "AverageValue"


def hpas() -> list[Manifest]:
    """Plain ones, `behavior` unset."""
    tokens = hpa.TOKENS * generation_rate(PROFILE, SLO)
    return [
        _hpa("hpa-waiting", _of_deployment("hpa-waiting", WAITING, {"type": "Value", "value": f"{hpa.WAITING:g}"})),
        _hpa("hpa-running", _of_deployment("hpa-running", RUNNING, {"type": EACH, "averageValue": f"{hpa.RUNNING:g}"})),
        _hpa(
            "hpa-tokens",
            {
                "type": "Pods",
                "pods": {"metric": {"name": TOKENS}, "target": {"type": EACH, "averageValue": f"{round(tokens)}"}},
            },
        ),
    ]


def scaled_objects(prometheus: str) -> list[Manifest]:
    """production-stack's and llm-d's. `prometheus`: its URL."""
    waiting = f'sum(vllm:{WAITING}{{model_name="keda"}})'
    return [
        # The published query has a series for each pod, which KEDA refuses from the second pod on: hence the sum.
        _object(
            "keda",
            [_trigger(prometheus, waiting, keda.WAITING)],
            behavior={
                "scaleUp": {"policies": [_pods(1, 60)]},
                "scaleDown": {"stabilizationWindowSeconds": 300, "policies": [_pods(1, 60)]},
            },
            pollingInterval=15,
            cooldownPeriod=round(keda.COOLDOWN),
        ),
        _slo_aware(prometheus, "llmd-slo-aware"),
    ]


def _slo_aware(prometheus: str, name: str) -> Manifest:
    """llm-d's guide `slo-aware`: its control law as KEDA's formula, its HPA behaviour.

    Its recording rule of 15 s is a subquery here. The latencies are those that were measured, to which the published
    rules fall back where no predictor runs: the engines' histograms, for there is no EPP.
    """
    ratios = (
        _quantile("time_to_first_token_seconds", name, SLO.time_to_first_token),
        _quantile("request_time_per_output_token_seconds", name, SLO.time_per_output_token),
    )
    marked = " or ".join(f'label_replace({ratio} >= 0, "bound", "{k}", "", "")' for k, ratio in enumerate(ratios))
    saturation = f"avg_over_time(clamp_max(max({marked}) or vector(0), {llmd.LatencyRatio.CLAMP:g})[45s:15s])"
    credit = "(readyReplicas > 0 && readyReplicas < replicas ? readyReplicas / replicas : 1)"
    up = f"replicas + ceil(replicas * (saturation * {credit} / {llmd.UP_ABOVE} - 1))"
    down = f"replicas - floor(replicas * (1 - saturation / {llmd.DOWN_BELOW}))"
    law = f"saturation > {llmd.UP_ABOVE} ? {up} : (saturation < {llmd.DOWN_BELOW} ? {down} : replicas)"
    queries = {
        "saturation": saturation,
        "replicas": f'max(kube_deployment_spec_replicas{{deployment="{name}"}}) or vector(0)',
        "readyReplicas": f'max(kube_deployment_status_replicas_ready{{deployment="{name}"}}) or vector(0)',
    }
    return _object(
        name,
        [{**_trigger(prometheus, query, 1.0), "name": part} for part, query in queries.items()],
        behavior={
            "scaleUp": {
                "stabilizationWindowSeconds": 30,
                "selectPolicy": "Max",
                "policies": [{"type": "Percent", "value": 100, "periodSeconds": 60}, _pods(4, 60)],
            },
            "scaleDown": {"stabilizationWindowSeconds": 180, "policies": [_pods(1, 120)]},
        },
        modifiers={"formula": law, "target": "1", "metricType": EACH},
        pollingInterval=15,
    )


def _hpa(name: str, metric: Mapping[str, Any]) -> Manifest:
    spec = {"scaleTargetRef": _target(name), "minReplicas": LEAST, "maxReplicas": MOST, "metrics": [metric]}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": spec}


def _of_deployment(name: str, metric: str, target: Mapping[str, str]) -> dict[str, Any]:
    described = {"metric": {"name": metric}, "describedObject": _target(name), "target": target}
    return {"type": "Object", "object": described}


def _target(name: str) -> dict[str, str]:
    return {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}


def _object(
    name: str,
    triggers: list[Mapping[str, Any]],
    behavior: Mapping[str, Any] | None = None,
    modifiers: Mapping[str, Any] | None = None,
    **fields: int,
) -> Manifest:
    advanced: dict[str, Any] = {}
    if behavior is not None:
        advanced["horizontalPodAutoscalerConfig"] = {"behavior": behavior}
    if modifiers is not None:
        advanced["scalingModifiers"] = modifiers
    spec = {
        "scaleTargetRef": {"name": name},
        "minReplicaCount": LEAST,
        "maxReplicaCount": MOST,
        "triggers": triggers,
        **fields,
        **({"advanced": advanced} if advanced else {}),
    }
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": metadata, "spec": spec}


def _trigger(prometheus: str, query: str, threshold: float) -> dict[str, Any]:
    metadata = {"serverAddress": prometheus, "query": query, "threshold": f"{threshold:g}"}
    return {"type": "prometheus", "metricType": EACH, "metadata": metadata}


def _quantile(histogram: str, model: str, bound: float | None) -> str:
    rates = f'sum by (le) (rate(vllm:{histogram}_bucket{{model_name="{model}"}}[1m]))'
    return f"(histogram_quantile({llmd.LatencyRatio.QUANTILE:g}, {rates}) / {bound:g})"


def _pods(number: int, seconds: int) -> dict[str, Any]:
    return {"type": "Pods", "value": number, "periodSeconds": seconds}
