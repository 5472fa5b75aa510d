"""The reasons of conditions. HPA's word wherever it has one.

A reason belongs to one condition type and status. Where a pool cannot be judged at all, its other conditions turn
Unknown with the reason and the message of `Ready`.
"""

from __future__ import annotations

from typing import Self

from servingpool.catalogue.condition_types import ConditionType, Truth
from servingpool.catalogue.template import Entry, Templated

_READY = ConditionType.READY, Truth.TRUE
_NOT_READY = ConditionType.READY, Truth.FALSE
_METRICS = ConditionType.METRICS_AVAILABLE, Truth.TRUE
_NO_METRICS = ConditionType.METRICS_AVAILABLE, Truth.FALSE
_MISSED = ConditionType.SLO_MET, Truth.FALSE
_LIMITED = ConditionType.SCALING_LIMITED, Truth.TRUE
_NO_DRAIN = ConditionType.DRAIN_READY, Truth.FALSE


class Reason(Templated, Entry):
    """Why a condition is as it is."""

    type: ConditionType
    status: Truth
    template: str
    meaning: str
    action: str

    @staticmethod
    def filled(
        of: tuple[ConditionType, Truth], template: str, meaning: str, action: str = "Nothing."
    ) -> tuple[object, ...]:
        """The type and the status of the condition, what the entry says, and nothing to do where it says no action."""
        return (*of, template, meaning, action)

    def said(self, **given: object) -> tuple[Self, str]:
        """The reason and its message. ValueError where a field is missing or unknown."""
        return self, self.message(**given)

    # Ready
    SUCCEEDED_GET_SCALE = (
        "SucceededGetScale",
        _READY,
        "{target} can be scaled.",
        "The pool is valid and nothing blocks scaling.",
    )
    RECOMMENDING = (
        "Recommending",
        _READY,
        "Recommend mode: computes a replica count and does not apply it.",
        "Replicas are never changed. The message adds what would block or limit mode Auto.",
        "Set spec.mode to Auto when you trust the recommendations.",
    )
    PAUSED = (
        "Paused",
        _READY,
        "Paused mode: observes and does not scale.",
        "Replicas are never changed. The message adds what would block or limit mode Auto.",
        "Set spec.mode to Auto to resume.",
    )
    ROLLOUT_IN_PROGRESS = (
        "RolloutInProgress",
        _READY,
        "Rollout in progress: scale-down is blocked until it ends.",
        "The target replaces its pods. Scale-up continues.",
        "Nothing. If it does not end, check the rollout: kubectl rollout status.",
    )
    WAITING_FOR_NODE = (
        "WaitingForNode",
        _READY,
        "{pods} unschedulable; waiting for a node. The scheduler says: {scheduler}.",
        "A cluster autoscaler adds nodes because pods are pending, so this is normal after a scale-up.",
        "Wait if a cluster autoscaler adds nodes. Else uncordon, free or add nodes, by what the scheduler says.",
    )
    SCHEDULING_GATED = (
        "SchedulingGated",
        _READY,
        "{gated} of {replicas} pods wait for a scheduling gate; they are requested and hold their GPUs.",
        "A gate such as Kueue's keeps pods from the scheduler until a quota admits them.",
        "Nothing at first. If it lasts, ask the gate's owner: kubectl describe the pod names it.",
    )
    READING_HISTORY = (
        "ReadingHistory",
        (ConditionType.READY, Truth.UNKNOWN),
        "Loading this pool's history from Prometheus; no decision until that is done.",
        "The pool is new, or the operator has restarted. Many new pools load one after another.",
        "Wait. The operator starts without history if Prometheus fails three times.",
    )
    INVALID_SPEC = (
        "InvalidSpec",
        _NOT_READY,
        "Invalid spec, so replicas stay as they are: {problems}",
        "The pool was stored without the CRD's validation, or by another version of the CRD.",
        "Correct the fields that the message names.",
    )
    TARGET_NOT_FOUND = (
        "TargetNotFound",
        _NOT_READY,
        "{target} does not exist in namespace {namespace}.",
        "There is nothing to scale. A pool scales an object in its own namespace.",
        "Create the object, or correct spec.targets[].name.",
    )
    TARGET_ENDING = (
        "TargetEnding",
        _NOT_READY,
        "{target} is being deleted, so it is not scaled.",
        "Its deletionTimestamp is set. It may stay for long where a finalizer or its pods hold it.",
        "Nothing, if that is wanted. Else see its finalizers, and create it again once it is gone.",
    )
    POOL_ENDING = (
        "PoolEnding",
        _NOT_READY,
        "The pool is being deleted, so nothing is scaled.",
        "Its deletionTimestamp is set, and a finalizer still holds it. Replicas stay as they are.",
        "Nothing. If it does not end, see metadata.finalizers.",
    )
    UNKNOWN_KIND = (
        "UnknownKind",
        _NOT_READY,
        "The API server has no kind {kind}. Install its CRD, or correct spec.targets[].",
        "No API group has this version and kind. A CRD that is installed later is found within a minute.",
        "Install the CRD, or correct apiVersion and kind of spec.targets[].",
    )
    NO_SCALE_SUBRESOURCE = (
        "NoScaleSubresource",
        _NOT_READY,
        "{kind} has no scale subresource in namespaces, so it cannot be scaled.",
        "Replicas are set through the scale subresource only, as by HPA and kubectl scale.",
        "Name the workload that has one, see docs/reference/api.md.",
    )
    FORBIDDEN_GET_SCALE = (
        "ForbiddenGetScale",
        _NOT_READY,
        "No permission to read {target}. Add {kind} to the chart's extraTargets.",
        "The operator may scale Deployments and StatefulSets. Other kinds need rights.",
        "Add the kind's API group and resource to the chart's value extraTargets.",
    )
    INVALID_SELECTOR = (
        "InvalidSelector",
        _NOT_READY,
        "The scale subresource of {target} names no pods: its status.selector is missing.",
        "Without a selector the target's pods are unknown. A new object has one once its controller has seen it.",
        "Wait for the target's controller. If it never sets one, the kind cannot be scaled by its pods' metrics.",
    )
    FAILED_GET_SCALE = (
        "FailedGetScale",
        _NOT_READY,
        "The scale of {target} cannot be read: {error}.",
        "The API server did not answer for two minutes, or refused.",
        "Check the API server, and the CRD's replica paths.",
    )
    UNKNOWN_BACKEND = (
        "UnknownBackend",
        _NOT_READY,
        "spec.metrics.backend '{backend}' cannot be used: {detail}.",
        "The operator's configuration has no such Prometheus, or does not allow it for this namespace.",
        "Correct spec.metrics.backend, or add the backend or the namespace to the operator's configuration.",
    )
    UNKNOWN_ENGINE = (
        "UnknownEngine",
        _NOT_READY,
        "spec.engine '{engine}' cannot be used: {detail}.",
        "The operator has no profile of this engine's metrics, or the engine exports too little.",
        "Correct spec.engine, or describe the engine under engines in the operator's configuration.",
    )
    UNKNOWN_GATEWAY = (
        "UnknownGateway",
        _NOT_READY,
        "spec.metrics.gateway.name '{gateway}' is unknown. Known gateways are {known}.",
        "The operator has no profile of this gateway's metrics.",
        "Correct spec.metrics.gateway.name, or describe it under gateways in the operator's configuration.",
    )
    AMBIGUOUS_OWNER = (
        "AmbiguousOwner",
        _NOT_READY,
        "The older ServingPool '{owner}' scales {target} already. Delete this pool, or set its mode to Recommend.",
        "Two pools name one target. The older one scales it.",
        "Delete the younger pool, or set its mode to Recommend.",
    )
    OWNED_BY_HPA = (
        "OwnedByHPA",
        _NOT_READY,
        "HorizontalPodAutoscaler '{name}' scales {target}; delete it first.",
        "Two autoscalers would work against each other, so the operator does not scale.",
        "Run servingpool adopt, which keeps a copy. Or delete the HorizontalPodAutoscaler.",
    )
    OWNED_BY_KEDA = (
        "OwnedByKEDA",
        _NOT_READY,
        "ScaledObject '{name}' scales {target}; pause or delete it first.",
        "Two autoscalers would work against each other, so the operator does not scale.",
        "Run servingpool adopt, which pauses it. Or delete the ScaledObject.",
    )
    OWNED_BY_PARENT = (
        "OwnedByParent",
        _NOT_READY,
        "{parent} sets the replicas of {target}. {remedy}",
        "The target's ownerReferences name a controller. It would set the replicas back.",
        "Change the parent as the end of the message says, or delete the pool.",
    )
    PODS_NOT_GROUPED = (
        "PodsNotGrouped",
        _NOT_READY,
        "{target} has {pods} pods for {replicas} replicas, and no known label says which of them are one replica.",
        "A replica of this kind is a group of pods. The operator knows the labels of common kinds only.",
        "Name a target that the table in docs/reference/api.md lists, or one whose replica is a pod.",
    )
    SCALING_DISABLED = (
        "ScalingDisabled",
        _NOT_READY,
        "{target} has 0 replicas, so scaling is off. Scale it to {min} to resume.",
        "Somebody set 0 replicas by hand. As with HPA, that switches scaling off.",
        "Scale the target to min or more.",
    )
    REPLICAS_CONTESTED = (
        "ReplicasContested",
        _NOT_READY,
        "{program} keeps resetting spec.replicas (last {ordered} -> {found} at {at}). Make it ignore that field.",
        "Another program, such as a GitOps tool, sets the replicas back. The operator keeps scaling, as HPA does.",
        "Remove spec.replicas from the manifest, make the program ignore that field, or stop who scales by hand.",
    )
    UNSCHEDULABLE = (
        "Unschedulable",
        _NOT_READY,
        "{pods} unschedulable; no more are added. The scheduler says: {scheduler}.",
        "No node came for these pods within the usual time. More replicas would not help.",
        "Uncordon, free or add nodes, by what the scheduler says; or lower targets[].max.",
    )
    FAILED_CREATE = (
        "FailedCreate",
        _NOT_READY,
        "{missing} of {replicas} replicas have no pod, because the API server refuses it: {error}.",
        "A ResourceQuota, LimitRange or admission webhook refuses the pods. What stands keeps serving.",
        "Raise the quota that the message names. The controller tries again within 17 minutes, or once annotated.",
    )
    FAILED_UPDATE_SCALE = (
        "FailedUpdateScale",
        _NOT_READY,
        "{error}.",
        "The API server did not accept the new replica count, or changed it. The operator retries at every tick.",
        "Check the operator's RBAC rights, admission webhooks and quotas.",
    )
    INTERNAL_ERROR = (
        "InternalError",
        _NOT_READY,
        "Internal error ({error}): replicas stay as they are. The operator's log has the traceback.",
        "A defect of the operator. Other pools are not affected.",
        "Report the traceback together with the pool's manifest.",
    )
    # MetricsAvailable
    VALID_METRICS = (
        "ValidMetrics",
        _METRICS,
        "All {ready} ready replicas are scraped.",
        "Every ready replica has fresh and complete metrics.",
    )
    METERED_AT_GATEWAY = (
        "MeteredAtGateway",
        _METRICS,
        "The engine exports no metrics: each of {ready} replicas is taken to carry an equal share of the gateway's.",
        "The sums are what the gateway counted. What one replica does, and how many requests wait, are estimates.",
    )
    PARTIAL_METRICS = (
        "PartialMetrics",
        _METRICS,
        "{detail}. Scale-down is blocked until all metrics are read.",
        "Some replicas or metrics are missing, and the status is True: kubectl wait for this condition passes.",
        "Check the scrape of the pods that the message names.",
    )
    NO_PROGRESS = (
        "NoProgress",
        _METRICS,
        "No counter of {replicas} moves: the gauges are not believed, and it counts as serving nothing.",
        "An engine hangs, or its gauges were left behind by aborted requests. If some wait, one more replica is kept.",
        "Restart the pod that the message names. A scale-down of a Deployment removes it first.",
    )
    DOUBLED_SERIES = (
        "DoubledSeries",
        _METRICS,
        "{pods} are scraped at several ports. Select one by spec.metrics.matchLabels, or give each engine a pod.",
        "Prometheus scrapes a pod at several ports, each with the engine's series. The greatest of each figure counts.",
        "Select one port by spec.metrics.matchLabels, such as its container. Or give each engine a pod.",
    )
    UNREADABLE_SERIES = (
        "UnreadableSeries",
        _METRICS,
        "{detail}. Those series are left out.",
        "Pods export series that nobody can read, such as a bucket whose bound is no number. All others are used.",
        "Correct what these pods export, or drop those series by metricRelabelings of the monitor.",
    )
    FAILED_GET_METRICS = (
        "FailedGetMetrics",
        _NO_METRICS,
        "{detail}. Replicas stay as they are.",
        "No usable metrics. Only min, max and a queue that is seen to grow (QueueGrows) change replicas.",
        "Check that Prometheus is reachable and that it scrapes the pods.",
    )
    NO_SERIES_FOR_MODEL = (
        "NoSeriesForModel",
        _NO_METRICS,
        "{detail}. Replicas stay as they are.",
        "The pods are scraped, but their series name another model.",
        "Set spec.model to the name in the message, such as vLLM's --served-model-name.",
    )
    NOT_SCRAPED = (
        "NotScraped",
        _NO_METRICS,
        "{detail}. Replicas stay as they are. Add a PodMonitor that selects them.",
        "Prometheus has no target for the pods.",
        "Add a PodMonitor or ServiceMonitor that selects the pods.",
    )
    SCRAPE_FAILED = (
        "ScrapeFailed",
        _NO_METRICS,
        "{detail}. Replicas stay as they are.",
        "Prometheus has the pods as targets, and each scrape fails: wrong path or port, 401, or no Prometheus format.",
        "servingpool check KIND/NAME tells the error, as Prometheus's page of targets does.",
    )
    NO_ENGINE_SERIES = (
        "NoEngineSeries",
        _NO_METRICS,
        "{detail}. Replicas stay as they are. Switch the engine's metrics on.",
        "The pods are scraped, but export no metrics of an engine.",
        "Switch the engine's metrics on, and scrape the engine's own port and path.",
    )
    WRONG_ENGINE = (
        "WrongEngine",
        _NO_METRICS,
        "{detail}. Replicas stay as they are. Correct spec.engine.",
        "The pods export the metrics of another engine.",
        "Correct spec.engine.",
    )
    WRONG_LABELS = (
        "WrongLabels",
        _NO_METRICS,
        "{detail}. Replicas stay as they are. Correct that label.",
        "Prometheus has the engine's series, with labels that do not lead to the pool's pods.",
        "Correct the label that the message names: in the scrape, spec.metrics.matchLabels or backends[].labels.",
    )
    AMBIGUOUS_GAUGES = (
        "AmbiguousGauges",
        _NO_METRICS,
        "{detail}. Replicas stay as they are. Name that label in sumOver or copiesBy of the profile.",
        "One scrape has several series of a gauge: parts of a total, or copies of it. The profile does not tell which.",
        "servingpool check KIND/NAME shows the label. A profile names it in sumOver for parts, in copiesBy for copies.",
    )
    NATIVE_HISTOGRAMS = (
        "NativeHistograms",
        _NO_METRICS,
        "{pods}: histograms are stored as native ones only. Set always_scrape_classic_histograms: true.",
        "The scrape sets convert_classic_histograms_to_nhcb, or the engine exports native histograms. Neither is read.",
        "Set always_scrape_classic_histograms: true in the scrape job (scrapeClassicHistograms of a PodMonitor).",
    )
    ROUTER_SERIES = (
        "RouterSeries",
        _NO_METRICS,
        "{detail}. Replicas stay as they are. Point spec.targets at the engines' workload.",
        "The pods are a router that re-exports a few of its engines' series, and none of its own load.",
        "Point spec.targets at the workload of the engines, and let Prometheus scrape their pods.",
    )
    MISSING_FIGURES = (
        "MissingFigures",
        _NO_METRICS,
        "{detail}. Replicas stay as they are. Keep them in the monitor{otherwise}.",
        "The pods are scraped. A monitor drops these series, or the engine is too old, lacks an option, or is unused.",
        "servingpool check KIND/NAME shows which series are there. The engines' page lists versions and options.",
    )
    NO_READY_REPLICAS = (
        "NoReadyReplicas",
        (ConditionType.METRICS_AVAILABLE, Truth.UNKNOWN),
        "No replica is ready, so there are no metrics to read.",
        "All replicas are starting, or the target has 0 replicas.",
        "Wait. If pods do not become ready, kubectl describe them.",
    )
    SCALED_TO_ZERO = (
        "ScaledToZero",
        _METRICS,
        "0 replicas, as intended: requests are read from gateway {gateway}.",
        "No request came for spec.behavior.idleAfter. There is no engine whose metrics could be read.",
        "Nothing. The first request at the gateway brings replicas.",
    )
    # SLOMet
    OBJECTIVE_MET = (
        "ObjectiveMet",
        (ConditionType.SLO_MET, Truth.TRUE),
        "{attained:.1f}% of the last hour's requests met the SLO; the objective is {objective:g}%.",
        "Attainment is at or above spec.slo.attainment.",
    )
    OBJECTIVE_MISSED = (
        "ObjectiveMissed",
        _MISSED,
        "The fleet has the {needed} that the traffic needs ({ready} ready), and requests are still late.",
        "The fleet is as large as the traffic seems to need. The operator learns from the misses and adds replicas.",
        "Wait two minutes. If it lasts, look for slow replicas, or a router that loads them unevenly.",
    )
    MAX_TOO_LOW = (
        "MaxTooLow",
        _MISSED,
        "The traffic needs {needed}; max allows {bound}. Raise max{enough}, or relax the SLO.",
        "The SLO is missed, and max keeps the fleet below what the traffic needs.",
        "Raise max as the message says if there are GPUs, or relax the SLO.",
    )
    REPLICAS_STARTING = (
        "ReplicasStarting",
        _MISSED,
        "{starting}.",
        "The SLO is missed, and the missing replicas are requested and not Ready yet.",
        "Nothing: wait for the time in the message. If a start takes longer than usual, kubectl describe its pod.",
    )
    RECOVERING = (
        "Recovering",
        _MISSED,
        "{calm} the load is within what the {ready} hold: the misses are from before.",
        "The SLO is missed over the last hour or 5 minutes, and is not missed any more.",
        "Nothing. It turns to ObjectiveMet as the misses leave the last hour.",
    )
    OBJECTIVE_UNATTAINABLE = (
        "ObjectiveUnattainable",
        _MISSED,
        "{why} So since {since}.",
        "The SLO is missed, and would be at any fleet size: even an engine with little to do is too slow.",
        "Relax the SLO to what the message names, or use faster replicas. More replicas do not help.",
    )
    SCALE_UP_HELD_BACK = (
        "ScaleUpHeldBack",
        _MISSED,
        ("The traffic needs {needed} ({ordered} desired, {ready} ready). {name} holds the fleet back: {why}. {action}"),
        "The SLO is missed. A limit, or a reason of Ready, keeps replicas from being requested or from becoming Ready.",
        "Remove what holds the scale-up back: the last sentence of the message says how.",
    )
    TOO_FEW_REQUESTS = (
        "TooFewRequests",
        (ConditionType.SLO_MET, Truth.UNKNOWN),
        "SLO attainment is unknown: {detail}.",
        "There was too little traffic to judge.",
    )
    CLIENT_LATENCY_UNKNOWN = (
        "ClientLatencyUnknown",
        (ConditionType.SLO_MET, Truth.UNKNOWN),
        "The client's time to first token is unknown: {detail}. slo.measuredAt is Gateway, so the SLO is not judged.",
        "The gateway does not tell the time to first token that the SLO is judged by.",
        "Correct spec.metrics.gateway or the gateway's scrape, or set slo.measuredAt to Engine.",
    )
    DEADLINES_HOLD = (
        "DeadlinesHold",
        (ConditionType.SLO_MET, Truth.TRUE),
        "{said}.",
        "All queued work is expected to be done by its deadline, also if a replica is lost.",
    )
    DEADLINE_AT_RISK = (
        "DeadlineAtRisk",
        _MISSED,
        "{amount:,.0f} {unit} due by {at} are at risk: they need more replicas than can be had; {said}.",
        "The reserve for slower requests and a lost replica is used up. In one cold start it is too late to add any.",
        "Raise max, the GPUBudget or the quota, whichever the last decision's limits name. Or set a later deadline.",
    )
    DEADLINE_MISSED = (
        "DeadlineMissed",
        _MISSED,
        "{amount:,.0f} {unit} were due by {at}, {late} ago, and still wait; {said}.",
        "Work was not done by its deadline.",
        "Nothing if it was once: it is done as soon as possible. Else raise max, budget or quota, or give more time.",
    )
    BACKLOG_UNKNOWN = (
        "BacklogUnknown",
        (ConditionType.SLO_MET, Truth.UNKNOWN),
        "{said}.",
        "The query on the backlog or on its time left has no answer that can be used. Nothing is scaled down.",
        "Run it in Prometheus: backlog must return one number from 0 on, remainingTime buckets by le of what waits.",
    )
    THROUGHPUT_HOLDS = (
        "ThroughputHolds",
        (ConditionType.SLO_MET, Truth.TRUE),
        "{said}.",
        "The replicas serve what comes, or the rate or the money of spec.throughput allows no more.",
    )
    THROUGHPUT_UNKNOWN = (
        "ThroughputUnknown",
        (ConditionType.SLO_MET, Truth.UNKNOWN),
        "What waits is unknown. {said}.",
        "The engines' queues or the gateway's cannot be read. Nothing is scaled down.",
        "See the condition MetricsAvailable.",
    )
    THROUGHPUT_SHORT = (
        "ThroughputShort",
        _MISSED,
        "Replicas that can be had serve {most:,.0f} output tokens/s. {said}.",
        "There is work for more replicas than can be had: spec.throughput asks for more.",
        "Raise max, the GPUBudget or the quota, whichever the last decision's limits name, or ask for less.",
    )
    # ScalingLimited
    DESIRED_WITHIN_RANGE = (
        "DesiredWithinRange",
        (ConditionType.SCALING_LIMITED, Truth.FALSE),
        "Neither min nor max limits the desired replicas.",
        "Neither min nor max changes the answer.",
    )
    TOO_FEW_REPLICAS = (
        "TooFewReplicas",
        _LIMITED,
        "The traffic needs {needed}; min is {bound}.",
        "The min in force (targets[].min, or a schedule's) is above the requirement.",
        "Lower min to save GPUs.",
    )
    PREFILL_PER_DECODE = (
        "PrefillPerDecode",
        _LIMITED,
        "The traffic needs {needed}; prefillPerDecode raises them to {bound} beside {replicas} for {role}.",
        "The role that the message begins with needs fewer replicas than spec.prefillPerDecode asks for.",
        "Widen prefillPerDecode to save GPUs: raise its max if decode is raised, lower its min if prefill is.",
    )
    OTHER_ROLE_RUNS = (
        "OtherRoleRuns",
        _LIMITED,
        "The traffic needs {needed}; raised to {bound} because {role} has {replicas}: neither role is at 0 alone.",
        "A request needs both roles, so both go to 0 together.",
        "Nothing. servingpool explain shows under the other role what keeps it.",
    )
    TOO_MANY_REPLICAS = (
        "TooManyReplicas",
        _LIMITED,
        "The traffic needs {needed}; max allows {bound}.",
        "The max in force (targets[].max, or a schedule's) is below the requirement, so the objective may be missed.",
        "Raise max if there are GPUs, or relax the objective.",
    )
    GPU_BUDGET = (
        "GPUBudget",
        _LIMITED,
        "The traffic needs {needed}. {said}.",
        "The GPUBudget that the pool shares allows fewer replicas than it needs, so requests may miss the SLO.",
        "Raise spec.gpus of the budget if there are GPUs, or the pool's priority. See kubectl get gb -o yaml.",
    )
    # Calibrating
    LEARNING = (
        "Learning",
        (ConditionType.CALIBRATING, Truth.TRUE),
        "Learning. No scale-down; scale-up only if requests are late or queued.",
        "The operator has seen too little of this pool, see spec.behavior.calibration.",
        "Wait, usually 5 minutes. It takes requests to learn from.",
    )
    LEARNED = (
        "Learned",
        (ConditionType.CALIBRATING, Truth.FALSE),
        "Engine and traffic are known; calibration has ended.",
        "The operator has seen enough to size the fleet.",
    )
    # DrainReady
    FINISHES_REQUESTS = (
        "FinishesRequests",
        (ConditionType.DRAIN_READY, Truth.TRUE),
        "A removed pod waits {pre_stop:g} s, drains for up to {timeout:g} s, and is killed after {grace:g} s.",
        "A scale-down loses no request that ends within the shutdown timeout.",
    )
    NO_SHUTDOWN_TIMEOUT = (
        "NoShutdownTimeout",
        _NO_DRAIN,
        "Scale-down aborts running requests{now}. Set vLLM's --shutdown-timeout.",
        "vLLM ends at once when its pod is removed.",
        "Add --shutdown-timeout (since vLLM 0.18) with the longest request's seconds to vLLM's arguments.",
    )
    PRE_STOP_TOO_SHORT = (
        "PreStopTooShort",
        _NO_DRAIN,
        "{hook}, so scale-down fails requests that still arrive. Sleep {least:g} s or more; 15 s is safe.",
        "Load balancers send requests to a pod for seconds after its removal begins.",
        "Add a preStop hook that sleeps 15 s.",
    )
    GRACE_PERIOD_TOO_SHORT = (
        "GracePeriodTooShort",
        _NO_DRAIN,
        "Kubernetes kills a pod after {grace:g} s; preStop {hook:g} s and drain {timeout:g} s need {needed:g} s.",
        "Kubernetes kills the pod before vLLM has finished, so long requests fail.",
        "Raise terminationGracePeriodSeconds to the needed number in the message.",
    )
    DRAIN_NOT_VISIBLE = (
        "DrainNotVisible",
        (ConditionType.DRAIN_READY, Truth.UNKNOWN),
        "Drain settings are not visible: {detail}.",
        "The pod template does not show how the engine ends.",
        "Check it yourself, or write the settings out in the pod template.",
    )
    # ZeroReady
    HOLDS_FIRST_REQUEST = (
        "HoldsFirstRequest",
        (ConditionType.ZERO_READY, Truth.TRUE),
        "At 0 replicas {gateway} {conduct}. A cold start takes {cold}, and up to {reaction} to notice. {counted}",
        "The first request after a time at 0 replicas waits, and is served.",
    )
    FIRST_REQUEST_FAILS = (
        "FirstRequestFails",
        (ConditionType.ZERO_READY, Truth.FALSE),
        "At 0 replicas {gateway} {conduct}. A cold start takes {cold} + {reaction}: first requests fail. {counted}",
        "The gateway refuses the first requests after a time at 0 replicas. They start replicas all the same.",
        "Have the gateway hold for longer and say so in spec.metrics.gateway.holdsFor, or let clients try again.",
    )
    FIRST_REQUEST_UNKNOWN = (
        "FirstRequestUnknown",
        (ConditionType.ZERO_READY, Truth.UNKNOWN),
        "At 0 replicas {gateway} {conduct}. Whether that is long enough is unknown: {detail}.",
        "No cold start was measured yet, or nothing says how long the gateway holds a request.",
        "Wait for a scale-up, or set spec.metrics.gateway.holdsFor.",
    )
    DEMAND_NOT_SHOWN = (
        "DemandNotShown",
        (ConditionType.ZERO_READY, Truth.UNKNOWN),
        "Demand is unknown, so the fleet does not stay at 0: {detail}.",
        "The gateway's series must be fresh, and of pods that are no replicas of the pool.",
        "Correct spec.metrics.gateway or the gateway's scrape: servingpool check KIND/NAME shows its figures.",
    )
    DEMAND_VANISHED = (
        "DemandVanished",
        (ConditionType.ZERO_READY, Truth.FALSE),
        "While the fleet was at 0, the metrics of gateway {gateway} vanished ({at}), so at least 1 replica stays.",
        "The gateway shows no requests without replicas, or was away for minutes.",
        "Use a gateway that shows them. To try again, set min to 1 and back to 0.",
    )
    # ObjectsRead
    ALL_OBJECTS_READ = (
        "AllObjectsRead",
        (ConditionType.OBJECTS_READ, Truth.TRUE),
        "All objects around the pool are read.",
        "Some were not before.",
    )
    UNREADABLE_OBJECTS = (
        "UnreadableObjects",
        (ConditionType.OBJECTS_READ, Truth.FALSE),
        "Left out, because not readable: {objects}.",
        "Objects of the namespace have fields that are not as expected, or too long. All others count as always.",
        "Correct or shorten these fields. servingpool_objects_left_out counts such objects.",
    )
    PODS_OF_OTHERS = (
        "PodsOfOthers",
        (ConditionType.OBJECTS_READ, Truth.FALSE),
        "The selector of {target} also matches pods of other controllers, and they count as replicas: {pods}.",
        "The kind does not own its pods, so only its selector tells them. Strangers make the fleet look larger.",
        "Narrow the selector, or change the labels of these pods.",
    )
    # TargetsAvailable
    TARGETS_DELIVER = (
        "TargetsDeliver",
        (ConditionType.TARGETS_AVAILABLE, Truth.TRUE),
        "Each of {targets} targets delivers its requested replicas, or is given time to.",
        "No target is known to lack nodes or quota.",
    )
    TARGET_NOT_DELIVERING = (
        "TargetNotDelivering",
        (ConditionType.TARGETS_AVAILABLE, Truth.FALSE),
        "{stuck}. {instead}",
        "Nodes or quota of a target ran out, so others are requested instead. One replica of it stays, as a probe.",
        "Add nodes or quota for the target, or lower its max. Once the probe is Ready the target is used again.",
    )
    # Counted, of a GPUBudget
    ALL_COUNTED = (
        "AllCounted",
        (ConditionType.COUNTED, Truth.TRUE),
        "{pools} pools share the budget; their GPUs are counted.",
        "The GPUs of every pool are known, so the budget is enforced.",
    )
    PODS_NOT_ENDING = (
        "PodsNotEnding",
        (ConditionType.COUNTED, Truth.TRUE),
        "Pods that should have ended are not counted: {pods}. Check their nodes and finalizers, and delete them.",
        "Twice their grace period is over, as on a lost node. ResourceQuota does not count such pods either.",
        "If the node is lost, delete its pods with --force. Else remove the finalizer that holds them.",
    )
    NOT_COUNTED = (
        "NotCounted",
        (ConditionType.COUNTED, Truth.FALSE),
        "The GPUs of {pool} are unknown ({why}), so it does not scale up. Its pods on nodes count {gpus} GPUs.",
        "Only this pool orders nothing. Each of its replicas counts as the largest of another pool of the budget.",
        "Give the pods resource limits or a ResourceClaimTemplate, or set targets[].gpusPerReplica.",
    )
    INVALID_BUDGET = (
        "InvalidBudget",
        (ConditionType.COUNTED, Truth.FALSE),
        "Invalid spec, {effect}: {problems}",
        "The budget was stored without the CRD's validation. Its last valid spec counts, if the operator saw one.",
        "Correct the fields that the message names.",
    )
    # Exclusive, of a GPUBudget
    NO_OVERLAP = (
        "NoOverlap",
        (ConditionType.EXCLUSIVE, Truth.TRUE),
        "Its targets count in no other GPUBudget.",
        "Each target that the budget covers shares this budget.",
    )
    COUNTED_ELSEWHERE = (
        "CountedElsewhere",
        (ConditionType.EXCLUSIVE, Truth.FALSE),
        "Targets of {pools} count in GPUBudget {budget}, and do not count here.",
        "Two budgets cover one target. It counts in the oldest one that selects the pool that scales it.",
        "Change the selectors so that each target has one budget.",
    )
    # Sufficient, of a GPUBudget
    ENOUGH_GPUS = (
        "EnoughGPUs",
        (ConditionType.SUFFICIENT, Truth.TRUE),
        "{held} of {gpus} GPUs are in use, and no pool asks for more than it gets.",
        "No pool is limited by the budget.",
    )
    POOLS_WAIT = (
        "PoolsWait",
        (ConditionType.SUFFICIENT, Truth.FALSE),
        "{held} of {gpus} GPUs are in use; {pools} ask for {missing} GPUs more than the budget gives them.",
        "Some pools are limited by the budget, those of low priority first.",
        "Raise spec.gpus if there are GPUs, or lower the priority of pools that can wait.",
    )
    OVER_BUDGET = (
        "OverBudget",
        (ConditionType.SUFFICIENT, Truth.FALSE),
        "{held} GPUs are in use and the budget is {gpus}. Pools in mode Auto are scaled down.",
        "The budget was lowered, or another program requested more.",
        "Wait for the pods to end. Pools in mode Recommend or Paused keep theirs.",
    )


SCALES_ON = {"WaitingForNode", "ReplicasContested", "Unschedulable", "FailedCreate", "FailedUpdateScale"}
"""Reasons of Ready that are trouble, and with which the operator scales: an outage of metrics comes before them."""
