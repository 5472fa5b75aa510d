"""Observe: from samples to the increases since the last observation, and whether each figure is believed.

In: an `Observation`, each replica's last sample, the step time as known. Out: a `CounterDelta`, the `SampleWindow` of
twenty minutes with demand and lateness, an observation without gauges that nothing moves. Learns nothing.
`columns`, `samples`, `counters`, `window` (what happened); `queueing`, `latency`, `lateness` (who was late);
`confirm` (queues, by their flows), `plausible`, `gauges` (outliers, and other figures that are not believed).
"""
