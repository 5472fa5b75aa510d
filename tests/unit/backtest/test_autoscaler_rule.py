"""An HPA or a ScaledObject that the cluster has, as a policy on a recorded history."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from servingpool.adapters.prometheus import page
from servingpool.adapters.prometheus.engines import shipped
from servingpool.decision.observation import Histogram, Observation, Replica, ReplicaMetrics
from servingpool_backtest.autoscaler_rule import Rule
from servingpool_backtest.promql_nodes import Value
from servingpool_backtest.promql_value import GAUGES, Names, Unreadable, read
from servingpool_backtest.result import Question
from servingpool_backtest.run import backtest
from servingpool_simulation.baselines import hpa, keda
from servingpool_simulation.hardware import engine_profile
from servingpool_simulation.policies import Policy
from servingpool_simulation.run import SimulationOptions, simulate
from servingpool_simulation.traces import poisson

from .histories import POOL, recorded

PROFILE = engine_profile("a100-70b-tp4")
TRACE = poisson("steps", (2.0, 14.0, 4.0), 900.0, prompt=1100, output=200)
NAMES = Names.of(shipped()["vllm"])
ENGINES = Path(__file__).parents[2] / "fixtures" / "engines"


def an_hpa(metric: dict[str, Any], **spec: Any) -> Rule:
    raw = {"kind": "HorizontalPodAutoscaler", "metadata": {"name": "llama"}}
    return Rule({**raw, "spec": {"minReplicas": 1, "maxReplicas": 16, "metrics": [metric], **spec}}, "vllm")


def external(name: str, **target: str) -> dict[str, Any]:
    return {"type": "External", "external": {"metric": {"name": name}, "target": target}}


def a_scaled_object(*triggers: dict[str, Any], **spec: Any) -> Rule:
    raw = {"kind": "ScaledObject", "metadata": {"name": "llama"}}
    return Rule({**raw, "spec": {"minReplicaCount": 1, "maxReplicaCount": 16, "triggers": triggers, **spec}}, "vllm")


def prometheus(query: str, threshold: str) -> dict[str, Any]:
    return {"type": "prometheus", "metadata": {"query": query, "threshold": threshold}}


def orders(policy: Policy | None) -> list[int]:
    assert policy is not None
    return simulate(TRACE, PROFILE, POOL, policy, SimulationOptions(initial_replicas=2)).series.requested


@pytest.mark.parametrize("name", ["vllm:num_requests_running", "vllm_num_requests_running"])
def test_an_hpa_from_the_cluster_orders_what_the_baseline_of_the_same_rule_orders(name: str) -> None:
    rule = an_hpa(external(name, type="AverageValue", averageValue="16"))
    assert orders(rule.policy()) == orders(hpa.on_running(16.0))
    assert len(set(orders(rule.policy()))) > 2


def test_a_metric_of_type_value_has_one_target_for_the_whole_fleet() -> None:
    rule = an_hpa(external("vllm:num_requests_waiting", type="Value", value="1"))
    assert orders(rule.policy()) == orders(hpa.on_waiting(1.0))


def test_a_scaled_object_orders_what_the_production_stack_orders() -> None:
    minute = {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}
    config = {"horizontalPodAutoscalerConfig": {"behavior": {"scaleUp": minute, "scaleDown": minute}}}
    trigger = prometheus('sum(vllm:num_requests_waiting{namespace="chat"})', "5")
    assert orders(a_scaled_object(trigger, advanced=config).policy()) == orders(keda.ProductionStack(5.0))


def test_a_disabled_direction_is_never_taken() -> None:
    metric = external("vllm:num_requests_running", type="AverageValue", averageValue="16")
    course = orders(an_hpa(metric, behavior={"scaleDown": {"selectPolicy": "Disabled"}}).policy())
    assert course == sorted(course)


def look(now: float) -> Observation:
    """Two replicas: 10 and 20 running, 100 and 300 tokens/s, half of the first tokens within 1 s, the rest in 2 s."""
    pages = tuple(
        ReplicaMetrics(
            replica=f"vllm-{each}",
            scraped_at=now,
            running=10.0 * each,
            waiting=float(each),
            generation_tokens=tokens * now,
            prompt_tokens=tokens * now,
            time_to_first_token=Histogram((1.0, 2.0), (now, 2.0 * now), 2.0 * now, 2.0 * now),
        )
        for each, tokens in ((1, 100.0), (2, 300.0))
    )
    return Observation(2, ready=tuple(Replica(one.replica, 900.0, 800.0) for one in pages), metrics=pages)


@pytest.mark.parametrize(
    ("query", "value"),
    [
        ('avg(vllm:num_requests_running{model_name="llama"})', 15.0),
        ("sum by (namespace) (vllm:num_requests_waiting) / 2", 1.5),
        ("max(max_over_time(vllm:num_requests_running[1m])) * 2", 40.0),
        ("sum(rate(vllm:generation_tokens_total[1m]))", 400.0),
        ("sum(increase(vllm:generation_tokens_total[1m]))", 24_000.0),
        ("sum(rate(vllm:generation_tokens_total[1m])) / count(vllm:num_requests_running)", 200.0),
        ("histogram_quantile(0.75, sum(rate(vllm:time_to_first_token_seconds_bucket[5m])) by (le))", 1.5),
    ],
)
def test_queries_of_scalers_are_answered_from_what_the_fleet_shows(query: str, value: Value) -> None:
    node = read(query, NAMES)
    for tick in range(1, 21):
        found = node(look(15.0 * tick), 15.0 * tick)
    assert found == pytest.approx(value)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("avg(DCGM_FI_DEV_GPU_UTIL)", "'DCGM_FI_DEV_GPU_UTIL' is not among the engine's series"),
        ("sum(vllm:generation_tokens_total)", "a counter that is read without rate()"),
        ("sum(deriv(vllm:num_requests_running[5m]))", "the function 'deriv' is not understood"),
        ("sum(vllm:num_requests_running) > 3", "'> 3' in the query is not understood"),
        ("sum(vllm:num_requests_running", "is not understood"),
        ("max(rate(vllm:time_to_first_token_seconds_bucket[5m]))", "'vllm:time_to_first_token_seconds_bucket' is not"),
        (
            "histogram_quantile(0.9, sum(rate(vllm:time_to_first_token_seconds_bucket[5m])))",
            "a sum of buckets without their label 'le' is not understood",
        ),
        ("sum(vllm:num_requests_running)" + " + 1" * 3_000, "the query is longer than 10,000 characters"),
        ("sum(vllm:num_requests_running offset 5m)", "'offset 5m)' in the query is not understood"),
        ('sum(vllm:num_requests_running{pod="chat-0"})', "'pod=\"chat-0\"' is one pod alone"),
        ('sum(vllm:num_requests_running{pod~"chat-0"})', "is not understood"),
        ("max(sum by (engine) (vllm:num_requests_running))", "'engine' is no label that a recording holds"),
    ],
)
def test_a_query_that_no_history_answers_is_refused_with_the_reason(query: str, said: str) -> None:
    with pytest.raises(Unreadable) as refused:
        read(query, NAMES)
    assert said in str(refused.value)


SERIES = {name: Names.of(profile) for name, profile in shipped().items()}
FORMS = ("sum({0}{1})", "sum(rate({0}{1}[1m]))", "histogram_quantile(0.9, sum by (le) (rate({0}_bucket{1}[1m])))")


def is_left_out(query: str, engine: str) -> bool:
    rule = Rule(a_scaled_object(prometheus(query, "10")).raw, engine)
    return rule.policy() is None and [one.endswith("so it is not replayed.") for one in rule.lost()] == [True]


@pytest.mark.parametrize("engine", SERIES)
def test_a_part_of_a_series_and_a_name_that_only_begins_as_one_are_left_out(engine: str) -> None:
    """Tokens that were computed were replayed as those from the cache."""
    names, profile = SERIES[engine], shipped()[engine]
    labels = {"source", *profile.sum_over, *profile.copies_by, *profile.excluded} - {profile.model_label}
    for name in {one.name for series in profile.figures.values() for one in series if one.name}:
        begun = {f"{name}{ending}" for ending in ("_by_source", "_total", "_per_second", "2")} - names.figures.keys()
        for form in FORMS:
            assert all(is_left_out(form.format(one, ""), engine) for one in begun)
            assert all(is_left_out(form.format(name, f'{{{label}="x"}}'), engine) for label in labels)
        if names.figures.get(name) in GAUGES:
            with pytest.raises(Unreadable):
                names.figure(f"{name}_per_second", adapted=True)
    for samples in (page.parse(file.read_text()) for file in ENGINES.glob(f"{engine}-*.txt")):
        (read_as,) = page.read(profile, samples).values()
        for name, figure in names.figures.items():
            whole = [one.value for one in samples if one.name == name]
            assert not whole or sum(whole) == getattr(read_as, figure)


def waiting(*each: float) -> Observation:
    """Two replicas are asked for; these show how many requests wait."""
    pages = tuple(ReplicaMetrics(f"vllm-{number}", 0.0, waiting=one) for number, one in enumerate(each))
    return Observation(2, ready=tuple(Replica(one.replica, 900.0, 800.0) for one in pages), metrics=pages)


def sync(policy: Policy | None, *seen: Observation) -> tuple[int, str]:
    """What is ordered after the last of these looks, 15 s apart, and why."""
    assert policy is not None
    for tick, one in enumerate(seen):
        answer = policy.decide(one, POOL, 1_000.0 + 15.0 * tick)
    return answer.replicas, answer.reason


PER_POD = prometheus("vllm:num_requests_waiting", "5")


def test_a_query_with_an_element_for_each_pod_is_an_error_of_keda_and_holds() -> None:
    """production-stack's own default; KEDA reads one element, and refuses more."""
    assert "is 40, over 5 wants 8" in sync(a_scaled_object(PER_POD).policy(), waiting(40.0))[1]
    assert sync(a_scaled_object(PER_POD).policy(), waiting(40.0, 40.0)) == (
        2,
        "hold: `vllm:num_requests_waiting` returned 2 elements, and KEDA takes one: use sum()",
    )
    zero = prometheus("vllm:num_requests_waiting or vector(0)", "5")
    assert sync(a_scaled_object(zero).policy(), waiting(40.0))[0] == 2


@pytest.mark.parametrize(("ignore", "held"), [("true", False), ("false", True)])
@pytest.mark.parametrize("query", ["sum(vllm:num_requests_waiting)", "sum(vllm:num_requests_running) / 0"])
def test_an_empty_or_infinite_answer_is_zero_only_where_keda_ignores_null(
    query: str, ignore: str, *, held: bool
) -> None:
    trigger = prometheus(query, "5")
    trigger["metadata"]["ignoreNullValues"] = ignore
    empty = Observation(2, ready=(Replica("vllm-0", 900.0, 800.0),), metrics=())
    seen = [replace(empty, metrics=waiting(1.0).metrics), *([empty] * 30)] if "waiting" in query else [look(15.0)] * 31
    ordered, why = sync(a_scaled_object(trigger).policy(), *seen)
    assert (ordered, "has no value" in why) == ((2, True) if held else (1, False))


@pytest.mark.parametrize(
    ("behavior", "wanted"),
    [("static", 6), ("currentReplicas", 2), ("currentReplicasIfHigher", 6), ("currentReplicasIfLower", 2)],
)
def test_the_fallback_counts_once_more_answers_failed_than_its_threshold(behavior: str, wanted: int) -> None:
    rule = a_scaled_object(PER_POD, fallback={"failureThreshold": 3, "replicas": 6, "behavior": behavior})
    assert sync(rule.policy(), *[waiting(40.0, 40.0)] * 3)[1].startswith("hold")
    why = sync(rule.policy(), *[waiting(40.0, 40.0)] * 4)[1]
    assert why == f"`vllm:num_requests_waiting` failed 4 times: KEDA's fallback wants {wanted}"


def test_a_counter_that_was_seen_once_has_no_increase() -> None:
    node = read("sum(increase(vllm:generation_tokens_total[1m]))", NAMES)
    assert node(look(15.0), 15.0) is None


def test_what_is_not_replayed_is_said_and_the_rest_is_replayed() -> None:
    rule = a_scaled_object(
        {"type": "cron", "metadata": {"timezone": "UTC"}},
        {"type": "cpu", "metadata": {"value": "60"}},
        prometheus("sum(vllm:num_requests_waiting)", "5"),
        minReplicaCount=0,
        idleReplicaCount=0,
    )
    assert rule.policy() is not None
    assert list(rule.lost()) == [
        "ScaledObject llama: a trigger of type 'cron' is in no recording, so it is not replayed.",
        "ScaledObject llama: a trigger of type 'cpu' is in no recording, so it is not replayed.",
        "ScaledObject llama: scale to zero is not replayed; its minimum is taken as 1.",
        "ScaledObject llama: idleReplicaCount is not replayed; without load its minimum is taken.",
    ]
    alone = an_hpa({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization"}}})
    assert alone.policy() is None
    assert list(alone.lost()) == [
        "HorizontalPodAutoscaler llama: the resource metric 'cpu' is in no recording, so it is not replayed."
    ]


def test_the_report_has_the_rule_as_a_fleet_of_its_own_within_its_own_bounds() -> None:
    header, chunks, _ = recorded(TRACE, PROFILE, 4)
    rule = an_hpa(external("vllm:num_requests_running", type="AverageValue", averageValue="2"), maxReplicas=3)
    question = Question(POOL, cold_start=100.0, rule=rule)
    found = backtest(header, chunks, question, processes=1)
    assert found.rule is not None
    assert max(found.rule.requested) == 3
    assert found.to_dict()["rule"]["gpu_hours"] == found.rule_hours
    assert found.to_dict() == backtest(header, chunks, replace(question), processes=2).to_dict()
