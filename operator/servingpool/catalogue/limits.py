"""The limits: rules between the raw need and the desired replicas. `servingpool explain` lists them."""

from __future__ import annotations

from servingpool.catalogue.template import Entry


class LimitName(Entry):
    """The name of a limit in `status.lastDecision.limits`."""

    template: str
    meaning: str
    action: str

    PARTIAL = (
        "PartialMetrics",
        "scale-down blocked: metrics of {missing:.0%} of the ready replicas are missing",
        "Scale-down is blocked: some ready replicas could not be read.",
        "Check the scrape of the pods that MetricsAvailable names.",
    )
    QUEUE_UNKNOWN = (
        "QueueUnknown",
        "scale-down blocked: the queue is not known ({reason})",
        "Scale-down is blocked: the number of queued requests is unknown.",
        "Check the metrics that MetricsAvailable names.",
    )
    CLIENT_UNKNOWN = (
        "ClientLatencyUnknown",
        "scale-down blocked: the client's time to first token is not known ({reason})",
        "Scale-down is blocked: slo.measuredAt is Gateway, and the gateway does not tell the client's latency.",
        "Correct spec.metrics.gateway or the gateway's scrape, or set slo.measuredAt to Engine.",
    )
    REQUESTS_WAIT = (
        "RequestsWait",
        "scale-down blocked: a request has been queued for {waited:.0f} s, longer than {bound:g} s",
        "Scale-down is blocked: requests have waited longer than the TTFT bound allows.",
        "Nothing. It ends with the queue.",
    )
    REPLICAS_MISSING = (
        "ReplicasMissing",
        "scale-down blocked: only {standing} of {requested} replicas exist so far",
        "Scale-down is blocked: some requested replicas have no pod yet.",
        "If it lasts, kubectl describe the ReplicaSet or StatefulSet: a quota may refuse its pods.",
    )
    ROLLOUT = (
        "RolloutInProgress",
        "scale-down blocked: a rollout is in progress",
        "Scale-down is blocked until the rollout ends.",
        "If it does not end, check the rollout.",
    )
    MISSES_REMAIN = (
        "MissesRemain",
        "scale-down blocked: {missed:.0%} of requests miss the SLO, more than the {floor:.0%} that would at any size",
        "Scale-down is blocked: in the last 5 minutes more requests missed the SLO than would miss it at any size.",
        "servingpool explain shows which bound is missed. Relax it, use faster replicas, or mend engines that fail.",
    )
    ON_TRIAL = (
        "OnTrial",
        "no more than {most}: {why}",
        "The work that engines counted needs less. More replicas are ordered in steps, and kept if they help.",
        "Nothing while steps are tried. If more replicas do not help, do what SLOMet says.",
    )
    CALIBRATING = (
        "Calibrating",
        "calibrating: {detail}",
        "The operator is still learning: no scale-down, and scale-up only if requests are late or queued.",
        "Wait, usually 5 minutes.",
    )
    WINDOW_FILLING = (
        "WindowFilling",
        "scale-down blocked: the pool was observed for less than {window:.0f} s",
        "Scale-down is blocked: the scale-down window is not full yet.",
        "Wait for the time that the message names.",
    )
    SCALE_DOWN_WINDOW = (
        "ScaleDownWindow",
        "scale-down stops at {to}: {highest} were needed or worth keeping within the last {window:.0f} s",
        "Scale-down is blocked or partial: more replicas were needed, or worth keeping, within the window.",
        "Wait. To save more, lower spec.behavior.scaleDownWindow; below two cold starts it has no effect.",
    )
    LOWEST_STAY = (
        "LowestOrdinalsStay",
        "scale-down limited to {replicas}: of the {wanted} lowest ordinals, which stay, {unready} not Ready",
        "A StatefulSet or LeaderWorkerSet removes its highest ordinals, Ready or not, so more stay in place of those.",
        "kubectl describe the pod that the message names. Its replica is given back once it is Ready.",
    )
    TOO_LITTLE = (
        "NotWorthAMove",
        "the change to {replicas} is under {tolerance:.1%} of the fleet, too small to make",
        "The change is below 1.5% of the fleet, so replicas stay as they are.",
        "Nothing.",
    )
    UNSCHEDULABLE = (
        "Unschedulable",
        "scale-up stops at {to}: {pods} pods are unschedulable",
        "Scale-up is blocked: pods are unschedulable, and more would be too.",
        "Uncordon, free or add nodes: the condition Ready has the scheduler's words. Or lower targets[].max.",
    )
    PROPORTION = (
        "OrderInProportion",
        "scale-up stops at {most} for now, a load of at most {load:.2g}: too few requests were seen to expect misses",
        "Scale-up is limited to what serves arrivals and queue: few misses were seen, so more would be a guess.",
        "Nothing. It ends as requests are seen.",
    )
    ONE_COLD_START = (
        "OneColdStart",
        "scale-up stops at {most} for one cold start: {ready} are ready",
        "Scale-up is limited to twice the ready replicas plus 4 within one cold start.",
        "Nothing. The next replicas follow as these become ready.",
    )
    QUEUE_GROWS = (
        "QueueGrows",
        "at least {replicas}, a guess: {waiting:.0f} requests wait, some for over {waited:.0f} s, and the queue grows",
        "Raised while the need is unknown: the queue grows. A guess, at most twice the ready replicas plus 4.",
        "Correct what makes the need unknown. Until then nothing is removed.",
    )
    LEARNING_STEP = (
        "LearningStep",
        "scale-up stops at {most} until the engine's speed is known",
        "Scale-up is limited to about twice the initial replicas until the engine's speed is known.",
        "Nothing. It takes decoded requests to learn the speed.",
    )
    NOT_IDLE = (
        "NotIdle",
        "the last replica stays: the last request was {idle} ago; it goes after {after}",
        "At 0 after spec.behavior.idleAfter without a request, at least scaleDownWindow and two cold starts.",
        "Nothing. Shorten idleAfter to save more GPU time.",
    )
    DEMAND_UNKNOWN = (
        "DemandUnknown",
        "the last replica stays: demand is unknown ({reason})",
        "Unknown demand is never idle, so the fleet does not go to 0.",
        "Correct what the reason names: spec.metrics.gateway, or the scrape of the gateway or the engines.",
    )
    DEMAND_VANISHED = (
        "DemandVanished",
        "the last replica stays: while the fleet was at 0, the gateway's metrics vanished ({at})",
        "The gateway shows no demand without replicas, so the fleet does not go to 0 again.",
        "Use a gateway that counts requests at 0 replicas. To try again, set min to 1 and back to 0.",
    )
    MINIMUM = (
        "TooFewReplicas",
        "min is {minimum}",
        "Raised to targets[].min, of several targets their sum, or to the min of a schedule.",
        "Lower min to save GPUs.",
    )
    RATIO = (
        "PrefillPerDecode",
        "prefillPerDecode raises replicas to {least} beside {replicas} for {role}",
        "Raised to what spec.prefillPerDecode asks for beside the other role's replicas, up to targets[].max.",
        "Widen prefillPerDecode to save GPUs: raise its max if decode is raised, lower its min if prefill is.",
    )
    OTHER_ROLE = (
        "OtherRoleRuns",
        "raised to {least} because {role} has {replicas}: neither role is at 0 alone",
        "Raised from 0: a request needs both roles, so both go to 0 together.",
        "Nothing. What keeps the other role is among its own limits in servingpool explain.",
    )
    MAXIMUM = (
        "TooManyReplicas",
        "max is {maximum}",
        "Reduced to targets[].max, of several targets their sum, or to the max of a schedule.",
        "Raise max if there are GPUs, or relax the objective.",
    )
    MAX_CHANGE = (
        "MaxChangePerStep",
        "this step stops at {to}: maxChangePerStep is {most}",
        "Limited to spec.behavior.maxChangePerStep. It applies last: min and max are reached in steps.",
        "Nothing. The next step follows at the next decision. Raise maxChangePerStep for faster changes.",
    )
    GPU_BUDGET = (
        "GPUBudget",
        "GPUBudget {budget} allows {most}: {detail}",
        "Reduced to what the GPUBudget of the pool allows now, also below min.",
        "Raise spec.gpus of the GPUBudget if there are GPUs, or the pool's priority. See docs/how-to/share-gpus.md.",
    )
