"""The operator's own metrics, on its /metrics. A figure that is unknown has no series."""

from __future__ import annotations

from servingpool.catalogue.template import Entry

POOL = ("namespace", "pool")
BATCH = (*POOL, "unit")


class Metric(Entry):
    """One metric, by the name that a query uses."""

    unit: str
    help: str
    meaning: str
    """How to read it."""
    labels: tuple[str, ...]
    kind: str
    """gauge, counter or histogram."""

    @staticmethod
    def filled(
        unit: str, help_: str, meaning: str, labels: tuple[str, ...] = POOL, kind: str = "gauge"
    ) -> tuple[object, ...]:
        """A gauge of a pool where the entry says nothing else."""
        return unit, help_, meaning, labels, kind

    INFO = (
        "servingpool_info",
        "",
        "1 for every pool, with its mode, Auto, Recommend or Paused, and its model.",
        "Join it: * on (namespace, pool) group_left (mode) servingpool_info.",
        (*POOL, "mode", "model"),
    )
    CONDITION = (
        "servingpool_condition",
        "",
        "The pool's conditions: 1 for the status and reason that each type has now.",
        "One series per condition. Filter by type, status and reason.",
        (*POOL, "type", "status", "reason"),
    )
    CONDITION_SINCE = (
        "servingpool_condition_since_timestamp_seconds",
        "seconds",
        "Unix time at which a condition that is not good last changed its status.",
        "Absent of good conditions. time() less this is how long the trouble lasts, also over restarts.",
        (*POOL, "type"),
    )
    DECIDED_AT = (
        "servingpool_decision_timestamp_seconds",
        "seconds",
        "Unix time of the last decision.",
        "All series of a pool are of this decision. It stops if the operator does.",
    )
    LIMIT = (
        "servingpool_limit_replicas",
        "replicas",
        "Replicas after a limit that changed the answer.",
        "By order: the first starts at needed_replicas rounded up, the last gives desired_replicas. Roles have none.",
        (*POOL, "limit", "order"),
    )
    CANDIDATE_MISSES = (
        "servingpool_candidate_misses",
        "replicas",
        "Expected misses of a fleet size that was weighed, in fully busy replicas; not for several targets.",
        "needed_for_forecast_replicas is the size with the least replicas + miss_penalty x this.",
        (*POOL, "replicas"),
    )
    EXPECTED_MISSES = (
        "servingpool_expected_miss_ratio",
        "share",
        "Share of requests expected to miss at the horizon with the desired replicas.",
        "Absent where that size was not weighed.",
    )
    LAST_CHANGE = (
        "servingpool_last_change_timestamp_seconds",
        "seconds",
        "Unix time of the last change of spec.replicas, of several targets of their sum.",
        "by is the field manager that made it. `servingpool history` lists the changes.",
        (*POOL, "by"),
    )
    LAST_CHANGE_FROM = (
        "servingpool_last_change_from_replicas",
        "replicas",
        "Replicas before that change.",
        "Absent until a change was seen.",
    )
    LAST_CHANGE_TO = (
        "servingpool_last_change_to_replicas",
        "replicas",
        "Replicas after that change.",
        "Absent until a change was seen.",
    )
    LAST_CHANGE_OUTCOME = (
        "servingpool_last_change_outcome_seconds",
        "seconds",
        "Seconds from that change until all its replicas were Ready, or gone.",
        "outcome is `ready after`, `removed after` or `never ready within`, as in `status.history`. Absent before.",
        (*POOL, "outcome"),
    )
    MIN_REPLICAS = (
        "servingpool_min_replicas",
        "replicas",
        "Lowest number of replicas allowed.",
        "In force: spec.targets[].min, of several targets their sum, or that of a schedule.",
    )
    MAX_REPLICAS = (
        "servingpool_max_replicas",
        "replicas",
        "Highest number of replicas allowed.",
        "In force: spec.targets[].max, of several targets their sum, or that of a schedule.",
    )
    SCHEDULE_BOUND = (
        "servingpool_schedule_bound_replicas",
        "replicas",
        "Bound in force that a schedule gives.",
        "bound is min or max. Absent while the bound is that of the targets.",
        (*POOL, "bound", "schedule"),
    )
    TTFT_BOUND = (
        "servingpool_time_to_first_token_bound_seconds",
        "seconds",
        "Longest time to first token that the SLO allows.",
        "spec.slo.timeToFirstToken; absent without it.",
    )
    TPOT_BOUND = (
        "servingpool_time_per_output_token_bound_seconds",
        "seconds",
        "Longest mean time between output tokens that the SLO allows.",
        "spec.slo.timePerOutputToken; absent without it.",
    )
    REPLICA_COST = (
        "servingpool_replica_cost_dollars_per_hour",
        "dollars/h",
        "Cost of one replica.",
        "spec.targets[].costPerReplicaHour × the costFactor in force; absent without it, and with several targets.",
    )
    DESIRED_REPLICAS = (
        "servingpool_desired_replicas",
        "replicas",
        "Replicas that the last decision wants.",
        "After all limits. In mode Auto spec.replicas follows it.",
    )
    NEEDED_REPLICAS = (
        "servingpool_needed_replicas",
        "replicas",
        "Replicas needed before any limit.",
        "Above desired: a limit holds the fleet below its need.",
    )
    REQUESTED_REPLICAS = (
        "servingpool_requested_replicas",
        "replicas",
        "The target's spec.replicas; of several targets the sum.",
        "What Kubernetes has to run.",
    )
    READY_REPLICAS = (
        "servingpool_ready_replicas",
        "replicas",
        "Replicas that are Ready.",
        "Below requested: pods are starting or unschedulable.",
    )
    TARGET_REQUESTED = (
        "servingpool_target_requested_replicas",
        "replicas",
        "spec.replicas of one of several targets.",
        "Absent in a pool of one target; so the other series by target.",
        (*POOL, "target"),
    )
    TARGET_READY = (
        "servingpool_target_ready_replicas",
        "replicas",
        "Ready replicas of one of several targets.",
        "For long less than target_requested_replicas: see the condition TargetsAvailable.",
        (*POOL, "target"),
    )
    TARGET_DESIRED = (
        "servingpool_target_desired_replicas",
        "replicas",
        "Replicas that the last decision wants of one of several targets.",
        "Their sum is desired_replicas.",
        (*POOL, "target"),
    )
    TARGET_SPEED = (
        "servingpool_target_speed_ratio",
        "",
        "What a replica of this target serves, in replicas of the reference target.",
        "1 for the reference. needed_replicas, candidates and limits are counted in replicas of it.",
        (*POOL, "target"),
    )
    ROLE_FIGURE = (
        "servingpool_role_figure",
        "",
        "Each figure of the decision for prefill or decode, where targets have roles.",
        "Named as in status.roles[].lastDecision; also requested, ready, and capacity: what desired replicas serve.",
        (*POOL, "role", "figure"),
    )
    GPUS = "servingpool_gpus", "GPUs", "GPUs of all requested replicas.", "The cost of the fleet."
    TOKENS_PER_GPU = (
        "servingpool_tokens_per_gpu_rate",
        "tokens/s",
        "Output tokens per second per GPU of the ready replicas.",
        "What the GPUs yield. Falls with idle capacity.",
    )
    TOKENS_PER_DOLLAR = (
        "servingpool_tokens_per_dollar",
        "tokens",
        "Output tokens per dollar.",
        "From costPerReplicaHour; absent without it, and below 1 output token/s.",
    )
    COST = (
        "servingpool_cost_dollars_per_hour",
        "dollars/h",
        "Cost of all replicas on a node, ready or starting.",
        "From costPerReplicaHour; absent without it.",
    )
    COMPARED_COST = (
        "servingpool_compared_cost_dollars_per_hour",
        "dollars/h",
        "Cost of the present traffic at the price that spec.compareTo names.",
        "Above cost_dollars_per_hour: the pool is cheaper here.",
    )
    BREAK_EVEN = (
        "servingpool_break_even_tokens_rate",
        "tokens/s",
        "Output tokens per second from which the present fleet is cheaper than that price.",
        "At the present mix of prompts and output. Compare with generation_tokens_rate.",
    )
    ARRIVAL_RATE = (
        "servingpool_arrival_rate",
        "requests/s",
        "Requests that arrive per second.",
        "Over half a minute, or two scrapes.",
    )
    GENERATION_TOKENS_RATE = (
        "servingpool_generation_tokens_rate",
        "tokens/s",
        "Output tokens per second of all replicas.",
        "Over half a minute, or two scrapes.",
    )
    PROMPT_TOKENS_RATE = (
        "servingpool_prompt_tokens_rate",
        "tokens/s",
        "Prompt tokens per second of all replicas.",
        "Over half a minute, or two scrapes.",
    )
    QUEUE_DEPTH = (
        "servingpool_queue_depth",
        "requests",
        "Requests that wait in engines and gateway.",
        "A queue that lasts longer than a cold start needs replicas.",
    )
    RUNNING_REQUESTS = (
        "servingpool_running_requests",
        "requests",
        "Requests in running batches.",
        "Compare with full_replica_batch times ready replicas.",
    )
    TIME_TO_FIRST_TOKEN = (
        "servingpool_time_to_first_token_seconds",
        "seconds",
        "TTFT at the SLO's percentile.",
        "Over 5 minutes, interpolated within a histogram bucket.",
    )
    TIME_PER_OUTPUT_TOKEN = (
        "servingpool_time_per_output_token_seconds",
        "seconds",
        "TPOT at the SLO's percentile.",
        "Over 5 minutes, interpolated within a histogram bucket.",
    )
    OBJECTIVE = (
        "servingpool_objective_ratio",
        "share",
        "Share of requests that must meet the SLO.",
        "spec.slo.attainment, 0 to 1.",
    )
    ATTAINMENT = (
        "servingpool_attainment_ratio",
        "share",
        "Share of the last hour's requests that met the SLO.",
        "Below objective_ratio: the SLO is missed.",
    )
    RECENT_ATTAINMENT = (
        "servingpool_recent_attainment_ratio",
        "share",
        "Share of the last 5 minutes' requests that met the SLO.",
        "Reacts faster than attainment_ratio.",
    )
    MINUTE_ATTAINMENT = (
        "servingpool_last_minute_attainment_ratio",
        "share",
        "Share of the last minute's requests that met the SLO.",
        "Shows a recovery first. Absent where too few requests came to judge.",
    )
    LONGEST_WAIT = (
        "servingpool_longest_wait_seconds",
        "seconds",
        "Longest time that a queued request has waited.",
        "Estimated from the queues' length and rate.",
    )
    FULL_REPLICA_BATCH = (
        "servingpool_full_replica_batch",
        "requests",
        "Requests that a full replica decodes at a time.",
        "Until a replica was full while requests waited: the limit in the pod template; absent without one.",
    )
    FULL_REPLICA_REQUESTS = (
        "servingpool_full_replica_requests_rate",
        "requests/s",
        "Requests per second of a full replica.",
        "Absent until a replica was full while requests waited.",
    )
    FULL_REPLICA_TOKENS = (
        "servingpool_full_replica_tokens_rate",
        "tokens/s",
        "Output tokens per second of a full replica.",
        "Absent until a replica was full while requests waited.",
    )
    LOAD = (
        "servingpool_load_ratio",
        "share",
        "Offered work divided by the capacity of the ready replicas.",
        "From 1 on, queues grow without end.",
    )
    SAFE_LOAD = (
        "servingpool_safe_load_ratio",
        "share",
        "Highest load at which the SLO is expected to hold.",
        "Learned. A load above it means misses.",
    )
    FORECAST = (
        "servingpool_forecast_busy_replicas",
        "replicas",
        "Work expected at the horizon, in fully busy replicas.",
        "Divide by safe_load_ratio to compare with replicas.",
    )
    HORIZON = (
        "servingpool_horizon_seconds",
        "seconds",
        "How far ahead the forecast looks: one cold start and one scrape interval.",
        "Measured from the pool's own pods once some have started. Pods that start one after another add up.",
    )
    STEP_BASE = (
        "servingpool_step_base_seconds",
        "seconds",
        "Duration of an engine step with no work in it.",
        "The a in step = a + b x decoding + c x prefill tokens.",
    )
    STEP_PER_REQUEST = (
        "servingpool_step_per_request_seconds",
        "seconds",
        "What each decoding request adds to a step.",
        "The b.",
    )
    STEP_PER_PREFILL_TOKEN = (
        "servingpool_step_per_prefill_token_seconds",
        "seconds",
        "What each prefill token adds to a step.",
        "The c.",
    )
    WORK_PER_REQUEST = (
        "servingpool_work_per_request_seconds",
        "replica-seconds",
        "Work of the usual request.",
        "Times the arrival rate: replicas kept fully busy.",
    )
    MISS_FLOOR = (
        "servingpool_miss_floor_ratio",
        "share",
        "Share of requests expected to miss at any fleet size.",
        "Above 1 - objective no fleet size holds the SLO.",
    )
    MISS_CALIBRATION = (
        "servingpool_miss_calibration_ratio",
        "ratio",
        "Misses observed for each miss predicted, 1 to 4.",
        "Divides the allowance: above 1 the miss curve was too hopeful.",
    )
    PERSISTENCE = (
        "servingpool_demand_persistence_ratio",
        "share",
        "Part of a jump in demand that lasts for a cold start.",
        "Near 0: bursts are over by then. 1: steps stay.",
    )
    USUAL_PERSISTENCE = (
        "servingpool_demand_usual_persistence_ratio",
        "share",
        "Part of the usual demand's distance from the hour's mean that lasts.",
        "Near 0: demand returns to the mean within a cold start.",
    )
    BURST = (
        "servingpool_burst_busy_replicas",
        "replicas",
        "Work at the horizon that one in twenty outcomes exceeds.",
        "In fully busy replicas, like the forecast.",
    )
    BACKLOG = (
        "servingpool_backlog_busy_replicas",
        "replicas",
        "Replicas that the queues keep busy at the horizon.",
        "Added to the forecast.",
    )
    FAST_BUDGET_FACTOR = (
        "servingpool_budget_fast_factor",
        "ratio",
        "What the misses of the last hour leave of the plan, 0.5 to 1.",
        "Below 1 the hour overspent its error budget.",
    )
    SLOW_BUDGET_FACTOR = (
        "servingpool_budget_slow_factor",
        "ratio",
        "What the misses of the last day make of the plan, 0.7 to 1.29.",
        "Below 1 the day overspent its error budget.",
    )
    ALLOWANCE = (
        "servingpool_allowance_ratio",
        "share",
        "Share of requests that the fleet is sized to miss.",
        "Floor + 0.7 x fast x slow factor x (allowed - floor) / calibration. At least 0.1 x allowed above the floor.",
    )
    MISS_PENALTY = (
        "servingpool_miss_penalty",
        "replicas",
        "Penalty of a miss, in replicas for the work of one busy replica.",
        "The cheapest fleet has the least replicas + penalty x misses.",
    )
    NEEDED_FOR_FORECAST = (
        "servingpool_needed_for_forecast_replicas",
        "replicas",
        "Cheapest fleet for what may come at the horizon.",
        "The need is the largest of these three.",
    )
    NEEDED_FOR_INITIAL_FLEET = (
        "servingpool_needed_for_initial_fleet_replicas",
        "replicas",
        "Replicas kept because the initial fleet is evidence of demand.",
        "0 two hours after the first observation.",
    )
    NEEDED_FOR_PRESENT_LOAD = (
        "servingpool_needed_for_present_load_replicas",
        "replicas",
        "Cheapest fleet for the demand of now, where less is forecast.",
        "What is removed now is missing now.",
    )
    RECOMMENDED_REPLICAS = (
        "servingpool_recommended_replicas",
        "replicas",
        "Most replicas recommended within the scale-down window.",
        "A scale-down stops there.",
    )
    BATCH_BACKLOG = (
        "servingpool_batch_backlog",
        "requests or tokens, see unit",
        "Work of spec.batch that waits in broker, gateway and engines.",
        "Absent while the backlog's query has no answer that can be used.",
        BATCH,
    )
    BATCH_RATE = (
        "servingpool_batch_planned_rate",
        "requests/s or tokens/s, see unit",
        "What the desired replicas do of spec.batch per second, once they are ready.",
        "servingpool_batch_backlog falls by that, less what comes. Absent until a request's cost is known.",
        BATCH,
    )
    BATCH_DEADLINE = (
        "servingpool_batch_deadline_timestamp_seconds",
        "seconds",
        "Unix time of the deadline with the least time to spare.",
        "Absent while nothing waits.",
    )
    BATCH_FINISH = (
        "servingpool_batch_finish_timestamp_seconds",
        "seconds",
        "Unix time at which the desired replicas will have done what is due by that deadline.",
        "Too late if after the deadline. Replicas that others have count. Absent while work waits for cheaper hours.",
    )
    BATCH_DEFERRED = (
        "servingpool_batch_deferrable_replicas",
        "replicas",
        "Needed replicas that can wait without losing a deadline of spec.batch.",
        "Other pools of a GPUBudget may have their GPUs. The pool asks for its others at once.",
    )
    IDLE_TIME = (
        "servingpool_idle_seconds",
        "seconds",
        "Time since a request was seen last, of a pool with min 0.",
        "Absent where min is at least 1, or demand is unknown.",
    )
    API_WRITES = (
        "servingpool_api_writes_total",
        "writes",
        "Writes to the API server.",
        "kind is scale, cost, status or event.",
        ("kind",),
        "counter",
    )
    API_WRITE_FAILURES = (
        "servingpool_api_write_failures_total",
        "writes",
        "Writes that failed.",
        "The log has the API server's answer.",
        ("kind",),
        "counter",
    )
    TICK_DURATION = (
        "servingpool_tick_duration_seconds",
        "seconds",
        "Duration of one tick over all pools.",
        "Must stay below the interval.",
        (),
        "histogram",
    )
    BUDGET_GPUS = "servingpool_gpu_budget_gpus", "GPUs", "GPUs of a GPUBudget.", "spec.gpus of the budget.", ("budget",)
    BUDGET_HELD = (
        "servingpool_gpu_budget_held_gpus",
        "GPUs",
        "GPUs that a pool's pods hold: requested, loading and draining.",
        "The sum over a budget stays within gpu_budget_gpus. Absent while the GPUs of one pool are unknown.",
        ("budget", *POOL),
    )
    HEADROOM_GPUS = (
        "servingpool_headroom_gpus",
        "GPUs",
        "GPUs of the pool's budget that nobody holds.",
        "All pools of a budget have the same number: take the maximum of a budget, not the sum.",
        ("budget", *POOL),
    )
    BUDGET_DUE = (
        "servingpool_gpu_budget_due_gpus",
        "GPUs",
        "GPUs that are a pool's due.",
        "More than gpu_budget_held_gpus: the pool waits for GPUs. Less: it gives some up.",
        ("budget", *POOL),
    )
    BUDGET_WANTED = (
        "servingpool_gpu_budget_wanted_gpus",
        "GPUs",
        "GPUs that a pool's decision asks for.",
        "More than gpu_budget_due_gpus: the budget limits the pool.",
        ("budget", *POOL),
    )
    TICK_LATENESS = (
        "servingpool_tick_lateness_seconds",
        "seconds",
        "How late a tick began.",
        "More than the interval: the operator falls behind.",
        (),
        "histogram",
    )
    POOLS = (
        "servingpool_pools",
        "pools",
        "Pools that this operator watches.",
        "Every replica of the operator has the same number.",
        (),
    )
    OWNED_POOLS = (
        "servingpool_owned_pools",
        "pools",
        "Pools that this operator writes for.",
        "All on the leader. With shards the sum over all replicas must be servingpool_pools.",
        (),
    )
    LEFT_OUT_NAMESPACES = (
        "servingpool_left_out_namespaces",
        "",
        "1 for each watched namespace that cannot be read.",
        "It was deleted, or the operator's Role in it. Its pools are not scaled; the log has the API server's answer.",
        ("namespace",),
    )
    OBJECTS_LEFT_OUT = (
        "servingpool_objects_left_out",
        "objects",
        "Objects of the cluster that are not read, or in part, because of what they contain.",
        "The log and the condition ObjectsRead name them. Other objects are read as always.",
        ("kind",),
    )
    LEADER = (
        "servingpool_leader",
        "",
        "1 on an operator that writes: the leader, or with shards each member. Else 0.",
        "The sum over all replicas must be 1; with shards it is the number of replicas.",
        (),
    )
    PROMETHEUS_QUERIES = (
        "servingpool_prometheus_queries_total",
        "queries",
        "Queries sent to Prometheus.",
        "Depends on backends and matchLabels, hardly on pools.",
        (),
        "counter",
    )
    UNREADABLE_ROWS = (
        "servingpool_prometheus_unreadable_rows_total",
        "rows",
        "Rows of Prometheus' answers that were left out, since nobody can read them.",
        "The operator's log names namespace and pod of each once. Pools are decided without these series.",
        (),
        "counter",
    )
    POOL_FAILURES = (
        "servingpool_pool_failures_total",
        "pools",
        "Pools whose processing ended in an exception.",
        "Each one is a defect; the log has the traceback.",
        (),
        "counter",
    )
