"""The chart's alerts. `make generate` writes them into the chart, and docs/operate/alerts.md.

`$(NAMESPACE)`, `$(RELEASE)`, `$(INTERVAL)` and `$(LEASE_DURATION)` stand for what Helm knows. `$(THRESHOLD)`
and `$(FOR)` stand for the alert's own threshold and `for`, which the chart's values may change.

Pages are about users: critical alerts on pools compare how fast the error budget is spent over a long window, which
tells that it matters, and over a short one, which tells that it goes on (the multi-window burn rate of the SRE
workbook). Windows are means of the operator's own figures, not sums of counters: those figures count requests that
still wait as missed, and an engine that hangs finishes no request that a counter could count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from servingpool.catalogue.condition_types import ConditionType, Truth
from servingpool.catalogue.conditions import Reason

OPERATOR, POOLS = "servingpool-operator", "servingpool-pools"
"""Rule groups."""
CRITICAL, WARNING = "critical", "warning"
"""Severities: wake somebody, and look at it in the day."""
WORST = 0.8
"""Share of missed requests that a burn rate reaches at the latest. A pool that allows 10% of misses can spend its
budget at most 10 times as fast as planned, so 14.4 times would never come."""
FEWEST = 10
"""Missed requests within the hour, roughly, below which nobody is woken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert. Texts may use Prometheus' templates, such as {{ $labels.pool }}."""

    name: str
    group: str = POOLS
    severity: str = WARNING
    wait: str
    """How long the expression must hold."""
    expr: str
    summary: str
    """The state, in one line with the pool's name."""
    description: str
    """The state with its number and its cause."""
    effect: str
    """Effect on users."""
    action: str
    """What to do about it."""
    threshold: float | None = None
    """The value of `$(THRESHOLD)`; None where the expression has none."""
    state_of: Mapping[str, str] = field(default_factory=dict)
    """Instead of description and effect, by the label `reason`."""
    action_of: Mapping[str, str] = field(default_factory=dict)
    """What to do, by the label `reason`; it follows the action."""


def _of_pool(metric: str) -> str:
    """A figure of each pool. What the scrape adds is dropped: a change of leader does not look like another pool."""
    return f"max by (namespace, pool) ({metric})"


def _with_mode(expr: str) -> str:
    """The expression with the pool's mode as a label, which Alertmanager may route by.

    Of two modes, as of two clusters or of two leaders, one is taken: two would fail the rule for every pool.
    """
    info = "topk by (namespace, pool) (1, max by (namespace, pool, mode) (servingpool_info))"
    return f"({expr}) * on (namespace, pool) group_left (mode) {info}"


def _in_condition(labels: str) -> str:
    """A row for each pool with such a condition, by its reason."""
    return _with_mode(f"max by (namespace, pool, reason) (servingpool_condition{{{labels}}})")


HOUR, FIVE_MINUTES = _of_pool("servingpool_attainment_ratio"), _of_pool("servingpool_recent_attainment_ratio")


def _mean(figure: str, window: str, otherwise: str) -> str:
    """Over a window; where it holds nothing yet, as it is `otherwise` now."""
    return f"(avg_over_time(({figure})[{window}]) or {otherwise})"


def _burns(long: str, short: str, *, enough: str = "") -> str:
    """The share of missed requests where both windows spend the budget faster than the threshold says.

    Not in mode Recommend, where somebody else sizes the fleet.
    """
    allowed = f"clamp_max($(THRESHOLD) * (1 - {_of_pool('servingpool_objective_ratio')}), {WORST})"
    over = " and ".join(f"1 - {share} > {allowed}" for share in (long, short))
    return _with_mode(f'({over}{enough}) unless on (namespace, pool) servingpool_info{{mode="Recommend"}}')


ARRIVALS = _of_pool("servingpool_arrival_rate")
ENOUGH = f" and (1 - {HOUR}) * {_mean(ARRIVALS, '1h:1m', ARRIVALS)} * 3600 >= {FEWEST}"
SLO_ACTION = (
    "servingpool explain {{ $labels.pool }} -n {{ $labels.namespace }} names the state and what to do. "
    f"The state is the reason of SLOMet. {Reason.MAX_TOO_LOW} and {Reason.SCALE_UP_HELD_BACK}: replicas are missing, "
    f"and the message says what keeps them away. {Reason.REPLICAS_STARTING} and {Reason.RECOVERING}: wait. "
    f"{Reason.OBJECTIVE_UNATTAINABLE}: more replicas do not help. {Reason.OBJECTIVE_MISSED}: if it lasts, see "
    "the page of symptoms."
)
SMALLER = "The fleet is smaller than ordered, so requests may miss the SLO."

ALERTS = (
    Alert(
        name="ServingPoolNoLeader",
        group=OPERATOR,
        severity=CRITICAL,
        wait="2m",
        expr='absent(servingpool_leader{namespace="$(NAMESPACE)"} == 1)',
        summary="No ServingPool operator leads.",
        description="No operator in $(NAMESPACE) holds the Lease, or Prometheus does not scrape it.",
        effect="Replicas stay as they are, whatever the load. Requests may miss the SLO when traffic rises.",
        action=(
            "Check that the pods run and read their logs: kubectl -n $(NAMESPACE) get pods. Then check the Lease: "
            "kubectl -n $(NAMESPACE) get lease $(RELEASE) -o yaml. A holder that is gone is replaced after "
            "$(LEASE_DURATION). If a pod leads, Prometheus does not scrape it."
        ),
    ),
    Alert(
        name="ServingPoolTwoLeaders",
        group=OPERATOR,
        severity=CRITICAL,
        wait="1m",
        expr='sum(servingpool_leader{namespace="$(NAMESPACE)"}) > 1',
        summary="Two ServingPool operators lead.",
        description="More than one operator in $(NAMESPACE) writes. Leader election is off, or a clock is stopped.",
        effect="Both set replicas, so the numbers of replicas may flap.",
        action="Set leaderElection.enabled, or replicas to 1. If it is on, restart all pods: each gives its Lease up.",
    ),
    Alert(
        name="ServingPoolSharesWrong",
        group=OPERATOR,
        severity=CRITICAL,
        wait="5m",
        # In the chart with shards alone, where ServingPoolTwoLeaders is left out.
        expr=(
            'sum(servingpool_owned_pools{namespace="$(NAMESPACE)"}) != max(servingpool_pools{namespace="$(NAMESPACE)"})'
        ),
        summary="Not every pool has one ServingPool operator.",
        description="The operators in $(NAMESPACE) write for {{ $value | humanize }} pools. There are more, or fewer.",
        effect="Too few: replicas of some pools stay as they are. Too many: two operators set those of one pool.",
        action=(
            "Compare the operators' Leases with their pods: kubectl -n $(NAMESPACE) get leases -l "
            "servingpool.dev/shards-of=$(RELEASE) and get pods. The log of a pod without a Lease says why. "
            "If they agree, restart the pods one by one: each gives its Lease back when it stops."
        ),
    ),
    Alert(
        name="ServingPoolLoopLate",
        group=OPERATOR,
        wait="10m",
        expr=(
            "histogram_quantile(0.9, sum by (le) "
            '(rate(servingpool_tick_lateness_seconds_bucket{namespace="$(NAMESPACE)"}[10m]))) > $(THRESHOLD)'
        ),
        threshold=10,
        summary="The ServingPool operator falls behind.",
        description="1 in 10 decision rounds starts more than {{ $value | humanizeDuration }} late.",
        effect="All pools react later to a change of load.",
        action=(
            "Compare servingpool_tick_duration_seconds with the interval ($(INTERVAL)). Slow queries: check "
            "Prometheus, or raise the backend's concurrency. CPU throttling: raise the limit; 1,000 pools take 0.3"
            " cores. Otherwise raise the interval."
        ),
    ),
    Alert(
        name="ServingPoolTurnFailed",
        group=OPERATOR,
        wait="0s",
        expr='increase(servingpool_pool_failures_total{namespace="$(NAMESPACE)"}[15m]) > $(THRESHOLD)',
        threshold=0,
        summary="Processing a pool ended in an exception.",
        description="{{ $value | humanize }} pools failed within 15 minutes; their replicas stayed as they were.",
        effect="The replicas of these pools do not follow the load.",
        action="The operator's log names the pool beside the traceback. Report it with the pool's manifest.",
    ),
    Alert(
        name="ServingPoolWritesRefused",
        group=OPERATOR,
        wait="0s",
        # ServingPoolNotReady covers a refused scale, by pool.
        expr=(
            "sum by (kind) (increase("
            'servingpool_api_write_failures_total{namespace="$(NAMESPACE)",kind!="scale"}[15m])) > $(THRESHOLD)'
        ),
        threshold=3,
        summary="The API server does not accept the operator's writes.",
        description="{{ $value | humanize }} writes of kind {{ $labels.kind }} failed within 15 minutes.",
        effect="Status or events are out of date (status, event), or a scale-down may remove busy pods (cost).",
        action="Read the API server's answer in the operator's log. Forbidden: compare its rights with the chart's.",
    ),
    Alert(
        name="ServingPoolNotReady",
        wait="5m",
        # ServingPoolTurnFailed covers InternalError.
        expr=_in_condition('type="Ready",status="False",reason!="InternalError"'),
        summary="Pool {{ $labels.namespace }}/{{ $labels.pool }} is not Ready: {{ $labels.reason }}.",
        description="The Ready condition is False, so the replicas do not follow the load.",
        effect="Requests may miss the SLO when traffic rises; GPUs stay idle when it falls.",
        action="kubectl describe sp {{ $labels.pool }} -n {{ $labels.namespace }} says under Ready what is wrong.",
        state_of={
            Reason.REPLICAS_CONTESTED: (
                "The replicas follow the load only until another program resets them. Then the fleet has the other "
                "program's size, and requests may miss the SLO."
            ),
            Reason.UNSCHEDULABLE: f"Replicas were ordered, and no node takes their pods. {SMALLER}",
            Reason.FAILED_CREATE: f"Replicas were ordered, and the API server refuses their pods. {SMALLER}",
            Reason.SCALING_DISABLED: "The target has 0 replicas, so nothing serves the model and nothing is scaled.",
            Reason.TARGET_ENDING: "The target is being deleted, so it is not scaled. Its replicas go with it.",
            Reason.POOL_ENDING: "The pool is being deleted, so nothing is scaled. Replicas stay as they are.",
        },
        action_of={
            each: each.action
            for each in Reason
            if (each.type, each.status) == (ConditionType.READY, Truth.FALSE) and each is not Reason.INTERNAL_ERROR
        },
    ),
    Alert(
        name="ServingPoolSloBurnsFast",
        severity=CRITICAL,
        wait="2m",
        expr=_burns(HOUR, f"({FIVE_MINUTES} or {HOUR})", enough=ENOUGH),
        threshold=14.4,
        summary="Pool {{ $labels.namespace }}/{{ $labels.pool }} misses its SLO for many users now.",
        description=(
            "{{ $value | humanizePercentage }} of the last hour's requests missed the SLO. The last 5 minutes are as "
            "bad. It is at least $(THRESHOLD) times what the objective allows, or 80% of all requests."
        ),
        effect="Users wait longer than promised for the first token, or between tokens.",
        action=SLO_ACTION,
    ),
    Alert(
        name="ServingPoolSloBurns",
        severity=CRITICAL,
        wait="15m",
        expr=_burns(_mean(HOUR, "6h:5m", HOUR), _mean(FIVE_MINUTES, "30m:5m", HOUR), enough=ENOUGH),
        threshold=6,
        summary="Pool {{ $labels.namespace }}/{{ $labels.pool }} has missed its SLO for hours.",
        description=(
            "{{ $value | humanizePercentage }} of requests missed the SLO in the last 6 hours. The last 30 minutes are "
            "as bad. It is at least $(THRESHOLD) times what the objective allows, or 80% of all requests."
        ),
        effect="Users wait longer than promised for the first token, or between tokens.",
        action=SLO_ACTION,
    ),
    Alert(
        name="ServingPoolSloMissed",
        wait="1h",
        expr=_burns(_mean(HOUR, "1d:15m", HOUR), HOUR),
        threshold=1,
        summary="Pool {{ $labels.namespace }}/{{ $labels.pool }} misses its SLO.",
        description="{{ $value | humanizePercentage }} of a day's requests missed the SLO. The objective allows fewer.",
        effect="Some users wait longer than promised for the first token, or between tokens.",
        action=SLO_ACTION,
    ),
    Alert(
        name="ServingPoolDeadline",
        wait="1m",
        expr=_in_condition('type="SLOMet",reason=~"DeadlineAtRisk|DeadlineMissed"'),
        summary="Pool {{ $labels.namespace }}/{{ $labels.pool }} may miss a deadline: {{ $labels.reason }}.",
        description="What is due first needs more replicas than can be had, or was not done by its deadline.",
        effect="Batch work is done late.",
        action="servingpool explain {{ $labels.pool }} -n {{ $labels.namespace }} names what is due and the limit.",
        action_of={one: one.action for one in (Reason.DEADLINE_AT_RISK, Reason.DEADLINE_MISSED)},
    ),
    Alert(
        name="ServingPoolHeldBelowNeed",
        wait="15m",
        # ServingPoolNotReady covers pods without a node, here and in the next alert; ServingPoolTargetNotDelivering
        # those of one of several targets; ServingPoolDeadline those of a batch, which may wait.
        expr=_with_mode(
            # Of several targets the need is counted in replicas of one of them, so each counts by its speed.
            "(max by (namespace, pool) (servingpool_needed_replicas) > "
            "(1.01 * sum by (namespace, pool) (max by (namespace, pool, target) (servingpool_target_desired_replicas) "
            "* max by (namespace, pool, target) (servingpool_target_speed_ratio)) "
            "or max by (namespace, pool) (servingpool_desired_replicas)) "
            'or max by (namespace, pool) (servingpool_role_figure{figure="need"} > ignoring(figure) '
            '1.01 * servingpool_role_figure{figure="capacity"})) unless max by (namespace, pool) '
            '(servingpool_condition{reason=~"Unschedulable|DeadlinesHold"} or '
            'servingpool_condition{type="TargetsAvailable",status="False"})'
        ),
        summary="Pool {{ $labels.namespace }}/{{ $labels.pool }} is held below its need.",
        description="The load needs {{ $value | humanize }} replicas, and a limit allows fewer.",
        effect="Requests miss the SLO, or soon will.",
        action="kubectl get sp shows the limit in column Why. If it is max, raise targets[].max if there are GPUs.",
    ),
    Alert(
        name="ServingPoolReplicasNotReady",
        wait="30m",
        expr=_with_mode(
            "max by (namespace, pool) (servingpool_requested_replicas) > max by (namespace, pool) "
            "(servingpool_ready_replicas) unless max by (namespace, pool) "
            '(servingpool_condition{type="Ready",reason="Unschedulable"} or '
            'servingpool_condition{type="TargetsAvailable",status="False"})'
        ),
        summary="Pool {{ $labels.namespace }}/{{ $labels.pool }} waits for replicas.",
        description="{{ $value | humanize }} replicas are requested, and some were not Ready within $(FOR).",
        effect="The fleet is smaller than requested, so requests may miss the SLO.",
        action=(
            "kubectl describe the pods that are not Ready: no node with free GPUs, an image that cannot be pulled, "
            "or a model that does not load. The operator adds no replicas while pods are unschedulable."
        ),
    ),
    Alert(
        name="ServingPoolTargetNotDelivering",
        wait="15m",
        expr=_with_mode('max by (namespace, pool) (servingpool_condition{type="TargetsAvailable",status="False"})'),
        summary="A target of pool {{ $labels.namespace }}/{{ $labels.pool }} does not deliver replicas.",
        description="For $(FOR) a target of the pool has had fewer replicas than were requested.",
        effect="Other targets replace it, perhaps at a higher price. If none is left, requests may miss the SLO.",
        action=(
            "kubectl describe sp {{ $labels.pool }} -n {{ $labels.namespace }} names the target under "
            "TargetsAvailable. Add nodes or quota for it, or lower its max."
        ),
    ),
    Alert(
        name="ServingPoolWaitsForGpus",
        wait="30m",
        expr=_with_mode(
            "max by (budget, namespace, pool) (servingpool_gpu_budget_due_gpus) - "
            "max by (budget, namespace, pool) (servingpool_gpu_budget_held_gpus) > 0"
        ),
        summary="Pool {{ $labels.namespace }}/{{ $labels.pool }} waits for GPUs of GPUBudget {{ $labels.budget }}.",
        description="The budget grants it {{ $value | humanize }} more GPUs. Other pods still hold them after $(FOR).",
        effect="The pool is smaller than its share of the budget, so requests may miss the SLO.",
        action=(
            "servingpool explain {{ $labels.pool }} -n {{ $labels.namespace }} names whose GPUs the pool waits for. "
            "Check whether those pods drain for long or do not end: kubectl get pods. ServingPoolHeldBelowNeed covers "
            "pools whose due is less than their need."
        ),
    ),
    Alert(
        name="ServingPoolBlind",
        wait="10m",
        expr=_in_condition('type="MetricsAvailable",status="False"'),
        summary="Pool {{ $labels.namespace }}/{{ $labels.pool }} has no metrics to decide on: {{ $labels.reason }}.",
        description="The need is unknown, so replicas stay as they are, unless a queue is seen to grow.",
        effect="Requests may miss the SLO when traffic rises.",
        action=(
            "The pool's MetricsAvailable condition says why: Prometheus cannot be reached, the pods are not "
            "scraped, or spec.model is not the engine's model_name."
        ),
    ),
)
