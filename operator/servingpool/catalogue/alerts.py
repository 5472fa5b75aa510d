"""The chart's alerts. `make generate` writes them into the chart, and docs/operate/alerts.md.

`$(NAMESPACE)`, `$(RELEASE)`, `$(INTERVAL)` and `$(LEASE_DURATION)` stand for what Helm knows.
"""

from __future__ import annotations

from dataclasses import dataclass

OPERATOR, POOLS = "servingpool-operator", "servingpool-pools"
"""Rule groups."""
CRITICAL, WARNING = "critical", "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert. Texts may use Prometheus' templates, such as {{ $labels.pool }}."""

    name: str
    group: str
    severity: str
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
    """Remedy."""


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
        action=(
            "Set leaderElection.enabled, or replicas to 1. If it is on, restart all pods of the operator: each "
            "gives its Lease back when it stops."
        ),
    ),
    Alert(
        name="ServingPoolLoopLate",
        group=OPERATOR,
        severity=WARNING,
        wait="10m",
        expr=(
            "histogram_quantile(0.9, sum by (le) "
            '(rate(servingpool_tick_lateness_seconds_bucket{namespace="$(NAMESPACE)"}[10m]))) > 10'
        ),
        summary="The ServingPool operator falls behind.",
        description="One tick in ten begins more than {{ $value | humanizeDuration }} late.",
        effect="All pools react later to a change of load.",
        action=(
            "Compare servingpool_tick_duration_seconds with the interval ($(INTERVAL)). Slow queries: check "
            "Prometheus, or raise the backend's concurrency. CPU throttling: raise the limit; 1,000 pools take 0.13"
            " cores. Otherwise raise the interval."
        ),
    ),
    Alert(
        name="ServingPoolTurnFailed",
        group=OPERATOR,
        severity=WARNING,
        wait="0s",
        expr='increase(servingpool_pool_failures_total{namespace="$(NAMESPACE)"}[15m]) > 0',
        summary="Processing a pool ended in an exception.",
        description="{{ $value | humanize }} pools failed within 15 minutes; their replicas stayed as they were.",
        effect="The replicas of these pools do not follow the load.",
        action="The operator's log names the pool beside the traceback. Report it with the pool's manifest.",
    ),
    Alert(
        name="ServingPoolWritesRefused",
        group=OPERATOR,
        severity=WARNING,
        wait="0s",
        # ServingPoolNotReady covers a refused scale, by pool.
        expr=(
            "sum by (kind) "
            '(increase(servingpool_api_write_failures_total{namespace="$(NAMESPACE)",kind!="scale"}[15m])) > 3'
        ),
        summary="The API server does not accept the operator's writes.",
        description="{{ $value | humanize }} writes of kind {{ $labels.kind }} failed within 15 minutes.",
        effect="Status or events are out of date (status, event), or a scale-down may remove busy pods (cost).",
        action=(
            "Read the API server's answer in the operator's log. Forbidden: compare the operator's rights with the "
            "chart's."
        ),
    ),
    Alert(
        name="ServingPoolNotReady",
        group=POOLS,
        severity=WARNING,
        wait="5m",
        # ServingPoolTurnFailed covers InternalError.
        expr=(
            "max by (namespace, pool, reason) "
            '(servingpool_condition{type="Ready",status="False",reason!="InternalError"})'
        ),
        summary="Pool {{ $labels.namespace }}/{{ $labels.pool }} is not Ready: {{ $labels.reason }}.",
        description="The Ready condition is False, so the replicas do not follow the load.",
        effect="Requests may miss the SLO when traffic rises; GPUs stay idle when it falls.",
        action=(
            "kubectl describe sp {{ $labels.pool }} -n {{ $labels.namespace }} says under Ready what blocks it. "
            "InvalidSpec, UnknownBackend, UnknownEngine, UnknownGateway, TargetNotFound: correct the manifest. "
            "UnknownKind, NoScaleSubresource, InvalidSelector, PodsNotGrouped, OwnedByParent: name another target. "
            "ForbiddenGetScale: add the kind to extraTargets. FailedGetScale: check the API server. "
            "AmbiguousOwner, OwnedByHPA, OwnedByKEDA: delete the other scaler. FailedUpdateScale: a missing right, "
            "a webhook or a quota refuses the scale. ReplicasContested: another program sets spec.replicas. "
            "ScalingDisabled: the target has 0 replicas. Unschedulable: no node has room. "
            "FailedCreate: a quota refuses the pods. "
            "TargetEnding, PoolEnding: it is being deleted; see its finalizers if it stays."
        ),
    ),
    Alert(
        name="ServingPoolSloMissed",
        group=POOLS,
        severity=WARNING,
        wait="10m",
        expr=(
            "max by (namespace, pool) (servingpool_attainment_ratio) < max by (namespace, pool) "
            "(servingpool_objective_ratio)"
        ),
        summary="Pool {{ $labels.namespace }}/{{ $labels.pool }} misses its SLO.",
        description=(
            "Only {{ $value | humanizePercentage }} of the last hour's requests met the SLO, fewer than the spec "
            "asks for."
        ),
        effect="Users wait longer than promised for the first token, or between tokens.",
        action=(
            "Run servingpool explain on the pool: it shows what limits the replicas. At max: raise max, or relax "
            "the SLO. If its reason says that no replica count meets the SLO, or names prefix caches, more replicas "
            "do not help: see the page of symptoms. After a step in traffic the share recovers with time. In mode "
            "Recommend nothing is scaled."
        ),
    ),
    Alert(
        name="ServingPoolHeldBelowNeed",
        group=POOLS,
        severity=WARNING,
        wait="15m",
        # ServingPoolNotReady covers pods without a node, here and in the next alert; ServingPoolTargetNotDelivering
        # those of one of several targets.
        expr=(
            # Of several targets the need is counted in replicas of one of them, so each counts by its speed.
            "(max by (namespace, pool) (servingpool_needed_replicas) > "
            "(1.01 * sum by (namespace, pool) (max by (namespace, pool, target) (servingpool_target_desired_replicas) "
            "* max by (namespace, pool, target) (servingpool_target_speed_ratio)) "
            "or max by (namespace, pool) (servingpool_desired_replicas)) "
            'or max by (namespace, pool) (servingpool_role_figure{figure="need"} > ignoring(figure) '
            '1.01 * servingpool_role_figure{figure="capacity"})) unless max by (namespace, pool) '
            '(servingpool_condition{type="Ready",reason="Unschedulable"} or '
            'servingpool_condition{type="TargetsAvailable",status="False"})'
        ),
        summary="Pool {{ $labels.namespace }}/{{ $labels.pool }} is held below its need.",
        description="The load needs {{ $value | humanize }} replicas, and a limit allows fewer.",
        effect="Requests miss the SLO, or soon will.",
        action=(
            "kubectl get sp shows the limit in column Why; most often it is max. Raise targets[].max if there are GPUs."
        ),
    ),
    Alert(
        name="ServingPoolReplicasNotReady",
        group=POOLS,
        severity=WARNING,
        wait="30m",
        expr=(
            "max by (namespace, pool) (servingpool_requested_replicas) > max by (namespace, pool) "
            "(servingpool_ready_replicas) unless max by (namespace, pool) "
            '(servingpool_condition{type="Ready",reason="Unschedulable"} or '
            'servingpool_condition{type="TargetsAvailable",status="False"})'
        ),
        summary="Pool {{ $labels.namespace }}/{{ $labels.pool }} waits for replicas.",
        description="{{ $value | humanize }} replicas are requested, and some were not Ready within 30 minutes.",
        effect="The fleet is smaller than requested, so requests may miss the SLO.",
        action=(
            "kubectl describe the pods that are not Ready: no node with free GPUs, an image that cannot be pulled, "
            "or a model that does not load. The operator adds no replicas while pods are unschedulable."
        ),
    ),
    Alert(
        name="ServingPoolTargetNotDelivering",
        group=POOLS,
        severity=WARNING,
        wait="15m",
        expr='max by (namespace, pool) (servingpool_condition{type="TargetsAvailable",status="False"})',
        summary="A target of pool {{ $labels.namespace }}/{{ $labels.pool }} does not deliver replicas.",
        description="For 15 minutes a target of the pool has had fewer replicas than were requested.",
        effect="Other targets replace it, perhaps at a higher price. If none is left, requests may miss the SLO.",
        action=(
            "kubectl describe sp {{ $labels.pool }} -n {{ $labels.namespace }} names the target under "
            "TargetsAvailable. Add nodes or quota for it, or lower its max."
        ),
    ),
    Alert(
        name="ServingPoolWaitsForGpus",
        group=POOLS,
        severity=WARNING,
        wait="30m",
        expr=(
            "max by (budget, namespace, pool) (servingpool_gpu_budget_due_gpus) > "
            "max by (budget, namespace, pool) (servingpool_gpu_budget_held_gpus)"
        ),
        summary="Pool {{ $labels.namespace }}/{{ $labels.pool }} waits for GPUs of GPUBudget {{ $labels.budget }}.",
        description="{{ $value | humanize }} GPUs are the pool's due, and it has not got them for 30 minutes.",
        effect="The pool is smaller than its share of the budget, so requests may miss the SLO.",
        action=(
            "servingpool explain on the pool names whose GPUs it waits for. Check whether those pods drain for long or "
            "do not end: kubectl get pods. ServingPoolHeldBelowNeed covers pools whose due is less than their need."
        ),
    ),
    Alert(
        name="ServingPoolBlind",
        group=POOLS,
        severity=WARNING,
        wait="10m",
        expr='max by (namespace, pool, reason) (servingpool_condition{type="MetricsAvailable",status="False"})',
        summary="Pool {{ $labels.namespace }}/{{ $labels.pool }} has no metrics to decide on: {{ $labels.reason }}.",
        description="The need is unknown, so replicas stay as they are, unless a queue is seen to grow.",
        effect="Requests may miss the SLO when traffic rises.",
        action=(
            "The pool's MetricsAvailable condition says why: Prometheus cannot be reached, the pods are not "
            "scraped, or spec.model is not the engine's model_name."
        ),
    ),
)
