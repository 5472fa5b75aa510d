"""The decision core: pure functions from what was observed to how many replicas, and why.

No I/O, no clock. The operator and the simulator call the very same `decide`.
"""
