"""The numbers that sweeps and ablations vary, each with its unit, range and source; and units of time."""

from __future__ import annotations

from dataclasses import dataclass

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
"""Seconds."""
REMEMBERED = 2 * HOUR
"""Seconds for which a pool's demand, loads and misses are remembered moment by moment. No request waits longer."""

LONGEST_GAP = 180.0
"""Seconds, over two scrape intervals: counters further apart tell of an outage's mean and not of now.
A lower or an older reading is left out for as long; after that, counting begins at the next reading."""


@dataclass(frozen=True, slots=True)
class Params:
    """Parameters of the decision: one default serves all pools; a ServingPool's `behavior` sets the first three.

    "Swept" names what `benchmarks/control` varied it against; docs/records/experiments.md has the figures.
    """

    # --- a pool's own knobs
    scale_down_window: float = 120.0
    """Seconds, 0 to 3,600: a scale-down keeps the most that was recommended in this window, or in two cold starts."""
    calibration: float = 300.0
    """Seconds, 0 to 3,600: nothing is scaled down before a pool was observed for so long."""
    cold_start: float = 120.0
    """Seconds, 1 to 3,600: from order to Ready, until a start was measured."""

    # --- windows over samples
    rate_window: float = 30.0
    """Seconds, 15 to 60. Swept: at 60 a step is seen 15 s later, at 15 noise buys 6% more GPUs."""
    mean_window: float = 600.0
    """Seconds, 300 to 1,200: mean request length, mean demand, shape of the latency tail."""
    recent_window: float = 300.0
    """Seconds: what status calls "now"; also the width of the hour's bins."""
    idle_window: float = 1200.0
    """Seconds without a request after which a pool is idle. At 600 on-off traffic attains 93.5 instead of 98.8%."""
    evidence_memory: float = 4 * HOUR
    """Seconds, 3,600 to 86,400: evidence on the miss curve, and on full replicas, counts 1/e after it."""

    # --- queues
    included_slope: float = 0.3
    """Seconds of TTFT per second of queue, 0.1 to 0.5, below which the histogram excludes the queue. Of 252 runs with
    the queue in TTFT none came below. Of 189 without it 97 did; most others had no lasting queue."""
    stands_still: float = 180.0
    """Seconds, and the TTFT bound at least: an engine that holds requests and counts nothing for so long hangs. Its
    gauges are not believed, and a replica is added for it."""

    # --- step time
    decode_ratio: float = 0.006
    """b/a before anything was observed; 0.0046 to 0.0092 on ten GPU and model pairs measured by aiconfigurator."""
    prefill_ratio: float = 0.0045
    """c/a before anything was observed; 0.0030 to 0.0066 on the same ten pairs."""
    fit_memory: float = 2400.0
    """Seconds, 600 to 7,200: a window of step times counts 1/e after it."""
    engine_changed: float = 0.12
    """Logarithm of observed over expected ITL, 0.05 to 0.3, above which the engine has changed (upgrade, FP8)."""
    renewal: float = 67.0
    """Seconds, 30 to 300: windows count 1/e after it while the engine is changing."""

    # --- miss curve
    tick_weight: float = 12.0
    """Requests, 5 to 50, that a tick counts for at most: neighbours in time share their burst."""
    aftermath: float = 4.0
    """Ratio, 2 to 6: misses after an overload for each in it. Without it ramp attains 91.1 instead of 95.8%."""
    knee_share: float = 0.75
    """Share, 0.5 to 0.95, of the load at which even smooth traffic breaks TPOT: where the knee is expected."""
    relieved: float = 0.5
    """Share of an overload, 0.3 to 0.7: at a lower load than that, requests on time never met it."""

    # --- forecast
    persistence_weight: float = 20.0
    """Pairs, 5 to 100: prior weight of "a jump lasts". Of "the usual lasts": three times as much."""
    beyond: float = 1.2
    """Ratio, 1 to 2: no error of the past leads further beyond the highest demand that is remembered."""
    prior_error: float = 0.18
    """Standard deviation over the mean, 0.05 to 0.5, before errors were seen; conversations show about this."""
    prior_weight: float = 48.0
    """Pairs, 10 to 200, that the prior errors weigh."""
    initial_weight: float = 20.0
    """Pairs, 0 to 100: prior weight of the load that the initial fleet could serve. It fades within two hours."""

    # --- cheapest fleet
    least_penalty: float = 3.0
    """Least penalty of a miss, 1 to 10 replicas for the work that keeps a replica busy."""
    greatest_penalty: float = 7.0
    """Greatest penalty, times the allowed misses. At 5 a day of code attains 94.9%, at 10 bursts cost 10% more."""
    penalty_margin: float = 2.0
    """Standard errors, 0 to 3, left free when the penalty is chosen. At 1.5 five of 54 runs miss, at 2 four."""
    hysteresis: float = 3.0
    """Ratio, 1 to 5, of the penalty at which a replica is kept to the penalty at which it is requested."""

    # --- error budget
    planned: float = 0.7
    """Share, 0.5 to 1, of the allowed misses that the fleet is planned for. At 1 a day of code attains 94.6%."""
    most_calibration: float = 4.0
    """Ratio, 1 to 10: misses observed for each that the curve predicted are believed up to it."""
    slow_hours: float = 6.0
    """Hours of allowed misses, 2 to 24, overspent in a day that divide the plan by e, to 0.7 of it at least."""

    # --- limits
    scale_down_starts: float = 2.0
    """Cold starts, 1 to 5: the scale-down window at least. A replica that soon returns costs more than it saved."""
    calm_burn: float = 2.0
    """Misses over the allowed ones, 1 to 5: below it, and without a queue, nothing is added while calibrating."""
    uncreated_after: float = 60.0
    """Seconds, 15 to 300, after which a pod that was not created is refused, as by a quota."""
    worth_moving: float = 0.1
    """Share of the cost, 0.02 to 0.5, that another mix of targets must save. Speeds are known within a few percent."""


DEFAULT = Params()
